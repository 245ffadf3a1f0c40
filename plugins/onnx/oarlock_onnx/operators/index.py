"""Gather, scatter and their relatives: all over flat indices, computed where the indices are."""

from __future__ import annotations

import math
from collections.abc import Sequence

from oarlock import dtypes
from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder
from oarlock_onnx.node import Node
from oarlock_onnx.operators.common import (
    axis_of,
    cast,
    dtype_of,
    index32,
    like,
    numbers,
    reshape,
    scalar,
    shape_of,
    slice_axis,
    transpose,
    unsqueeze,
)
from oarlock_onnx.registry import operator

__all__ = ["flat_take"]

_KINDS = {"none": "set", "add": "add", "mul": "multiply", "min": "minimum", "max": "maximum"}


def _strides(shape: Sequence[int]) -> list[int]:
    """Elements between neighbours along each dimension."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _checked(b: GraphBuilder, indices: Value, size: int) -> Value:
    """Indices as int32 from the front; known ones outside the dimension raise ModelError."""
    known = b.peek(indices)
    if known is not None and known.size and not (-size <= known.min() and known.max() < size):
        raise ModelError(f"indices from {known.min()} to {known.max()} are outside a dimension of {size}")
    return index32(b, indices, size)


def flat_take(b: GraphBuilder, x: Value, rows: Sequence[int], flat: Value) -> Value:
    """``x``, its leading dimensions ``rows`` taken as one, at ``flat`` indices into them."""
    rest = shape_of(x)[len(rows) :]
    return b("gather", reshape(b, x, (math.prod(rows), *rest)), flat, axis=0)


@operator("Gather")
def gather(b: GraphBuilder, node: Node) -> Value:
    """Slices along an axis at any shape of indices."""
    x, indices = node.input(0), node.input(1)
    axis = axis_of(node.integer("axis", 0), len(shape_of(x)))
    return b("gather", x, _checked(b, indices, shape_of(x)[axis]), axis=axis)


def _element_positions(b: GraphBuilder, shape: Sequence[int], indices: Value, axis: int) -> Value:
    """Flat positions in ``shape`` of the elements that ``indices`` along ``axis`` name."""
    strides, dims = _strides(shape), shape_of(indices)
    if len(dims) != len(shape):
        raise ModelError(f"indices have {len(dims)} dimensions, the data {len(shape)}")
    if any(dim > size for place, (dim, size) in enumerate(zip(dims, shape, strict=True)) if place != axis):
        raise ModelError(f"indices {list(dims)} do not fit the data {list(shape)}")
    chosen = _checked(b, indices, shape[axis])
    position = b("multiply", chosen, scalar(b, strides[axis], dtypes.int32))
    for place, dim in enumerate(dims):
        if place != axis and dim > 1:
            position = b("add", position, numbers(b, dim, len(dims), place, strides[place]))
    return position


@operator("GatherElements")
def gather_elements(b: GraphBuilder, node: Node) -> Value:
    """One element per index."""
    x, indices = node.input(0), node.input(1)
    axis = axis_of(node.integer("axis", 0), len(shape_of(x)))
    return flat_take(b, x, shape_of(x), _element_positions(b, shape_of(x), indices, axis))


def _scatter(b: GraphBuilder, x: Value, rows: Sequence[int], flat: Value, updates: Value, kind: str) -> Value:
    """``x`` with ``updates`` at flat positions into its leading dimensions ``rows``."""
    shape = shape_of(x)
    rest = shape[len(rows) :]
    count = math.prod(shape_of(flat))
    if shape_of(updates) != (*shape_of(flat), *rest):
        raise ModelError(f"updates are {list(shape_of(updates))}, expected {[*shape_of(flat), *rest]}")
    if kind not in _KINDS:
        raise ModelError(f"reduction {kind!r} is not one of {', '.join(_KINDS)}")
    base = reshape(b, x, (math.prod(rows), *rest))
    taken = reshape(b, updates, (count, *rest))
    return reshape(b, b("scatter", base, reshape(b, flat, (count,)), taken, axis=0, kind=_KINDS[kind]), shape)


@operator("ScatterElements", "Scatter")
def scatter_elements(b: GraphBuilder, node: Node) -> Value:
    """One element written per index; equal indices combine by the reduction."""
    x, indices, updates = (node.input(index) for index in range(3))
    axis = axis_of(node.integer("axis", 0), len(shape_of(x)))
    if not shape_of(x):
        raise ModelError("the data has no dimensions")
    positions = _element_positions(b, shape_of(x), indices, axis)
    return _bool_safe(b, x, shape_of(x), positions, updates, node.string("reduction", "none"))


def _bool_safe(b: GraphBuilder, x: Value, rows: Sequence[int], flat: Value, updates: Value, kind: str) -> Value:
    """Scatter; reductions of bool go through uint8."""
    if dtype_of(x) != dtypes.bool_ or kind == "none":
        return _scatter(b, x, rows, flat, updates, kind)
    kind = {"add": "max", "mul": "min"}.get(kind, kind)
    bits = _scatter(b, cast(b, x, dtypes.uint8), rows, flat, cast(b, updates, dtypes.uint8), kind)
    return cast(b, bits, dtypes.bool_)


def _nd_positions(b: GraphBuilder, shape: Sequence[int], indices: Value, batch: int) -> tuple[Value, int]:
    """Flat positions of index tuples (the last dimension of ``indices``), and how many dimensions they cover."""
    dims = shape_of(indices)
    if not dims or not 1 <= dims[-1] <= len(shape) - batch or tuple(dims[:batch]) != tuple(shape[:batch]):
        raise ModelError(f"indices {list(dims)} do not fit the data {list(shape)} with {batch} batch dimensions")
    covered = batch + dims[-1]
    strides = _strides(shape[:covered])
    flat: Value | None = None
    for place in range(dims[-1]):
        column = reshape(b, slice_axis(b, indices, len(dims) - 1, place, place + 1), dims[:-1])
        chosen = _checked(b, column, shape[batch + place])
        part = b("multiply", chosen, scalar(b, strides[batch + place], dtypes.int32))
        flat = part if flat is None else b("add", flat, part)
    if flat is None:
        raise ModelError("indices are empty")
    for place in range(batch):
        flat = b("add", flat, numbers(b, dims[place], len(dims) - 1, place, strides[place]))
    return flat, covered


@operator("GatherND")
def gather_nd(b: GraphBuilder, node: Node) -> Value:
    """Slices named by tuples of indices."""
    x, indices = node.input(0), node.input(1)
    batch = node.integer("batch_dims", 0)
    if not 0 <= batch < min(len(shape_of(x)), len(shape_of(indices))):
        raise ModelError(f"batch_dims {batch} does not fit")
    flat, covered = _nd_positions(b, shape_of(x), indices, batch)
    return flat_take(b, x, shape_of(x)[:covered], flat)


@operator("ScatterND")
def scatter_nd(b: GraphBuilder, node: Node) -> Value:
    """Slices written at tuples of indices; equal ones combine by the reduction."""
    x, indices, updates = (node.input(index) for index in range(3))
    flat, covered = _nd_positions(b, shape_of(x), indices, 0)
    return _bool_safe(b, x, shape_of(x)[:covered], flat, updates, node.string("reduction", "none"))


@operator("OneHot")
def one_hot(b: GraphBuilder, node: Node) -> Value:
    """A new axis with one of two values by equality with the index."""
    indices, values = node.input(0), node.input(2)
    depth = int(b.static(node.input(1), "depth").reshape(-1)[0])
    rank = len(shape_of(indices))
    axis = axis_of(node.integer("axis", -1), rank + 1)
    if not 0 <= depth < 2**31 or shape_of(values) != (2,):
        raise ModelError(f"depth {depth} and values {list(shape_of(values))} do not fit")
    wrapped = index32(b, cast(b, indices, dtypes.int64), depth)
    hit = b("equal", unsqueeze(b, wrapped, (axis,)), numbers(b, depth, rank + 1, axis))
    off, on = (reshape(b, slice_axis(b, values, 0, place, place + 1), ()) for place in (0, 1))
    return b("select", hit, on, off)


@operator("ReverseSequence")
def reverse_sequence(b: GraphBuilder, node: Node) -> Value:
    """Each sequence of a batch reversed up to its length."""
    x, lengths = node.input(0), cast(b, node.input(1), dtypes.int32)
    batch, time = node.integer("batch_axis", 1), node.integer("time_axis", 0)
    if {batch, time} != {0, 1} or len(shape_of(x)) < 2:
        raise ModelError(f"batch_axis {batch} and time_axis {time} must be 0 and 1")
    dims = shape_of(x)
    steps = numbers(b, dims[time], 2, time)
    per = reshape(b, lengths, (1, dims[1]) if batch == 1 else (dims[0], 1))
    last = b("subtract", per, scalar(b, 1, dtypes.int32))
    chosen = b("select", b("less", steps, per), b("subtract", last, steps), steps)
    entries = numbers(b, dims[batch], 2, batch)
    width = scalar(b, dims[1], dtypes.int32)
    row, column = (chosen, entries) if time == 0 else (entries, chosen)
    return flat_take(b, x, dims[:2], b("add", b("multiply", row, width), column))


@operator("TensorScatter")
def tensor_scatter(b: GraphBuilder, node: Node) -> Value:
    """A cache with new entries written along the sequence dimension, from an index per batch entry."""
    cache, update, start = node.input(0), node.input(1), node.optional(2)
    dims = shape_of(cache)
    axis = axis_of(node.integer("axis", -2), len(dims))
    if axis == 0 or len(shape_of(update)) != len(dims):
        raise ModelError(f"axis {axis} and update {list(shape_of(update))} do not fit the cache {list(dims)}")
    order = (0, axis, *(place for place in range(1, len(dims)) if place != axis))
    batch, length, count = dims[0], dims[axis], shape_of(update)[axis]
    steps = numbers(b, count, 2, 1)
    if start is not None:
        steps = b("add", reshape(b, cast(b, start, dtypes.int32), (batch, 1)), steps)
    if node.string("mode", "linear") == "circular":
        steps = b("remainder", steps, scalar(b, length, dtypes.int32))
    base = numbers(b, batch, 2, 0, length)
    moved = transpose(b, cache, order)
    result = _scatter(b, moved, (batch, length), b("add", base, steps), transpose(b, update, order), "none")
    return transpose(b, result, [order.index(place) for place in range(len(dims))])


@operator("TopK")
def top_k(b: GraphBuilder, node: Node) -> list[Value]:
    """The largest or smallest k along an axis, with their indices; of equal ones the first."""
    x = node.input(0)
    shape = shape_of(x)
    k = node.integer("k") if node.version < 10 else b.ints(node.input(1), "k")[0]
    axis = axis_of(node.integer("axis", -1), len(shape))
    if not 0 <= k <= shape[axis]:
        raise ModelError(f"k {k} is outside [0, {shape[axis]}]")
    largest = node.flag("largest", True)
    values, places = b.many("sort", x, axis=axis, descending=largest)
    return [slice_axis(b, values, axis, 0, k), cast(b, slice_axis(b, places, axis, 0, k), dtypes.int64)]


@operator("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(b: GraphBuilder, node: Node) -> Value:
    """Columns at indices; the result has at least two dimensions."""
    x, indices = node.input(0), node.input(1)
    taken = reshape(b, indices, (math.prod(shape_of(indices)),))
    result = b("gather", x, _checked(b, taken, shape_of(x)[-1]), axis=len(shape_of(x)) - 1)
    return reshape(b, result, (1, *shape_of(result))) if len(shape_of(result)) == 1 else result


@operator("Binarizer", domain="ai.onnx.ml")
def binarizer(b: GraphBuilder, node: Node) -> Value:
    """1 above a threshold, else 0."""
    x = node.input(0)
    return cast(b, b("greater", x, like(b, node.real("threshold", 0.0), x)), dtype_of(x))
