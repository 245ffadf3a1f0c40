"""Composite indexing: elements picked or replaced along an axis or by coordinates, masks, the largest k."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import DTypeError, ShapeError
from oarlock.ir import TensorType, Value
from oarlock.ops.build import split
from oarlock.ops.composite import composite
from oarlock.ops.index import INDEX, clamped
from oarlock.ops.inference import (
    INTEGERS,
    axis_of,
    check_dtype,
    int_of,
    same_dtypes,
    static_shape,
)
from oarlock.ops.numerics import quiet
from oarlock.ops.record import Array, ArrayBuilder, Attributes, Record, tensor
from oarlock.ops.sampling import sample, small, values

__all__ = ["SELECTION", "around", "widened"]

_SCATTER = next(record for record in INDEX if record.name == "scatter")
_KINDS = ("set", "add", "multiply", "minimum", "maximum")


def _index_dtype(elements: int) -> DType:
    return dtypes.int32 if elements < 2**31 else dtypes.int64


def widened(b: ArrayBuilder, indices: Value) -> Value:
    """Indices in a dtype of at least 32 bits, in which every size can be written."""
    return b.convert(indices, dtypes.int32) if tensor(indices).dtype.bits < 32 else indices


def _clamped(b: ArrayBuilder, indices: Value, size: int, dtype: DType) -> Value:
    wide = widened(b, indices)
    return b.convert(b("maximum", b("minimum", wide, b.full(max(size - 1, 0), wide)), b.full(0, wide)), dtype)


def _inside(b: ArrayBuilder, indices: Value, size: int) -> Value:
    wide = widened(b, indices)
    return b("bitwise_and", b("greater_equal", wide, b.full(0, wide)), b("less", wide, b.full(size, wide)))


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _scaled(b: ArrayBuilder, x: Value, factor: int) -> Value:
    return x if factor == 1 else b("multiply", x, b.full(factor, x))


def _along(b: ArrayBuilder, x: Value, indices: Value, axis: int, along: Value) -> Value:
    """Positions in the flattened ``x``: ``along`` on ``axis``, each index's own place on the others."""
    shape, chosen = tensor(x).static_shape, tensor(indices).static_shape
    result = _scaled(b, along, _strides(shape)[axis])
    for other, stride in enumerate(_strides(shape)):
        if other != axis and chosen[other] > 1:
            place = b("iota", shape=chosen, axis=other, dtype=tensor(along).dtype)
            result = b("add", result, _scaled(b, place, stride))
    return result


def _check_along(name: str, x: TensorType, indices: TensorType, attributes: Attributes) -> int:
    check_dtype(name, "the indices operand", indices.dtype, INTEGERS)
    axis = axis_of(name, attributes, x.rank)
    shape, chosen = static_shape(name, "x", x), static_shape(name, "indices", indices)
    if len(shape) != len(chosen) or any(c > s for i, (c, s) in enumerate(zip(chosen, shape, strict=True)) if i != axis):
        raise ShapeError(f"{name}: indices are {indices}, which do not lie within {x} beyond axis {axis}")
    return axis


