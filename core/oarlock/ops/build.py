"""What front ends build programs from: NumPy's shape idioms over ArrayBuilder."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import ShapeError
from oarlock.ir import Dim, Value
from oarlock.ops.inference import broadcast_shapes
from oarlock.ops.record import ArrayBuilder, tensor

__all__ = [
    "broadcast_to", "broadcast_together", "expand_dims", "eye", "flatten", "full", "linspace", "moveaxis",
    "normalize_axes", "normalize_axis", "promote_together", "split", "squeeze", "stack", "strided_slice",
]  # fmt: skip


def normalize_axis(axis: int, rank: int) -> int:
    """``axis``, counted from the end when negative, in [0, rank); raises ShapeError outside."""
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is outside [{-rank}, {rank}) of a tensor of rank {rank}")
    return axis % rank


def normalize_axes(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Distinct axes in [0, rank), in order; None means all; raises ShapeError for one outside or named twice."""
    if axes is None:
        return tuple(range(rank))
    given = [axes] if isinstance(axes, int) else axes
    found = [normalize_axis(axis, rank) for axis in given]
    if len(set(found)) != len(found):
        raise ShapeError(f"axes {tuple(given)} name an axis of a tensor of rank {rank} twice")
    return tuple(sorted(found))


def broadcast_to(b: ArrayBuilder, x: Value, shape: tuple[Dim, ...]) -> Value:
    """``x`` broadcast to ``shape`` by NumPy's rules; itself when it has that shape."""
    given = tensor(x).shape
    if given == shape:
        return x
    return b("broadcast", x, shape=shape, dims=tuple(range(len(shape) - len(given), len(shape))))


def broadcast_together(b: ArrayBuilder, *values: Value) -> tuple[Value, ...]:
    """``values`` broadcast to their common shape."""
    shape = broadcast_shapes("broadcast", *(tensor(value).shape for value in values))
    return tuple(broadcast_to(b, value, shape) for value in values)


def promote_together(b: ArrayBuilder, *values: Value) -> tuple[Value, ...]:
    """``values`` converted to their common dtype (``dtypes.promote``)."""
    common = functools.reduce(dtypes.promote, (tensor(value).dtype for value in values))
    return tuple(b.convert(value, common) for value in values)


def full(b: ArrayBuilder, shape: tuple[Dim, ...], dtype: DType, value: float | int | bool) -> Value:
    """A tensor of ``shape`` and ``dtype`` whose elements are all ``value``."""
    return broadcast_to(b, b.constant(value, dtype), shape)


def counted(b: ArrayBuilder, count: int | float, like: Value) -> Value:
    """``count``, which follows from sizes, in the dtype and shape of ``like``: no kernel depends on it."""
    kind = tensor(like)
    dtype = dtypes.float64 if kind.dtype == dtypes.float64 else dtypes.float32
    number = b.create("builtin.number", (), {"value": count, "dtype": dtype}).result
    return broadcast_to(b, b.convert(b("from_scalar", number), kind.dtype), kind.shape)


def expand_dims(b: ArrayBuilder, x: Value, axes: int | Sequence[int]) -> Value:
    """``x`` with dimensions of size 1 at ``axes`` of the result."""
    given = [axes] if isinstance(axes, int) else list(axes)
    rank = tensor(x).rank + len(given)
    new = normalize_axes(given, rank)
    dims = iter(tensor(x).shape)
    return b("reshape", x, shape=tuple(1 if axis in new else next(dims) for axis in range(rank)))


def squeeze(b: ArrayBuilder, x: Value, axes: int | Sequence[int] | None = None) -> Value:
    """``x`` without ``axes``, which must have size 1; None drops all such."""
    shape = tensor(x).shape
    gone = tuple(i for i, d in enumerate(shape) if d == 1) if axes is None else normalize_axes(axes, len(shape))
    for axis in gone:
        if shape[axis] != 1:
            raise ShapeError(f"squeeze: axis {axis} of {tensor(x)} has size {shape[axis]}, not 1")
    return b("reshape", x, shape=tuple(dim for axis, dim in enumerate(shape) if axis not in gone))


def flatten(b: ArrayBuilder, x: Value, axis: int = 0) -> Value:
    """``x`` in two dimensions: those before ``axis`` (in [0, rank]) and those from it on; in one for ``axis`` = 0."""
    shape = tensor(x).shape
    if not 0 <= axis <= len(shape):
        raise ShapeError(f"flatten: axis {axis} is outside [0, {len(shape)}] of {tensor(x)}")
    return b("reshape", x, shape=(_product(shape),) if axis == 0 else (_product(shape[:axis]), _product(shape[axis:])))


def _product(dims: Sequence[Dim]) -> Dim:
    result: Dim = 1
    for dim in dims:
        result = dim * result
    return result


