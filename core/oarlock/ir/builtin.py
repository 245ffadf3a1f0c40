"""The builtin dialect: module, function, return."""

from __future__ import annotations

from oarlock.errors import VerifyError
from oarlock.ir.dialects import Dialect, OpDefinition, traits
from oarlock.ir.operations import Operation

__all__ = ["BUILTIN"]


def _verify_function(op: Operation) -> None:
    block = op.regions[0].block
    if block.last_op is None or block.last_op.name != "builtin.return":
        raise VerifyError(f"function {op.attributes['name']} does not end in builtin.return")


BUILTIN = Dialect(
    "builtin",
    1,
    [
        OpDefinition(
            "builtin.module",
            "A list of functions.",
            operands=0,
            results=0,
            regions=1,
            traits=frozenset({traits.ISOLATED}),
        ),
        OpDefinition(
            "builtin.function",
            "A function: its block's arguments are the parameters; builtin.return gives the results.",
            operands=0,
            results=0,
            regions=1,
            attributes={"name": str},
            traits=frozenset({traits.ISOLATED}),
            verify=_verify_function,
        ),
        OpDefinition(
            "builtin.return",
            "Ends a function with its results.",
            operands=None,
            results=0,
            traits=frozenset({traits.TERMINATOR}),
        ),
    ],
)
"""Its operations."""
