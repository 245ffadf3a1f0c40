"""Changing shapes: broadcasting, reshaping, joining, splitting, repeating, reordering axes."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from oarlock.errors import BoundsError, DTypeError, ShapeError
from oarlock.ir.extents import Extent
from oarlock.program.dtype_functions import convert, result_type
from oarlock.program.elementwise import positive
from oarlock.program.host import host_function, put
from oarlock.program.tape import Recorded, apply

if TYPE_CHECKING:
    from oarlock.program.tensor import Tensor

__all__ = [
    "broadcast_arrays", "broadcast_shape", "broadcast_to", "concat", "expand_dims", "flip", "matrix_transpose",
    "moveaxis", "one_axis", "permute_dims", "repeat", "reshape", "roll", "shape_of", "squeeze", "stack", "swapaxes",
    "tile", "unstack",
]  # fmt: skip


def one_axis(name: str, axis: int, x: Tensor, extra: int = 0) -> int:
    """``axis`` counted from the front; raises BoundsError when x (with ``extra`` dimensions more) has none such."""
    rank = len(x._kind.shape) + extra
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise DTypeError(f"{name}: axis is {axis!r}; it must be an integer")
    axis = axis.__index__()
    if not -rank <= axis < rank:
        raise BoundsError(f"{name}: axis {axis} is outside [{-rank}, {rank}) of shape {x._kind.shape}")
    return axis % rank if rank else 0


def shape_of(name: str, shape: int | Sequence[int]) -> tuple[int, ...]:
    """A shape given by a user as a tuple of ints; raises ShapeError for negative or other sizes."""
    sizes = shape if isinstance(shape, Sequence) else (shape,)
    try:
        result = tuple(size if isinstance(size, Extent) else size.__index__() for size in sizes)
    except AttributeError:
        raise ShapeError(f"{name}: {shape!r} is no shape: give an integer or a tuple of integers") from None
    if builtins.any(size < 0 for size in result):
        raise ShapeError(f"{name}: shape {result} has a negative size")
    return result


def broadcast_shape(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that ``shapes`` broadcast to; raises ShapeError when they do not."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(f"{name}: shapes {', '.join(map(str, shapes))} do not broadcast") from None


def broadcast_to(x: Tensor, /, shape: int | Sequence[int]) -> Tensor:
    """x repeated along new leading dimensions and along those of size 1, up to ``shape``."""
    wanted = shape_of("broadcast_to", shape)
    own = x._kind.shape
    if own == wanted:
        return positive(x)
    if broadcast_shape("broadcast_to", own, wanted) != wanted:
        raise ShapeError(f"broadcast_to: shape {own} does not broadcast to {wanted}")
    lead = len(wanted) - len(own)
    return apply("broadcast", x, shape=wanted, dims=tuple(range(lead, len(wanted))))


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """All of them broadcast to one shape."""
    shape = broadcast_shape("broadcast_arrays", *[x._kind.shape for x in arrays])
    return [broadcast_to(x, shape) for x in arrays]


def reshape(x: Tensor, /, shape: int | Sequence[int], *, copy: bool | None = None) -> Tensor:
    """The same elements in row-major order in another shape; one size may be -1, which is worked out.

    ``copy`` makes no difference, since tensors are values.
    """
    sizes = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    if sizes.count(-1) == 1:
        rest = math.prod(shape_of("reshape", [s for s in sizes if s != -1]))
        if rest == 0 or x._kind.size % rest:
            raise ShapeError(f"reshape: shape {x._kind.shape} does not fit into {sizes}")
        sizes = tuple(x._kind.size // rest if s == -1 else s for s in sizes)
    return apply("reshape", x, shape=shape_of("reshape", sizes))


def expand_dims(x: Tensor, /, axis: int | Sequence[int] = 0) -> Tensor:
    """x with dimensions of size 1 put in, at the positions ``axis`` of the result."""
    wanted = axis if isinstance(axis, Sequence) else (axis,)
    axes = [one_axis("expand_dims", a, x, len(wanted)) for a in wanted]
    if len(set(axes)) != len(axes):
        raise ShapeError(f"expand_dims: axis {axis} names a dimension twice")
    sizes = iter(x._kind.shape)
    rank = len(x._kind.shape) + len(axes)
    return apply("reshape", x, shape=tuple(1 if i in axes else next(sizes) for i in range(rank)))


def squeeze(x: Tensor, /, axis: int | Sequence[int]) -> Tensor:
    """x without the dimensions ``axis``, which must have size 1."""
    axes = {one_axis("squeeze", a, x) for a in (axis if isinstance(axis, Sequence) else (axis,))}
    for a in axes:
        if x._kind.shape[a] != 1:
            raise ShapeError(f"squeeze: dimension {a} of shape {x._kind.shape} has size {x._kind.shape[a]}, not 1")
    return apply("reshape", x, shape=tuple(d for i, d in enumerate(x._kind.shape) if i not in axes))


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """x with its dimensions in the order ``axes``."""
    order = tuple(one_axis("permute_dims", a, x) for a in axes)
    if sorted(order) != list(range(len(x._kind.shape))):
        raise ShapeError(f"permute_dims: axes {tuple(axes)} do not name each dimension of shape {x._kind.shape} once")
    return positive(x) if order == tuple(range(len(order))) else apply("transpose", x, permutation=order)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """x with its last two dimensions exchanged."""
    rank = len(x._kind.shape)
    if rank < 2:
        raise ShapeError(f"matrix_transpose: shape {x._kind.shape} has fewer than two dimensions")
    return permute_dims(x, (*range(rank - 2), rank - 1, rank - 2))


def swapaxes(x: Tensor, axis1: int, axis2: int, /) -> Tensor:
    """x with two dimensions exchanged."""
    order = list(range(len(x._kind.shape)))
    a, b = one_axis("swapaxes", axis1, x), one_axis("swapaxes", axis2, x)
    order[a], order[b] = order[b], order[a]
    return permute_dims(x, order)


def moveaxis(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
    """x with the dimensions ``source`` moved to the positions ``destination``; the others keep their order."""
    sources = [one_axis("moveaxis", a, x) for a in (source if isinstance(source, Sequence) else (source,))]
    places = [
        one_axis("moveaxis", a, x) for a in (destination if isinstance(destination, Sequence) else (destination,))
    ]
    if len(sources) != len(places) or len(set(sources)) != len(sources) or len(set(places)) != len(places):
        raise ShapeError(f"moveaxis: source {source} and destination {destination} do not pair up")
    order = [a for a in range(len(x._kind.shape)) if a not in sources]
    for position, axis in sorted(zip(places, sources, strict=True)):
        order.insert(position, axis)
    return permute_dims(x, order)


def flip(x: Tensor, /, *, axis: int | Sequence[int] | None = None) -> Tensor:
    """x backwards along ``axis`` (one, several, or all)."""
    rank = len(x._kind.shape)
    wanted = range(rank) if axis is None else axis if isinstance(axis, Sequence) else (axis,)
    axes = tuple(sorted({one_axis("flip", a, x) for a in wanted}))
    return apply("reverse", x, axes=axes) if axes else positive(x)


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """The tensors one after another along ``axis``, or flattened where it is None; dtypes promote."""
    if not arrays:
        raise ShapeError("concat: there is nothing to put together: give at least one tensor")
    dtype = result_type(*arrays)
    parts = [convert(x, dtype) for x in arrays]
    if axis is None:
        parts, axis = [reshape(x, (-1,)) if x._kind.size else reshape(x, (0,)) for x in parts], 0
    if len(parts) == 1:
        one_axis("concat", axis, parts[0])
        return positive(parts[0])
    return apply("concat", *parts, axis=one_axis("concat", axis, parts[0]))


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """The tensors, all of one shape, along a new dimension at ``axis``."""
    if not arrays:
        raise ShapeError("stack: there is nothing to put together: give at least one tensor")
    shapes = [x._kind.shape for x in arrays]
    if builtins.any(shape != shapes[0] for shape in shapes):
        raise ShapeError(f"stack: shapes {', '.join(map(str, sorted(set(shapes))))} differ")
    axis = one_axis("stack", axis, arrays[0], 1)
    return concat([expand_dims(x, axis=axis) for x in arrays], axis=axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along ``axis``, without that dimension."""
    axis = one_axis("unstack", axis, x)
    shape = x._kind.shape
    if not shape:
        raise ShapeError("unstack: a 0-d tensor has no dimension to split")
    rest = shape[:axis] + shape[axis + 1 :]
    parts = []
    for i in range(shape[axis]):
        starts = tuple(i if a == axis else 0 for a in range(len(shape)))
        limits = tuple(i + 1 if a == axis else d for a, d in enumerate(shape))
        part = apply("slice", x, starts=starts, limits=limits, steps=(1,) * len(shape))
        parts.append(apply("reshape", part, shape=rest))
    return tuple(parts)


