"""Searching and choosing: where, arg-extrema, counts, binary search, positions of non-zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from oarlock import dtypes
from oarlock.errors import ShapeError
from oarlock.program.dtype_functions import convert
from oarlock.program.elementwise import Operand, add, as_scalar, equal, less, logical_and, not_equal, on_place, tensors
from oarlock.program.host import host_function
from oarlock.program.manipulation import one_axis
from oarlock.program.tape import Recorded, apply

if TYPE_CHECKING:
    from oarlock.program.tensor import Tensor

__all__ = ["argmax", "argmin", "nonzero", "searchsorted", "where"]


def where(condition: Operand, x1: Operand, x2: Operand, /) -> Tensor:
    """x1 where ``condition`` is true (not 0), else x2; shapes broadcast, dtypes promote."""
    place = next((x._place for x in (condition, x1, x2) if isinstance(x, Recorded)), None)
    chosen = on_place("where", condition, place)
    if not any(isinstance(x, Recorded) for x in (x1, x2)):
        x1 = on_place("where", x1, chosen._place)
    x, y = tensors("where", x1, x2)
    return apply("select", convert(chosen, dtypes.bool_), x, y)


def _arg(name: str, x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    dtype = x._place.default_int
    if x._kind.dtype.kind == "bool":
        x = convert(x, dtypes.int32)
    if axis is None:
        rank = len(x._kind.shape)
        result = apply(name, apply("reshape", x, shape=(x._kind.size,)), axis=0, keepdims=False, dtype=dtype)
        return apply("reshape", result, shape=(1,) * rank) if keepdims else result
    return apply(name, x, axis=one_axis(name, axis, x), keepdims=bool(keepdims), dtype=dtype)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first largest element along ``axis``, or in row-major order of all; NaN counts as largest."""
    return _arg("argmax", x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first smallest element along ``axis``, or in row-major order of all; NaN counts as smallest."""
    return _arg("argmin", x, axis, keepdims)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The positions of the elements that are not 0: one 1-d tensor per dimension. Runs on the host: the size depends
    on the data."""
    if not x._kind.shape:
        raise ShapeError("nonzero: a 0-d tensor has no positions; reshape it to (1,) first")
    return host_function("nonzero", np.nonzero, x, indices=range(len(x._kind.shape)))


def searchsorted(
    x1: Tensor, x2: Tensor, /, *, side: Literal["left", "right"] = "left", sorter: Tensor | None = None
) -> Tensor:
    """Where each element of ``x2`` (any shape) belongs in the sorted 1-d ``x1``, so that it stays sorted.

    ``side``: before (``"left"``) or after equal elements. ``sorter``: indices that sort ``x1``. NaN sorts last.
    """
    if side not in ("left", "right"):
        raise ShapeError(f"searchsorted: side is {side!r}; use 'left' or 'right'")
    values, wanted = tensors("searchsorted", x1, x2)
    if len(values._kind.shape) != 1:
        raise ShapeError(f"searchsorted: x1 has shape {values._kind.shape}; it must have one dimension")
    if sorter is not None:
        values = apply("gather", values, sorter, axis=0)
    count = values._kind.shape[0]
    shape, place = wanted._kind.shape, wanted._place
    low = apply("broadcast", as_scalar(place, dtypes.int32, 0), shape=shape, dims=())
    high = apply("broadcast", as_scalar(place, dtypes.int32, count), shape=shape, dims=())
    for _ in range(count.bit_length()):
        middle = apply("right_shift", add(low, high), as_scalar(place, dtypes.int32, 1))
        found = apply("gather", values, middle, axis=0)
        before = _sorts_before(found, wanted) if side == "left" else ~_sorts_before(wanted, found)
        before = logical_and(before, less(low, high))
        low = where(before, add(middle, 1), low)
        high = where(before, high, middle)
    return convert(low, place.default_int)


def _sorts_before(x: Tensor, y: Tensor) -> Tensor:
    """Whether x stands before y in sorted order, in which NaN is last."""
    smaller = less(x, y)
    if not x._kind.dtype.is_float:
        return smaller
    return smaller | logical_and(equal(x, x), not_equal(y, y))