def _infer_take_along(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    x, indices = types
    axis = _check_along("take_along_axis", x, indices, attributes)
    if x.shape[axis] == 0 and 0 not in indices.shape:
        raise ShapeError(f"take_along_axis: axis {axis} of {x} is empty: there is nothing to take")
    return (TensorType(x.dtype, indices.shape),)


def _emit_take_along(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, indices = operands
    axis, shape = cast(int, attributes["axis"]), tensor(x).static_shape
    clamped = _clamped(b, indices, shape[axis], _index_dtype(math.prod(shape)))
    return (b("gather", b("reshape", x, shape=(math.prod(shape),)), _along(b, x, indices, axis, clamped), axis=0),)


def _places(shape: tuple[int, ...]) -> list[Array]:
    return list(np.indices(shape, sparse=True))


@quiet
def _take_along(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, indices = operands
    axis = cast(int, attributes["axis"])
    places = _places(indices.shape)
    places[axis] = clamped(indices, 0, max(x.shape[axis] - 1, 0))
    return (x[tuple(places)] if indices.size else np.zeros(indices.shape, x.dtype),)


def _check_kind(name: str, x: TensorType, updates: TensorType, attributes: Attributes) -> None:
    same_dtypes(name, (x, updates))
    if attributes["kind"] not in _KINDS:
        raise ShapeError(f"{name}: kind is {attributes['kind']!r}, but may be {', '.join(_KINDS)}")
    if attributes["kind"] != "set" and x.dtype == dtypes.bool_:
        raise DTypeError(f"{name}: kind {attributes['kind']} does not take bool; only set does")


def _infer_scatter_along(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    x, indices, updates = types
    _check_along("scatter_along_axis", x, indices, attributes)
    _check_kind("scatter_along_axis", x, updates, attributes)
    if updates.shape != indices.shape:
        raise ShapeError(f"scatter_along_axis: updates are {updates}, but the indices are {indices}")
    return (x,)


def _emit_scatter_along(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, indices, updates = operands
    axis, shape = cast(int, attributes["axis"]), tensor(x).static_shape
    total = math.prod(shape)
    clamped = _clamped(b, indices, shape[axis], _index_dtype(total))
    position = _along(b, x, indices, axis, clamped)
    position = b("select", _inside(b, indices, shape[axis]), position, b.full(-1, position))
    flat = b("reshape", x, shape=(total,))
    return (b("reshape", b("scatter", flat, position, updates, axis=0, kind=attributes["kind"]), shape=shape),)


@quiet
def _scatter_along(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, indices, updates = operands
    axis = cast(int, attributes["axis"])
    places = _places(indices.shape)
    places[axis] = clamped(indices, -1, x.shape[axis])
    outside = (places[axis] < 0) | (places[axis] >= x.shape[axis])
    places[axis] = np.where(outside, 0, places[axis])
    flat = sum((p * s for p, s in zip(places, _strides(x.shape), strict=True)), np.zeros(indices.shape, np.int64))
    position = np.where(outside, -1, flat)
    (result,) = _SCATTER.reference((x.reshape(-1), position, updates), {"axis": 0, "kind": attributes["kind"]})
    return (result.reshape(x.shape),)


def _check_nd(name: str, x: TensorType, indices: TensorType, batch: int) -> int:
    """The number of coordinates that each row of ``indices`` holds."""
    check_dtype(name, "the indices operand", indices.dtype, INTEGERS)
    shape, rows = static_shape(name, "x", x), static_shape(name, "indices", indices)
    if not rows or rows[-1] + batch > len(shape) or batch >= len(rows) or shape[:batch] != rows[:batch]:
        raise ShapeError(f"{name}: indices are {indices}, but their last axis must count at most the axes of {x}")
    return rows[-1]


def _infer_gather_nd(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    x, indices = types
    batch = int_of("gather_nd", attributes, "batch_dims", least=0)
    count = _check_nd("gather_nd", x, indices, batch)
    if 0 in x.shape[batch : batch + count] and 0 not in indices.shape[:-1]:
        raise ShapeError(f"gather_nd: {x} is empty where it is indexed: there is nothing to take")
    return (TensorType(x.dtype, (*indices.shape[:-1], *x.shape[batch + count :])),)


def _linear(b: ArrayBuilder, indices: Value, sizes: Sequence[int], dtype: DType) -> Value:
    """Positions in row-major order of the coordinates, clamped, in the last axis of ``indices``."""
    rows = tensor(indices).static_shape[:-1]
    result = b("broadcast", b.constant(0, dtype), shape=rows, dims=())
    parts = split(b, indices, [1] * len(sizes), -1) if len(sizes) else []
    for part, size, stride in zip(parts, sizes, _strides(sizes), strict=True):
        clamped = _clamped(b, b("reshape", part, shape=rows), size, dtype)
        result = b("add", result, _scaled(b, clamped, stride))
    return result


def _emit_gather_nd(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, indices = operands
    batch, shape = cast(int, attributes["batch_dims"]), tensor(x).static_shape
    rows = tensor(indices).static_shape
    sizes = shape[batch : batch + rows[-1]]
    position = _linear(b, indices, sizes, _index_dtype(math.prod(shape)))
    for axis, stride in enumerate(_strides((*shape[:batch], math.prod(sizes)))[:batch]):
        place = b("iota", shape=rows[:-1], axis=axis, dtype=tensor(position).dtype)
        position = b("add", position, _scaled(b, place, stride))
    rest = shape[batch + rows[-1] :]
    return (b("gather", b("reshape", x, shape=(math.prod(shape[: batch + rows[-1]]), *rest)), position, axis=0),)


@quiet
def _gather_nd(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, indices = operands
    batch, count = cast(int, attributes["batch_dims"]), indices.shape[-1]
    shape = (*indices.shape[:-1], *x.shape[batch + count :])
    if 0 in shape:
        return (np.zeros(shape, x.dtype),)
    own = _places(indices.shape[:-1])[:batch]
    found = [clamped(indices[..., i], 0, x.shape[batch + i] - 1) for i in range(count)]
    key: tuple[Any, ...] = (*own, *found)
    return (np.broadcast_to(x[key] if key else x, shape),)


def _infer_scatter_nd(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    x, indices, updates = types
    count = _check_nd("scatter_nd", x, indices, 0)
    _check_kind("scatter_nd", x, updates, attributes)
    if updates.shape != (*indices.shape[:-1], *x.shape[count:]):
        raise ShapeError(f"scatter_nd: updates are {updates}, which do not fit indices {indices} into {x}")
    return (x,)


def _emit_scatter_nd(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, indices, updates = operands
    shape, rows = tensor(x).static_shape, tensor(indices).static_shape
    sizes = shape[: rows[-1]]
    position = _linear(b, indices, sizes, _index_dtype(math.prod(shape)))
    for part, size in zip(split(b, indices, [1] * len(sizes), -1) if sizes else [], sizes, strict=True):
        inside = _inside(b, b("reshape", part, shape=rows[:-1]), size)
        position = b("select", inside, position, b.full(-1, position))
    merged = b("reshape", x, shape=(math.prod(sizes), *shape[rows[-1] :]))
    return (b("reshape", b("scatter", merged, position, updates, axis=0, kind=attributes["kind"]), shape=shape),)


@quiet
def _scatter_nd(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, indices, updates = operands
    count = indices.shape[-1]
    sizes = x.shape[:count]
    position, outside = np.zeros(indices.shape[:-1], np.int64), np.zeros(indices.shape[:-1], np.bool_)
    for i, (size, stride) in enumerate(zip(sizes, _strides(sizes), strict=True)):
        place = clamped(indices[..., i], -1, size)
        outside |= (place < 0) | (place >= size)
        position += place * stride
    merged = x.reshape(math.prod(sizes), *x.shape[count:])
    attributes = {"axis": 0, "kind": attributes["kind"]}
    (result,) = _SCATTER.reference((merged, np.where(outside, -1, position), updates), attributes)
    return (result.reshape(x.shape),)


def around(rng: np.random.Generator, size: int, shape: tuple[int, ...], dtype: DType = dtypes.int32) -> Array:
    """Indices from one below 0 (where signed) to one past ``size``."""
    return np.asarray(rng.integers(-1 if dtype.is_signed else 0, size + 1, shape)).astype(dtype.numpy)


_ALONG: tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...] = (
    ((7,), (4,), 0), ((3, 5, 2), (3, 9, 2), 1), ((3, 5, 2), (2, 4, 1), 0), ((3, 5), (3, 0), 1), ((4, 65), (4, 33), 1),
)  # fmt: skip


def _take_along_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    calls = [sample(values(dtype, rng, x), around(rng, x[axis], chosen), axis=axis) for x, chosen, axis in _ALONG]
    wide = sample(values(dtype, rng, (300, 2)), values(dtypes.int64, rng, (5, 2)), axis=0)
    return [*calls, wide, sample(values(dtype, rng, (300,)), values(dtypes.int8, rng, (65,)), axis=0)]


def _scatter_along_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    return [
        sample(small(dtype, rng, x), around(rng, x[axis], chosen), small(dtype, rng, chosen), axis=axis, kind=kind)
        for kind in (_KINDS if dtype != dtypes.bool_ else ("set",))
        for x, chosen, axis in (_ALONG if kind in ("set", "add") else _ALONG[1:2])
    ]


def _gather_nd_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    cases: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
        ((7,), (4, 1), 0), ((3, 5, 2), (4, 2), 0), ((3, 5, 2), (2, 3, 3), 0), ((3, 5, 2), (3, 4, 1), 1),
        ((2, 3, 4), (2, 3, 1), 2), ((3, 5), (2, 0), 0), ((3, 5), (0, 2), 0),
    ]  # fmt: skip
    return [sample(values(dtype, rng, x), around(rng, 4, chosen), batch_dims=batch) for x, chosen, batch in cases]


def _scatter_nd_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    cases: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((7,), (9, 1)), ((3, 5, 2), (4, 2)), ((3, 5, 2), (2, 3, 3)), ((3, 5), (0, 2)), ((33, 3), (65, 1)),
    ]  # fmt: skip
    return [
        sample(small(dtype, rng, x), around(rng, 4, rows), small(dtype, rng, (*rows[:-1], *x[rows[-1] :])), kind=kind)
        for kind in (_KINDS if dtype != dtypes.bool_ else ("set",))
        for x, rows in (cases if kind in ("set", "add") else cases[1:2])
    ]


SELECTION: tuple[Record, ...] = (
    composite(
        "take_along_axis", "index",
        "Elements of x at indices along an axis, each index standing for its own place on the other axes; clamped.",
        "x indices", _infer_take_along, _take_along, _emit_take_along, _take_along_samples, attributes={"axis": int},
    ),
    composite(
        "scatter_along_axis", "index",
        "A copy of x with updates applied at indices along an axis (see take_along_axis); those outside are dropped.",
        "x indices updates", _infer_scatter_along, _scatter_along, _emit_scatter_along, _scatter_along_samples,
        attributes={"axis": int, "kind": str}, tolerance="reduction",
    ),
    composite(
        "gather_nd", "index",
        "Slices of x at the coordinates in the last axis of indices, clamped; the first batch_dims axes are shared.",
        "x indices", _infer_gather_nd, _gather_nd, _emit_gather_nd, _gather_nd_samples, attributes={"batch_dims": int},
    ),
    composite(
        "scatter_nd", "index",
        "A copy of x with updates applied at the coordinates in the last axis of indices; those outside are dropped.",
        "x indices updates", _infer_scatter_nd, _scatter_nd, _emit_scatter_nd, _scatter_nd_samples,
        attributes={"kind": str}, tolerance="reduction",
    ),
)  # fmt: skip
"""Their records."""