def roll(x: Tensor, /, shift: int | Sequence[int], *, axis: int | Sequence[int] | None = None) -> Tensor:
    """x moved on by ``shift`` along ``axis``; what leaves at the end comes in at the front. None: over all of it."""
    if axis is None:
        if isinstance(shift, Sequence):
            raise ShapeError("roll: several shifts need as many axes")
        flat = apply("reshape", x, shape=(x._kind.size,))
        return apply("reshape", roll(flat, shift, axis=0), shape=x._kind.shape)
    axes = axis if isinstance(axis, Sequence) else (axis,)
    shifts = shift if isinstance(shift, Sequence) else (shift,) * len(axes)
    if len(axes) != len(shifts):
        raise ShapeError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    for by, along in zip(shifts, axes, strict=True):
        position = one_axis("roll", along, x)
        size = x._kind.shape[position]
        by = by % size if size else 0
        if by:
            lead = (slice(None),) * position
            x = concat([x[(*lead, slice(size - by, None))], x[(*lead, slice(None, size - by))]], axis=position)
    return positive(x)


def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """x repeated as a whole ``repetitions[i]`` times along dimension i; the shorter shape gets leading ones."""
    times = shape_of("tile", repetitions)
    rank = builtins.max(len(times), len(x._kind.shape))
    shape = (1,) * (rank - len(x._kind.shape)) + x._kind.shape
    times = (1,) * (rank - len(times)) + times
    spread = tuple(n for pair in zip(times, shape, strict=True) for n in pair)
    wide = apply("broadcast", apply("reshape", x, shape=shape), shape=spread, dims=tuple(range(1, 2 * rank, 2)))
    return apply("reshape", wide, shape=tuple(t * d for t, d in zip(times, shape, strict=True)))


