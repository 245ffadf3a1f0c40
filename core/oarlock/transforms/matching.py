"""What passes ask of array programs: known values, the operator behind a value, attributes as what they are."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from oarlock.ir import Dense, Dim, Operation, Value, traits
from oarlock.ir.rewrite import Rewriter
from oarlock.ops.record import Array, ArrayBuilder, tensor

__all__ = [
    "constant_of", "emit", "ints", "is_commutative", "is_computed", "is_stored", "produced_by", "shape_of", "shaped_as",
    "splat_of", "travels", "uniform",
]  # fmt: skip


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


_COMPUTING = (
    "array.dot_general", "array.convolution", "array.window_reduce", "array.reduce_sum", "array.reduce_prod",
    "array.reduce_max", "array.reduce_min",
)  # fmt: skip
"""Operators, besides the element-wise ones, in whose kernels element-wise consumers can be computed."""


def is_computed(value: Value) -> bool:
    """Whether a kernel computes ``value`` that could compute more of it: it is no argument, constant or movement."""
    op = value.defining_op
    return op is not None and (op.name in _COMPUTING or op.definition.has(traits.ELEMENTWISE))


_STORING = ("array.constant", "array.pad", "array.concat", "array.gather", "array.scatter", "array.scan", "array.sort")


def is_stored(value: Value) -> bool:
    """Whether ``value`` lies in memory whoever reads it: an argument, or what a kernel of its own makes."""
    op = value.defining_op
    return op is None or op.name in _STORING


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


def shape_of(value: Value) -> tuple[Dim, ...]:
    """The shape of a tensor."""
    return tensor(value).shape


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


def travels(op: Operation) -> int:
    """How many rewrites may follow each other where each moves something past an operation in ``op``."""
    return 64 + sum(1 for _ in op.walk())


def uniform(op: Operation, value: Any, rewriter: Rewriter) -> Value:
    """``value`` in the dtype and shape of ``op``'s result."""
    kind = tensor(op.results[0])
    scalar = emit(op, rewriter).constant(np.asarray(value), kind.dtype)
    return shaped_as(op, scalar, rewriter)
