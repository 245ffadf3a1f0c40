"""What passes ask of array programs: known values, the operator behind a value, attributes as what they are."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from oarlock.ir import Dense, Operation, Value, traits
from oarlock.ir.rewrite import Rewriter
from oarlock.ops.record import Array, ArrayBuilder, tensor

__all__ = ["constant_of", "emit", "ints", "is_commutative", "produced_by", "shaped_as", "splat_of", "uniform"]


def produced_by(value: Value, name: str) -> Operation | None:
    """The operation ``array.<name>`` that ``value`` is the first result of, or None."""
    op = value.defining_op
    return op if op is not None and op.name == "array." + name and op.results[0] is value else None


def constant_of(value: Value) -> Array | None:
    """The array of an ``array.constant``, or None."""
    op = produced_by(value, "constant")
    return cast(Dense, op.attributes["value"]).array if op is not None else None


def splat_of(value: Value) -> Any:
    """The one value (a NumPy scalar) that every element of ``value`` has, as far as is known; or None."""
    while (op := produced_by(value, "broadcast")) is not None:
        value = op.operands_[0]
    array = constant_of(value)
    return array.reshape(-1)[0] if array is not None and array.size == 1 else None


def is_commutative(op: Operation) -> bool:
    """Whether the operands may change places without a bit of the result changing.

    Not in the greater or lesser of floats: which zero it gives, of two of different sign, may depend on their order.
    """
    if traits.COMMUTATIVE not in op.definition.traits:
        return False
    return op.name not in ("array.maximum", "array.minimum") or not tensor(op.operands_[0]).dtype.is_float


def ints(op: Operation, name: str) -> tuple[int, ...]:
    """The attribute ``name``, a tuple of integers."""
    return cast("tuple[int, ...]", op.attributes[name])


def emit(op: Operation, rewriter: Rewriter) -> ArrayBuilder:
    """A builder that inserts before ``op``."""
    return rewriter.builder(op, ArrayBuilder)


def shaped_as(op: Operation, value: Value, rewriter: Rewriter) -> Value:
    """``value``, broadcast by NumPy's rules to the shape of ``op``'s result where it has another one."""
    shape = tensor(op.results[0]).shape
    rank = tensor(value).rank
    if tensor(value).shape == shape:
        return value
    return emit(op, rewriter)("broadcast", value, shape=shape, dims=tuple(range(len(shape) - rank, len(shape))))


def uniform(op: Operation, value: Any, rewriter: Rewriter) -> Value:
    """``value`` in the dtype and shape of ``op``'s result."""
    kind = tensor(op.results[0])
    scalar = emit(op, rewriter).constant(np.asarray(value), kind.dtype)
    return shaped_as(op, scalar, rewriter)
