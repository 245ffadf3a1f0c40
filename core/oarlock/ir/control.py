"""The control dialect: if, while, call. Control flow is structured: regions of one block that end in control.yield.

| operation | operands | regions and results |
|---|---|---|
| if | condition: tensor<bool> | two regions without arguments, then and else; what they yield |
| while | the carried values' beginnings | condition and body, which take the carried values; the condition yields
  tensor<bool>, the body the next carried values; the last ones are the results |
| call | arguments | none; the results of the function ``callee`` in the enclosing module |
| yield | what the region gives | ends a region |
"""

from __future__ import annotations

from collections.abc import Sequence

from oarlock import dtypes
from oarlock.errors import VerifyError
from oarlock.ir.dialects import Dialect, OpDefinition, traits
from oarlock.ir.interpret import Array, Evaluate, Interpreter
from oarlock.ir.operations import Operation
from oarlock.ir.types import TensorType, Type

__all__ = ["CONTROL", "find_function"]

_CONDITION = TensorType(dtypes.bool_, ())


def find_function(op: Operation, name: str) -> Operation | None:
    """The function called ``name`` in the module around ``op``, or None."""
    module: Operation | None = op
    while module is not None and module.name != "builtin.module":
        module = module.parent_op
    if module is None:
        return None
    for function in module.regions[0].block.ops:
        if function.name == "builtin.function" and function.attributes.get("name") == name:
            return function
    return None


def _callee(op: Operation) -> Operation:
    name = str(op.attributes["callee"])
    function = find_function(op, name)
    if function is None:
        raise VerifyError(f"the module around it has no function {name!r}")
    return function


def _list(types: Sequence[Type]) -> str:
    return "(" + ", ".join(map(str, types)) + ")"


def _verify_region(op: Operation, index: int, what: str, arguments: Sequence[Type], yielded: Sequence[Type]) -> None:
    block = op.regions[index].block
    if [argument.type for argument in block.args] != list(arguments):
        raise VerifyError(f"{what} takes {_list([a.type for a in block.args])}, not {_list(arguments)}")
    last = block.last_op
    if last is None or last.name != "control.yield":
        raise VerifyError(f"{what} does not end in control.yield")
    if [value.type for value in last.operands_] != list(yielded):
        raise VerifyError(f"{what} yields {_list([v.type for v in last.operands_])}, not {_list(yielded)}")


def _verify_if(op: Operation) -> None:
    if op.operands_[0].type != _CONDITION:
        raise VerifyError(f"the condition is {op.operands_[0].type}, not {_CONDITION}")
    results = [result.type for result in op.results]
    _verify_region(op, 0, "the then region", (), results)
    _verify_region(op, 1, "the else region", (), results)


def _verify_while(op: Operation) -> None:
    carried = [value.type for value in op.operands_]
    if [result.type for result in op.results] != carried:
        raise VerifyError(f"results are {_list([r.type for r in op.results])}, not as the operands {_list(carried)}")
    _verify_region(op, 0, "the condition region", carried, [_CONDITION])
    _verify_region(op, 1, "the body region", carried, carried)


def _verify_call(op: Operation) -> None:
    function = _callee(op)
    block = function.regions[0].block
    parameters = [argument.type for argument in block.args]
    if [value.type for value in op.operands_] != parameters:
        raise VerifyError(f"arguments are {_list([v.type for v in op.operands_])}, not {_list(parameters)}")
    returned = [value.type for value in block.terminator.operands_]
    if [result.type for result in op.results] != returned:
        raise VerifyError(f"results are {_list([r.type for r in op.results])}, not {_list(returned)}")


def _evaluate_if(op: Operation, operands: Sequence[Array], interpreter: Interpreter) -> Sequence[Array]:
    return interpreter.run(op.regions[0 if operands[0] else 1], ())


def _evaluate_while(op: Operation, operands: Sequence[Array], interpreter: Interpreter) -> Sequence[Array]:
    condition, body = op.regions
    carried = list(operands)
    while interpreter.run(condition, carried)[0]:
        carried = interpreter.run(body, carried)
    return carried


def _evaluate_call(op: Operation, operands: Sequence[Array], interpreter: Interpreter) -> Sequence[Array]:
    return interpreter.call(_callee(op), operands)


CONTROL = Dialect(
    "control",
    1,
    [
        OpDefinition(
            "control.if",
            "One of two regions, by a condition.",
            operands=1,
            results=None,
            regions=2,
            traits=frozenset({traits.RECURSIVELY_PURE}),
            verify=_verify_if,
            interfaces={Evaluate: Evaluate(_evaluate_if)},
        ),
        OpDefinition(
            "control.while",
            "A region again and again, as long as a condition holds.",
            operands=None,
            results=None,
            regions=2,
            traits=frozenset({traits.RECURSIVELY_PURE}),
            verify=_verify_while,
            interfaces={Evaluate: Evaluate(_evaluate_while)},
        ),
        OpDefinition(
            "control.call",
            "A function of the enclosing module.",
            operands=None,
            results=None,
            attributes={"callee": str},
            verify=_verify_call,
            interfaces={Evaluate: Evaluate(_evaluate_call)},
        ),
        OpDefinition(
            "control.yield",
            "Ends a region with what it gives.",
            operands=None,
            results=0,
            traits=frozenset({traits.TERMINATOR}),
        ),
    ],
)
"""Its operations."""