def repeat(x: Tensor, repeats: int | Sequence[int] | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Each element (or slice along ``axis``) of x ``repeats`` times in a row.

    One number per element may be given; when that is a tensor, it is read on the host, since the size depends on it.
    """
    if axis is None:
        x, axis = apply("reshape", x, shape=(x._kind.size,)), 0
    axis = one_axis("repeat", axis, x)
    shape = x._kind.shape
    if isinstance(repeats, int):
        times = shape_of("repeat", repeats)[0]
        spread = (*shape[: axis + 1], times, *shape[axis + 1 :])
        dims = tuple(i for i in range(len(spread)) if i != axis + 1)
        wide = apply("broadcast", x, shape=spread, dims=dims)
        return apply("reshape", wide, shape=(*shape[:axis], shape[axis] * times, *shape[axis + 1 :]))
    return _repeat_each(x, repeats, axis)


def _repeat_each(x: Tensor, repeats: Any, axis: int) -> Tensor:
    size = x._kind.shape[axis]

    def positions(counts: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any]]:
        if counts.dtype.kind not in "iu":
            raise DTypeError(f"repeat: repeats are {counts.dtype}; they must be integers")
        if counts.ndim > 1 or counts.size not in (1, size) or (counts < 0).any():
            raise ShapeError(f"repeat: repeats must be one number >= 0, or {size} of them; got shape {counts.shape}")
        return (np.repeat(np.arange(size, dtype=np.int32), counts),)

    if isinstance(repeats, Recorded):
        (indices,) = host_function("repeat", positions, repeats)  # type: ignore[arg-type]
    else:
        indices = put(x._place, positions(np.asarray(repeats))[0])
    return apply("gather", x, indices, axis=axis)
