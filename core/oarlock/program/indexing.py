"""Reading elements: x[...] with integers, slices, ellipsis, None, index arrays and masks; take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from oarlock import dtypes
from oarlock.errors import BoundsError, DTypeError, ShapeError
from oarlock.ir.extents import Extent
from oarlock.ops.build import span_of
from oarlock.program.creation import asarray, iota
from oarlock.program.dtype_functions import convert
from oarlock.program.elementwise import add, as_scalar, less, multiply, positive
from oarlock.program.host import host_function
from oarlock.program.manipulation import broadcast_shape, broadcast_to, flip, moveaxis, one_axis, permute_dims
from oarlock.program.searching import where
from oarlock.program.tape import Recorded, apply, thread_state

if TYPE_CHECKING:
    from oarlock.program.tensor import Tensor

__all__ = ["Span", "expand_key", "getitem", "is_advanced", "take", "take_along_axis"]

Item: TypeAlias = Any
"""One part of a key: int, slice, None, or an index tensor."""

PATTERN_LIMIT = 16_384


@dataclass(frozen=True, slots=True)
class Span:
    """What a key takes of one dimension: ``count`` elements from ``start``, ``step`` (> 0) apart.

    ``backwards``: in reverse. ``drops``: an integer, which removes the dimension.
    """

    start: int
    count: int
    step: int
    backwards: bool = False
    drops: bool = False


def expand_key(x: Tensor, key: Any) -> list[Item]:
    """The parts of ``key``, with the ellipsis written out, so that every dimension of x is named.

    NumPy arrays and lists become index tensors, checked against the sizes; masks stay masks. Raises BoundsError for
    an index outside, or for too many of them.
    """
    parts = [_index_part(part) for part in (key if isinstance(key, tuple) else (key,))]
    shape = x._kind.shape
    used = sum(_dimensions(part) for part in parts)
    if used > len(shape):
        raise BoundsError(f"too many indices: shape {shape} has {len(shape)} dimensions, {used} were indexed")
    ellipses = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(ellipses) > 1:
        raise BoundsError("an index may hold one ellipsis (...) only")
    at = ellipses[0] if ellipses else len(parts)
    parts[at : at + len(ellipses)] = [slice(None)] * (len(shape) - used)
    axis = 0
    for i, part in enumerate(parts):
        if isinstance(part, np.ndarray):
            parts[i] = _host_index(x, axis, part)
        axis += _dimensions(part)
    return parts


def _dimensions(part: Item) -> int:
    """How many dimensions of x a part of a key names."""
    if part is None or part is Ellipsis:
        return 0
    if isinstance(part, Recorded):
        return len(part._kind.shape) if part._kind.dtype.kind == "bool" else 1
    return part.ndim if isinstance(part, np.ndarray) and part.dtype.kind == "b" else 1


def _index_part(part: Any) -> Item:
    """A part of a key as the user gave it: checked, with lists as NumPy arrays and numbers as ints."""
    if part is None or part is Ellipsis or isinstance(part, slice):
        return part
    if isinstance(part, Recorded):
        if part._kind.dtype.is_float:
            raise DTypeError(f"an index is {part._kind.dtype}; it must be an integer, or bool for a mask")
        return part
    if isinstance(part, (bool, np.bool_, list, np.ndarray)):
        array = np.asarray(part)
        if array.size == 0 and isinstance(part, list):
            array = array.astype(np.int32)
        if array.dtype.kind not in "biu":
            raise DTypeError(f"an index is {array.dtype}; it must hold integers, or bool for a mask")
        return array
    if hasattr(part, "__index__"):
        return part.__index__()
    raise DTypeError(f"{type(part).__name__} is no index: use integers, slices, ..., None, integer tensors or masks")


def _host_index(x: Tensor, axis: int, array: np.ndarray[Any, Any]) -> Tensor:
    """An index array that the host knows as a tensor; raises BoundsError for integers outside dimension ``axis``."""
    if array.dtype.kind in "iu":
        size = x._kind.shape[axis]
        outside = array[(array < -size) | (array >= size)]
        if outside.size:
            raise BoundsError(f"index {outside.flat[0]} is outside dimension {axis} of shape {x._kind.shape}")
        array = array.astype(x._place.default_int.numpy)
    return asarray(array, device=x._place.device)


def is_advanced(parts: Sequence[Item]) -> bool:
    """Whether a key has index arrays or masks."""
    return any(isinstance(part, Recorded) for part in parts)


def spans(x: Tensor, parts: Sequence[Item]) -> list[Span]:
    """What a key without index arrays takes of each dimension of x; raises BoundsError for an integer outside."""
    found: list[Span] = []
    for axis, part in enumerate(p for p in parts if p is not None):
        size = x._kind.shape[axis]
        if isinstance(part, slice):
            found.append(_slice_span(part, size))
            continue
        if not -size <= part < size:
            raise BoundsError(f"index {part} is outside dimension {axis} of shape {x._kind.shape}")
        found.append(Span(part % size, 1, 1, drops=True))
    return found


def _slice_span(part: slice, size: int) -> Span:
    bounds = [v if v is None or isinstance(v, Extent) else v.__index__() for v in (part.start, part.stop, part.step)]
    if bounds[2] == 0:
        raise BoundsError("a slice has step 0")
    first, count, step = span_of(slice(*bounds), size)
    if count == 0:
        return Span(0, 0, 1)
    if count == 1:
        return Span(first, 1, 1)
    if step < 0:
        return Span(first + (count - 1) * step, count, -step, backwards=True)
    return Span(first, count, step)


def result_shape(parts: Sequence[Item], taken: Sequence[Span]) -> tuple[int, ...]:
    """The shape that a key without index arrays gives."""
    shape: list[int] = []
    axes = iter(taken)
    for part in parts:
        if part is None:
            shape.append(1)
            continue
        span = next(axes)
        if not span.drops:
            shape.append(span.count)
    return tuple(shape)


def getitem(x: Tensor, key: Any) -> Tensor:
    """x[key] as NumPy has it, always a value of its own. A mask makes a size that depends on data: its positions are
    worked out on the host. Index tensors outside the range are clamped to it; indices known to the host are checked."""
    parts = expand_key(x, key)
    if is_advanced(parts):
        return _advanced(x, parts)
    taken = spans(x, parts)
    result = _flipped(_take_spans(x, taken), [i for i, span in enumerate(taken) if span.backwards])
    shape = result_shape(parts, taken)
    if result._kind.shape != shape:
        return apply("reshape", result, shape=shape)
    return positive(x) if result is x else result


def _flipped(x: Tensor, axes: Sequence[int]) -> Tensor:
    return flip(x, axis=tuple(axes)) if axes else x


def _take_spans(x: Tensor, taken: Sequence[Span]) -> Tensor:
    """The elements that ``taken`` names, in rising order, all dimensions kept.

    Starts that were seen with another value before, for the same shapes, enter as run-time scalars: a loop over
    x[i] or x[i:i+n] is one program. The first start of its kind is a static slice, which costs less.
    """
    shape = x._kind.shape
    if all(span.count == size for span, size in zip(taken, shape, strict=True)):
        return x
    fixed = [True] * len(taken) if thread_state().tracing else _fixed_starts(x, taken)
    starts, limits, steps = [], [], []
    for span, size, static in zip(taken, shape, fixed, strict=True):
        starts.append(span.start if static else 0)
        steps.append(span.step if static else 1)
        limits.append(span.start + (span.count - 1) * span.step + 1 if static and span.count else 0 if static else size)
    if any(fixed):
        x = apply("slice", x, starts=tuple(starts), limits=tuple(limits), steps=tuple(steps))
    for axis, (span, static) in enumerate(zip(taken, fixed, strict=True)):
        if not static:
            x = apply("gather", x, moving_indices(x, span), axis=axis)
    return x


def moving_indices(x: Tensor, span: Span) -> Tensor:
    """The positions of ``span`` as a 1-d tensor, its start a run-time scalar."""
    counted = iota(x._place, (span.count,), 0)
    if span.step != 1:
        counted = multiply(counted, as_scalar(x._place, counted._kind.dtype, span.step))
    return add(counted, as_scalar(x._place, counted._kind.dtype, span.start))


def _fixed_starts(x: Tensor, taken: Sequence[Span]) -> list[bool]:
    """For each dimension, whether its start has been the same each time that this pattern was used."""
    varying = x._place.varying
    pattern = (x._kind, *[(span.count, span.step) for span in taken])
    starts = tuple(span.start for span in taken)
    before = varying.get(pattern)
    if before is None:
        if len(varying) >= PATTERN_LIMIT:
            varying.clear()
        varying[pattern] = starts
        return [True] * len(starts)
    merged = tuple(old if old == new else None for old, new in zip(before, starts, strict=True))
    varying[pattern] = merged
    return [start is not None for start in merged]


def _advanced(x: Tensor, parts: Sequence[Item]) -> Tensor:
    """x indexed with index arrays: slices first, then all arrays together, broadcast against each other."""
    x, parts = _without_masks(x, parts)
    basic = [slice(None) if isinstance(p, (int, Recorded)) else p for p in parts]
    where_from = [i for i, p in enumerate(parts) if isinstance(p, (int, Recorded))]
    arrays = [as_index(x, axis, parts[i]) for axis, i in _axes_of(parts, where_from)]
    x = getitem(x, tuple(basic))
    if len(where_from) == 1:
        return apply("gather", x, arrays[0], axis=where_from[0])
    rank = len(x._kind.shape)
    rest = [a for a in range(rank) if a not in where_from]
    sizes = [x._kind.shape[a] for a in where_from]
    x = permute_dims(x, (*where_from, *rest))
    x = apply("reshape", x, shape=(math.prod(sizes), *x._kind.shape[len(sizes) :]))
    result = apply("gather", x, flat_index(arrays, sizes), axis=0)
    adjacent = where_from == list(range(where_from[0], where_from[-1] + 1))
    if not adjacent or where_from[0] == 0:
        return result
    made = len(result._kind.shape) - len(rest)
    return moveaxis(result, range(made), range(where_from[0], where_from[0] + made))


def _axes_of(parts: Sequence[Item], positions: Sequence[int]) -> list[tuple[int, int]]:
    """(dimension of x, position in the key) for each of ``positions``."""
    axes = {}
    axis = 0
    for i, part in enumerate(parts):
        axes[i] = axis
        axis += part is not None
    return [(axes[i], i) for i in positions]


def as_index(x: Tensor, axis: int, index: int | Tensor) -> Tensor:
    """An index into dimension ``axis`` of x as a tensor of positions >= 0."""
    size = x._kind.shape[axis]
    if isinstance(index, int):
        if not -size <= index < size:
            raise BoundsError(f"index {index} is outside dimension {axis} of shape {x._kind.shape}")
        return as_scalar(x._place, dtypes.int32 if size <= 2**31 else dtypes.int64, index % size)
    return wrapped(index, size)


def wrapped(index: Tensor, size: int) -> Tensor:
    """Indices with negative ones counted from the end."""
    dtype = index._kind.dtype
    if not dtype.is_integer:
        raise DTypeError(f"an index is {dtype}; it must be an integer")
    if dtype.kind == "uint":
        return index
    index = convert(index, dtypes.int32) if dtype.bits < 32 else index
    return where(less(index, 0), add(index, size), index)


def flat_index(arrays: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """Positions in row-major order of ``sizes`` from one index array per dimension; they broadcast."""
    shape = broadcast_shape("index", *[a._kind.shape for a in arrays])
    small = math.prod(sizes) <= 2**31
    total: Tensor | None = None
    for array, size in zip(arrays, sizes, strict=True):
        limit = as_scalar(array._place, array._kind.dtype, max(size - 1, 0)) if _can_hold(array, size) else None
        safe = array if limit is None else apply("minimum", array, limit)
        position = convert(safe, dtypes.int32 if small else dtypes.int64)
        if array._kind.dtype.kind != "uint":
            position = apply("maximum", position, as_scalar(array._place, position._kind.dtype, 0))
        total = position if total is None else add(multiply(total, size), position)
    assert total is not None
    return broadcast_to(total, shape)


def _can_hold(array: Tensor, size: int) -> bool:
    dtype = array._kind.dtype
    return bool(size - 1 < 2 ** (dtype.bits - (dtype.kind == "int")))


def _without_masks(x: Tensor, parts: Sequence[Item]) -> tuple[Tensor, list[Item]]:
    """Masks replaced by the positions of their true elements, found on the host; a 0-d mask by a new dimension."""
    result: list[Item] = []
    axis = 0
    for part in parts:
        if isinstance(part, Recorded) and part._kind.dtype.kind == "bool":
            shape = part._kind.shape
            own = x._kind.shape[axis : axis + len(shape)]
            if shape != own:
                raise BoundsError(f"a mask of shape {shape} does not fit dimensions of sizes {own}")
            if not shape:
                x = apply("reshape", x, shape=(*x._kind.shape[:axis], 1, *x._kind.shape[axis:]))
                result.extend(_positions(apply("reshape", part, shape=(1,))))  # type: ignore[arg-type]
            else:
                result.extend(_positions(part))  # type: ignore[arg-type]
            axis += max(len(shape), 1)
            continue
        result.append(part)
        axis += part is not None
    return x, result


def _positions(mask: Tensor) -> tuple[Tensor, ...]:
    return host_function("mask", np.nonzero, mask, indices=range(len(mask._kind.shape)))


def take(x: Tensor, indices: Any, /, *, axis: int | None = None) -> Tensor:
    """The slices of x along ``axis`` at ``indices`` (any shape); negative ones count from the end.

    ``axis`` may be left out for a 1-d x. Index tensors outside the range are clamped to it.
    """
    if axis is None:
        if len(x._kind.shape) != 1:
            raise ShapeError(f"take: x has shape {x._kind.shape}; only with one dimension may axis be left out")
        axis = 0
    axis = one_axis("take", axis, x)
    index = indices if isinstance(indices, Recorded) else _host_index(x, axis, np.asarray(indices, dtype=np.int64))
    return apply("gather", x, wrapped(index, x._kind.shape[axis]), axis=axis)  # type: ignore[arg-type]


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """result[..., i, ...] = x[..., indices[..., i, ...], ...] along ``axis``; the other dimensions broadcast."""
    axis = one_axis("take_along_axis", axis, x)
    if len(indices._kind.shape) != len(x._kind.shape):
        raise ShapeError(f"take_along_axis: shapes {x._kind.shape} and {indices._kind.shape} differ in rank")
    x, indices = moveaxis(x, axis, -1), moveaxis(indices, axis, -1)
    size, count = x._kind.shape[-1], indices._kind.shape[-1]
    lead = broadcast_shape("take_along_axis", x._kind.shape[:-1], indices._kind.shape[:-1])
    x, indices = broadcast_to(x, (*lead, size)), broadcast_to(indices, (*lead, count))
    rows = math.prod(lead)
    flat = apply("reshape", x, shape=(rows * size,))
    columns = wrapped(apply("reshape", indices, shape=(rows, count)), size)
    positions = flat_index([iota(x._place, (rows, 1), 0), columns], [rows, size])
    result = apply("gather", flat, positions, axis=0)
    return moveaxis(apply("reshape", result, shape=(*lead, count)), -1, axis)
