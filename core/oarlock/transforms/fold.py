"""Fold: what depends on constants alone is computed now, by the operators' references."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from oarlock.ir import Attribute, Context, Dense, Operation, Size, TensorType, Value, traits
from oarlock.ir.extents import Extent
from oarlock.ir.passes import Pass
from oarlock.ir.rewrite import RewritePattern, Rewriter, apply_patterns
from oarlock.ops.record import Array, Record
from oarlock.transforms.matching import constant_of, emit, ints, produced_by, splat_of, uniform

__all__ = ["Fold"]

_GENERATORS = ("array.broadcast", "array.iota")
"""These stay: computing them costs a kernel less than reading them."""


def _is_symbolic(value: Attribute) -> bool:
    return isinstance(value, (Size, Extent)) or (isinstance(value, tuple) and any(map(_is_symbolic, value)))


def _may_be_known(op: Operation) -> bool:
    """A quick test that most operations do not pass."""
    for operand in op.operands_:
        source = operand.defining_op
        if source is None or source.name not in ("array.constant", "array.broadcast"):
            return False
    pure = bool(op.operands_) and op.definition.has(traits.PURE)
    return pure and not any(map(_is_symbolic, op.attributes.values()))


def _nbytes(value: Value) -> int:
    """The bytes of a value of static shape."""
    assert isinstance(value.type, TensorType)
    return int(np.prod(value.type.static_shape, dtype=object)) * value.type.dtype.itemsize


def _known(value: Value) -> Array | None:
    """The array that ``value`` is known to be: a constant, or one broadcast (a view that takes no memory)."""
    broadcast = produced_by(value, "broadcast")
    if broadcast is None:
        return constant_of(value)
    inner = _known(broadcast.operands_[0])
    if inner is None or _is_symbolic(broadcast.attributes["shape"]):
        return None
    shape, dims = ints(broadcast, "shape"), ints(broadcast, "dims")
    aligned = [1] * len(shape)
    for axis, dim in enumerate(dims):
        aligned[dim] = inner.shape[axis]
    return np.broadcast_to(inner.reshape(aligned), shape)


def _is_uniform(array: Array) -> bool:
    """Whether all elements have the same bits."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, -1)
    return bool((flat[:1] == flat[-1:]).all() and (flat == flat[:1]).all())


class Fold(Pass):
    """Computes operators whose operands are all constants.

    A result is kept when it takes at most ``limit`` bytes, or no more than the constants that it replaces for good.
    Matrix products and convolutions are only computed from at most ``limit`` bytes, anything from at most ``work``.
    An array of equal elements becomes a broadcast.
    """

    name = "fold"
    level = 1

    def __init__(self, limit: int = 1 << 16, work: int = 1 << 24) -> None:
        self.limit = limit
        self.work = work

    def run(self, op: Operation, context: Context) -> Mapping[str, int]:
        """Fold what is in ``op``; the numbers of operators computed and of constants made broadcasts."""
        patterns = [
            RewritePattern("folded", None, self._fold),
            RewritePattern("uniform", "array.constant", self._make_uniform, benefit=2),
        ]
        return apply_patterns(op, patterns, context)

    def _fold(self, op: Operation, rewriter: Rewriter) -> bool:
        record = op.definition.interface(Record)
        if not _may_be_known(op) or record is None or record.host or op.name in _GENERATORS:
            return False
        if record.is_elementwise and all(splat_of(operand) is not None for operand in op.operands_):
            scalars = [np.asarray(splat_of(operand)) for operand in op.operands_]
            rewriter.replace(op, [uniform(op, record.reference(scalars, op.attributes)[0], rewriter)])
            return True
        return self._is_worth_it(op, record) and self._compute(op, record, rewriter)

    def _compute(self, op: Operation, record: Record, rewriter: Rewriter) -> bool:
        operands = [_known(operand) for operand in op.operands_]
        arrays = [operand for operand in operands if operand is not None]
        if len(arrays) != len(operands):
            return False
        builder = emit(op, rewriter)
        results = record.reference(arrays, op.attributes)
        rewriter.replace(op, [builder("constant", value=Dense(result)) for result in results])
        return True

    def _is_worth_it(self, op: Operation, record: Record) -> bool:
        values = (*op.operands_, *op.results)
        if not all(isinstance(value.type, TensorType) and value.type.is_static for value in values):
            return False
        inputs, outputs = sum(map(_nbytes, op.operands_)), sum(map(_nbytes, op.results))
        replaced = sum(
            array.nbytes
            for operand in set(op.operands_)
            if (array := constant_of(operand)) is not None and len(operand.users) == 1
        )
        if record.tolerance == "contraction" and inputs > self.limit:
            return False
        return outputs <= max(self.limit, replaced) and inputs <= self.work

    def _make_uniform(self, op: Operation, rewriter: Rewriter) -> bool:
        array = constant_of(op.results[0])
        if array is None or array.size < 2 or not _is_uniform(array):
            return False
        builder = emit(op, rewriter)
        scalar = builder("constant", value=Dense(array.reshape(-1)[0]))
        rewriter.replace(op, [builder("broadcast", scalar, shape=array.shape, dims=())])
        return True
