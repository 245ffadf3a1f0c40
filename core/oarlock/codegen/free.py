"""Free operators: those that only move or make elements, so that who reads them computes them."""

from __future__ import annotations

from collections.abc import Sequence

from oarlock.codegen.values import ints, numel, shape_of, splat_value
from oarlock.ir import Operation, Value
from oarlock.ops.shape import VIEWS

__all__ = ["REDUCTIONS", "base_of", "is_free", "memory_of", "significant", "through"]

REDUCTIONS = ("array.reduce_sum", "array.reduce_prod", "array.reduce_max", "array.reduce_min")
_FREE = (*(f"array.{name}" for name in VIEWS), "array.iota", "array.from_scalar", "builtin.number")


def is_free(op: Operation) -> bool:
    """Whether readers of ``op`` compute it rather than load it."""
    if op.name == "array.constant":
        return splat_value(op.result) is not None
    return op.name in _FREE or (op.name in REDUCTIONS and _reduced(op) == 1 and numel(op.operands[0]) != 0)


def _reduced(op: Operation) -> int:
    shape = shape_of(op.operands[0])
    count = 1
    for axis in ints(op, "axes"):
        count *= shape[axis]
    return count


def base_of(value: Value) -> Value | None:
    """The value behind free operators; None when nothing but numbers is there."""
    op = value.defining_op
    while op is not None and is_free(op):
        if not op.operands or op.name == "array.from_scalar":
            return None
        value = op.operands[0]
        op = value.defining_op
    return value


def significant(shape: Sequence[int]) -> tuple[int, ...]:
    """The sizes that are not 1."""
    return tuple(d for d in shape if d != 1)


def through(op: Operation, current: Sequence[int | None]) -> list[int | None] | None:
    """The domain's dimensions behind a free operator's operand, given those of its result; None: not one to one."""
    operand = shape_of(op.operands[0])
    if op.name == "array.broadcast":
        dims = ints(op, "dims")
        return [current[dims[i]] if d != 1 else None for i, d in enumerate(operand)]
    if op.name == "array.transpose":
        result: list[int | None] = [None] * len(operand)
        for i, p in enumerate(ints(op, "permutation")):
            result[p] = current[i]
        return result
    if op.name == "array.reshape" or op.name in REDUCTIONS:
        if significant(operand) != significant(shape_of(op.result)):
            return None
        known = iter([c for c, d in zip(current, shape_of(op.result), strict=True) if d != 1])
        return [next(known) if d != 1 else None for d in operand]
    return None


def memory_of(value: Value) -> Value:
    """The value whose memory ``value`` shares: what is behind reshapes; itself where it must be computed."""
    current = value
    while True:
        op = current.defining_op
        if op is None or not is_free(op):
            return current
        if op.name != "array.reshape":
            return value
        current = op.operands[0]