def moveaxis(b: ArrayBuilder, x: Value, source: int, destination: int) -> Value:
    """``x`` with axis ``source`` moved to position ``destination``."""
    rank = tensor(x).rank
    order = [axis for axis in range(rank) if axis != normalize_axis(source, rank)]
    order.insert(normalize_axis(destination, rank), normalize_axis(source, rank))
    return b("transpose", x, permutation=tuple(order))


def stack(b: ArrayBuilder, values: Sequence[Value], axis: int = 0) -> Value:
    """``values`` of one shape joined along a new axis ``axis`` of the result."""
    if not values:
        raise ShapeError("stack: needs at least one tensor")
    place = normalize_axis(axis, tensor(values[0]).rank + 1)
    return b("concat", *(expand_dims(b, value, place) for value in values), axis=place)


def split(b: ArrayBuilder, x: Value, sizes: Sequence[int], axis: int = 0) -> list[Value]:
    """Consecutive parts of ``x`` of ``sizes`` along ``axis``; raises ShapeError when they do not add up."""
    place = normalize_axis(axis, tensor(x).rank)
    if sum(sizes) != tensor(x).shape[place] or any(size < 0 for size in sizes):
        raise ShapeError(f"split: sizes {tuple(sizes)} do not add up to axis {place} of {tensor(x)}")
    bounds = np.cumsum([0, *sizes]).tolist()
    return [_part(b, x, place, start, limit) for start, limit in zip(bounds, bounds[1:], strict=False)]


def _part(b: ArrayBuilder, x: Value, axis: int, start: int, limit: int) -> Value:
    shape = tensor(x).shape
    starts = tuple(start if i == axis else 0 for i in range(len(shape)))
    limits = tuple(limit if i == axis else dim for i, dim in enumerate(shape))
    return b("slice", x, starts=starts, limits=limits, steps=(1,) * len(shape))


def strided_slice(b: ArrayBuilder, x: Value, slices: Sequence[slice]) -> Value:
    """``x[slices]`` by Python's rules, negative steps included; axes beyond ``slices`` are taken whole."""
    shape = tensor(x).shape
    if len(slices) > len(shape):
        raise ShapeError(f"slice: {len(slices)} slices for {tensor(x)}")
    starts, limits, steps, turned = [0] * len(shape), list(shape), [1] * len(shape), []
    for axis, part in enumerate(slices):
        if part in (slice(None), slice(None, None, 1)):
            continue
        first, count, step = span_of(part, _known(x, axis))
        if step < 0:
            turned.append(axis)
            first, step = first + (count - 1) * step, -step
        starts[axis], steps[axis] = (first, step) if count else (0, 1)
        limits[axis] = first + (count - 1) * step + 1 if count else 0
    result = b("slice", x, starts=tuple(starts), limits=tuple(limits), steps=tuple(steps))
    return b("reverse", result, axes=tuple(turned)) if turned else result


def span_of(part: slice, size: int) -> tuple[int, int, int]:
    """(first, count, step) of the positions that ``part`` takes of ``size``, as ``slice.indices`` has them.

    That one reads an ``Extent`` without asking it.
    """
    step = 1 if part.step is None else part.step
    low, high = (0, size) if step > 0 else (-1, size - 1)

    def bound(given: int | None, default: int) -> int:
        return default if given is None else max(low, min(given + size if given < 0 else given, high))

    first, stop = bound(part.start, low if step > 0 else high), bound(part.stop, high if step > 0 else low)
    return first, max(0, -((first - stop) // step)), step


def _known(x: Value, axis: int) -> int:
    dim = tensor(x).shape[axis]
    if not isinstance(dim, int):
        raise ShapeError(f"slice: axis {axis} of {tensor(x)} is symbolic and can only be taken whole: specialise it")
    return dim


def eye(b: ArrayBuilder, rows: int, columns: int, dtype: DType, k: int = 0) -> Value:
    """Ones on diagonal ``k`` (above the main one when positive) of a [rows, columns] tensor, zeros elsewhere."""
    index = functools.partial(b, "iota", shape=(rows, columns), dtype=dtypes.int32)
    column = index(axis=1)
    return b.convert(b("equal", b("add", index(axis=0), b.full(k, column)), column), dtype)


def linspace(b: ArrayBuilder, start: float, stop: float, count: int, dtype: DType, *, endpoint: bool = True) -> Value:
    """``count`` evenly spaced values from ``start`` to ``stop``, which is included if ``endpoint``.

    Formed as start * (1 - t) + stop * t in the dtype (float32 for 16-bit ones), so both ends are met exactly.
    """
    wide = dtype if dtype.bits > 16 else dtypes.float32
    position = b("iota", shape=(count,), axis=0, dtype=wide)
    steps = max(count - 1 if endpoint else count, 1)
    t = b("divide", position, b.full(steps, position))
    rest = b("divide", b("subtract", b.full(steps, position), position), b.full(steps, position))
    line = b("add", b("multiply", b.full(start, rest), rest), b("multiply", b.full(stop, t), t))
    return b.convert(line, dtype)
