"""Writing elements: x[...] = v makes a new version of x, by choice or scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oarlock.errors import DTypeError, ShapeError
from oarlock.program.creation import asarray, iota
from oarlock.program.dtype_functions import convert
from oarlock.program.elementwise import as_scalar, equal, floor_divide, greater_equal, less, multiply, subtract
from oarlock.program.indexing import (
    Item,
    Span,
    as_index,
    expand_key,
    getitem,
    is_advanced,
    result_shape,
    spans,
)
from oarlock.program.manipulation import broadcast_to, flip
from oarlock.program.searching import where
from oarlock.program.tape import Recorded, apply

if TYPE_CHECKING:
    from oarlock.program.tensor import Tensor

__all__ = ["with_item"]


def with_item(x: Tensor, key: Any, value: Any) -> Tensor:
    """x with x[key] replaced by ``value``, which broadcasts and takes the dtype of x.

    Raises DTypeError for floats into integers or bool, ShapeError when the value does not broadcast.
    """
    parts = expand_key(x, key)
    new = _as_value(x, value)
    if not is_advanced(parts):
        return _with_spans(x, parts, new)
    masks = [p for p in parts if isinstance(p, Recorded) and p._kind.dtype.kind == "bool"]
    rest = [p for p in parts if not isinstance(p, Recorded)]
    if len(masks) == 1 and all(p == slice(None) for p in rest) and parts[0] is masks[0]:
        mask = masks[0]
        trailing = len(x._kind.shape) - len(mask._kind.shape)
        if len(new._kind.shape) <= trailing and mask._kind.shape == x._kind.shape[: len(mask._kind.shape)]:
            wide = apply("reshape", mask, shape=(*mask._kind.shape, *(1,) * trailing))
            _check_fits(new._kind.shape, x._kind.shape[len(mask._kind.shape) :])
            return where(wide, new, x)
    return _with_indices(x, parts, new)


def _as_value(x: Tensor, value: Any) -> Tensor:
    """``value`` in the dtype and place of x."""
    wanted = x._kind.dtype
    if isinstance(value, (bool, int, float)):
        if isinstance(value, float) and not wanted.is_float:
            raise DTypeError(f"cannot put {value} into a tensor of {wanted}: convert one of them first")
        return as_scalar(x._place, wanted, value)
    new: Tensor = value if isinstance(value, Recorded) else asarray(value, device=x._place.device)  # type: ignore[assignment]
    own = new._kind.dtype
    if (own.is_float and not wanted.is_float) or (wanted.kind == "bool" and own.kind != "bool"):
        raise DTypeError(f"cannot put {own} values into a tensor of {wanted}: convert one of them first")
    return convert(new, wanted)


def _check_fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    lead = max(len(shape) - len(wanted), 0)
    aligned = zip(reversed(shape[lead:]), reversed(wanted), strict=False)
    if any(d != 1 for d in shape[:lead]) or any(d not in (1, size) for d, size in aligned):
        raise ShapeError(f"a value of shape {shape} cannot be put into a place of shape {wanted}")


def _with_spans(x: Tensor, parts: Sequence[Item], new: Tensor) -> Tensor:
    """x where the key does not reach, the value where it does: one choice per element, starts at run time."""
    taken = spans(x, parts)
    _check_fits(new._kind.shape, result_shape(parts, taken))
    if any(span.count == 0 for span in taken):
        return x
    new = _aligned(new, parts, taken)
    inside: Tensor | None = None
    for axis, span in enumerate(taken):
        size = x._kind.shape[axis]
        if span.count == size:
            continue
        local, reached = _reach(x, axis, span)
        if new._kind.shape[axis] > 1:
            new = apply("gather", new, local, axis=axis)
        inside = reached if inside is None else apply("bitwise_and", inside, reached)
    return broadcast_to(new, x._kind.shape) if inside is None else where(inside, new, x)


def _aligned(new: Tensor, parts: Sequence[Item], taken: Sequence[Span]) -> Tensor:
    """The value with one dimension per dimension of x, in rising order of positions."""
    sizes = list(new._kind.shape[max(len(new._kind.shape) - len(result_shape(parts, taken)), 0) :])
    sizes = [1] * (len(result_shape(parts, taken)) - len(sizes)) + sizes
    kept = iter(sizes)
    shape, axes = [], iter(taken)
    for part in parts:
        if part is None:
            next(kept)
            continue
        shape.append(1 if next(axes).drops else next(kept))
    new = apply("reshape", new, shape=tuple(shape))
    backwards = tuple(i for i, span in enumerate(taken) if span.backwards and shape[i] > 1)
    return flip(new, axis=backwards) if backwards else new


def _reach(x: Tensor, axis: int, span: Span) -> tuple[Tensor, Tensor]:
    """For each position of dimension ``axis``: its number in the span (1-d), and whether the span has it (aligned)."""
    size, rank = x._kind.shape[axis], len(x._kind.shape)
    place = x._place
    positions = iota(place, (size,), 0)
    dtype = positions._kind.dtype
    start = as_scalar(place, dtype, span.start)
    if span.count == 1:
        reached = equal(positions, start)
        local = positions
    else:
        distance = subtract(positions, start)
        step = as_scalar(place, dtype, span.step)
        local = distance if span.step == 1 else floor_divide(distance, step)
        reached = apply("bitwise_and", greater_equal(distance, 0), less(local, span.count))
        if span.step != 1:
            reached = apply("bitwise_and", reached, equal(multiply(local, step), distance))
    shape = tuple(size if i == axis else 1 for i in range(rank))
    return local, apply("reshape", reached, shape=shape)


def _with_indices(x: Tensor, parts: Sequence[Item], new: Tensor) -> Tensor:
    """x with elements at index arrays replaced; where one is named twice the last value stays."""
    arrays = [i for i, p in enumerate(parts) if isinstance(p, Recorded)]
    plain = all(p == slice(None) for i, p in enumerate(parts) if i not in arrays)
    if len(arrays) == 1 and plain and parts[arrays[0]]._kind.dtype.kind != "bool":
        axis = arrays[0]
        index = as_index(x, axis, parts[axis])
        shape = x._kind.shape
        wanted = (*shape[:axis], *index._kind.shape, *shape[axis + 1 :])
        _check_fits(new._kind.shape, wanted)
        return apply("scatter", x, index, _spread(new, wanted), axis=axis, kind="set")
    numbered = apply("reshape", iota(x._place, (x._kind.size,), 0), shape=x._kind.shape)
    positions = getitem(numbered, tuple(parts))
    _check_fits(new._kind.shape, positions._kind.shape)
    count = positions._kind.size
    flat = apply(
        "scatter",
        apply("reshape", x, shape=(x._kind.size,)),
        apply("reshape", positions, shape=(count,)),
        apply("reshape", _spread(new, positions._kind.shape), shape=(count,)),
        axis=0,
        kind="set",
    )
    return apply("reshape", flat, shape=x._kind.shape)


def _spread(new: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The value broadcast to ``shape``, without surplus leading dimensions."""
    lead = max(len(new._kind.shape) - len(shape), 0)
    if lead:
        new = apply("reshape", new, shape=new._kind.shape[lead:])
    return broadcast_to(new, shape)
