"""The builtin dialect: module, function, return, number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from oarlock.dtypes import DType
from oarlock.errors import VerifyError
from oarlock.ir.attributes import Attribute
from oarlock.ir.dialects import Dialect, OpDefinition, traits
from oarlock.ir.interpret import Array, Evaluate, Interpreter
from oarlock.ir.operations import Operation
from oarlock.ir.types import ScalarType, Type

__all__ = ["BUILTIN"]


def _infer_number(types: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
    dtype = attributes["dtype"]
    assert isinstance(dtype, DType)  # the attributes' types are checked first
    return (ScalarType(dtype),)


def _evaluate_number(op: Operation, operands: Sequence[Array], interpreter: Interpreter) -> Sequence[Array]:
    value, dtype = interpreter.attributes(op)["value"], op.attributes["dtype"]
    assert isinstance(value, (int, float)) and isinstance(dtype, DType)
    return (np.asarray(value).astype(dtype.numpy),)


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
        OpDefinition(
            "builtin.number",
            "A number that follows from sizes, such as a count, as a run-time scalar: kernels do not depend on it.",
            operands=0,
            attributes={"value": (int, float), "dtype": DType},
            traits=frozenset({traits.PURE}),
            infer=_infer_number,
            interfaces={Evaluate: Evaluate(_evaluate_number)},
        ),
    ],
)
"""Its operations."""
