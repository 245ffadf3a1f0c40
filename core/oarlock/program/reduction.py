"""Reductions over axes, cumulative sums and products, differences."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import DTypeError, ShapeError
from oarlock.program.dtype_functions import as_dtype, as_float, convert
from oarlock.program.elementary import sqrt
from oarlock.program.elementwise import subtract
from oarlock.program.manipulation import concat, one_axis
from oarlock.program.tape import apply, scalar

if TYPE_CHECKING:
    from oarlock.program.tensor import Tensor

__all__ = [
    "Axis", "all", "any", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod",
    "std", "sum", "var",
]  # fmt: skip

Axis: TypeAlias = "int | Sequence[int] | None"
"""One axis, several, or None for all; negative ones count from the end."""


def axes_of(name: str, axis: Axis, x: Tensor) -> tuple[int, ...]:
    """The axes as rising positions; raises ShapeError for one that x lacks or that is given twice."""
    rank = len(x._kind.shape)
    if axis is None:
        return tuple(range(rank))
    axes = [one_axis(name, a, x) for a in (axis if isinstance(axis, Sequence) else (axis,))]
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: axis {axis} names a dimension twice")
    return tuple(sorted(axes))


def _reduce(name: str, x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    return apply("reduce_" + name, x, axes=axes_of(name, axis, x), keepdims=bool(keepdims))


def _accumulator(x: Tensor, dtype: Any) -> DType:
    """The dtype of a sum or product of x: the default integer of its kind for integers and bools."""
    if dtype is not None:
        return as_dtype(dtype)
    own = x._kind.dtype
    if own.is_float:
        return own
    default = x._place.default_uint if own.kind == "uint" else x._place.default_int
    return own if own.is_integer and own.bits > default.bits else default


def sum(x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum over ``axis``. Integers and bools are summed in the default integer, 16-bit floats in float32."""
    return _reduce("sum", convert(x, _accumulator(x, dtype)), axis, keepdims)


def prod(x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product over ``axis``. Integers and bools are multiplied in the default integer, 16-bit floats in float32."""
    return _reduce("prod", convert(x, _accumulator(x, dtype)), axis, keepdims)


def _extreme(name: str, x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    axes = axes_of(name, axis, x)
    if builtins.any(x._kind.shape[a] == 0 for a in axes):
        raise ShapeError(f"{name}: shape {x._kind.shape} has no elements along axis {axis}, so there is no {name}")
    return _reduce(name, x, axes, keepdims)


def max(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The largest element over ``axis``; NaN where one is NaN. Raises ShapeError when there are no elements."""
    return _extreme("max", x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The smallest element over ``axis``; NaN where one is NaN. Raises ShapeError when there are no elements."""
    return _extreme("min", x, axis, keepdims)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether one element over ``axis`` is true (not 0); false when there are none."""
    return _reduce("max", convert(x, dtypes.bool_), axis, keepdims)


def all(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether every element over ``axis`` is true (not 0); true when there are none."""
    return _reduce("min", convert(x, dtypes.bool_), axis, keepdims)


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The mean over ``axis``, of integers in the default float; NaN when there are no elements."""
    return apply("mean", as_float(x), axes=axes_of("mean", axis, x), keepdims=bool(keepdims))


def var(x: Tensor, /, *, axis: Axis = None, correction: int | float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance over ``axis``: squared distances from the mean, summed, divided by the count less ``correction``."""
    axes = axes_of("var", axis, x)
    return apply("variance", as_float(x), axes=axes, keepdims=bool(keepdims), correction=float(correction))


def std(x: Tensor, /, *, axis: Axis = None, correction: int | float = 0.0, keepdims: bool = False) -> Tensor:
    """The standard deviation over ``axis``: the square root of ``var``, worked out in float32 for 16-bit floats."""
    value = as_float(x)
    dtype = value._kind.dtype
    wide = convert(value, dtypes.float32) if dtype.bits == 16 else value
    return convert(sqrt(var(wide, axis=axis, correction=correction, keepdims=keepdims)), dtype)


def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """How many elements are not 0, along ``axis`` (one, several, or all)."""
    return sum(convert(convert(x, dtypes.bool_), x._place.default_int), axis=axis, keepdims=keepdims)


def _cumulative(kind: str, x: Tensor, axis: int | None, dtype: Any, include_initial: bool) -> Tensor:
    name = "cumulative_" + kind
    if axis is None:
        if len(x._kind.shape) != 1:
            raise ShapeError(f"{name}: x has shape {x._kind.shape}; only with one dimension may axis be left out")
        axis = 0
    axis = one_axis(name, axis, x)
    if x._kind.dtype.kind == "bool" and dtype is None:
        raise DTypeError(f"{name}: x is bool; convert it to an integer, or give dtype")
    x = convert(x, _accumulator(x, dtype))
    result = apply("scan", x, kind=kind, axis=axis, reverse=False, exclusive=False)
    if not include_initial:
        return result
    shape = tuple(1 if i == axis else d for i, d in enumerate(x._kind.shape))
    start = scalar(x._place, x._kind.dtype, 0 if kind == "sum" else 1)
    return concat([apply("broadcast", start, shape=shape, dims=()), result], axis=axis)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Sums of the elements up to each one along ``axis``; ``include_initial`` puts a 0 before them."""
    return _cumulative("sum", x, axis, dtype, include_initial)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Products of the elements up to each one along ``axis``; ``include_initial`` puts a 1 before them."""
    return _cumulative("prod", x, axis, dtype, include_initial)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Differences of neighbours along ``axis``, ``n`` times; of bools, whether they differ."""
    axis = one_axis("diff", axis, x)
    x = concat([part for part in (prepend, x, append) if part is not None], axis=axis)
    if n < 0:
        raise ShapeError(f"diff: n is {n}; it must not be negative")
    for _ in range(n):
        upper = x[(slice(None),) * axis + (slice(1, None),)]
        lower = x[(slice(None),) * axis + (slice(None, -1),)]
        x = upper ^ lower if x._kind.dtype.kind == "bool" else subtract(upper, lower)
    return x
