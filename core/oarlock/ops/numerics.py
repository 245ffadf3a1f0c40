"""Rounding and widening rules that all NumPy references share, so that each states its formula alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from oarlock.ops.record import Array, Attributes

__all__ = ["accumulator", "identity", "narrow", "precise", "quiet", "ufunc_reference", "widen"]

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_SMALL = (np.dtype(np.float16), _BFLOAT16)
_SINGLE = np.dtype(np.float32)
_DOUBLE = np.dtype(np.float64)
_EXTENDED = np.dtype(np.longdouble)

Reference = Callable[[Sequence[Array], Attributes], Sequence[Array]]


class _Loose(Protocol):
    def __call__(self, operands: Sequence[Array], attributes: Attributes, /) -> Sequence[Any]: ...


def quiet(function: _Loose) -> Reference:
    """``function`` as a reference: without floating-point warnings, its results arrays (not NumPy scalars)."""

    @functools.wraps(function)
    def evaluate(operands: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        with np.errstate(all="ignore"):
            return tuple(np.asarray(result) for result in function(operands, attributes))

    return evaluate


def widen(array: Array) -> Array:
    """float16 and bfloat16 as float32, in which their arithmetic is done; everything else as it is."""
    return array.astype(np.float32) if array.dtype in _SMALL else array


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Where sums of ``dtype`` are formed: floats in the next format with room to spare, integers in their own."""
    if dtype == _DOUBLE:
        return _EXTENDED
    return _DOUBLE if dtype in (*_SMALL, _SINGLE) else dtype


def precise(array: Array) -> Array:
    """``array`` in ``accumulator`` of its dtype."""
    return array.astype(accumulator(array.dtype), copy=False)


def narrow(array: Any, dtype: np.dtype[Any]) -> Array:
    """``array`` rounded once, to nearest even, to ``dtype``."""
    given = np.asarray(array)
    if given.dtype == dtype:
        return given
    if dtype == _BFLOAT16 and given.dtype in (_DOUBLE, _EXTENDED):
        given = _to_odd(given.astype(_DOUBLE, copy=False))
    return given.astype(dtype)


def _to_odd(array: Array) -> Array:
    """float64 to float32, inexact values to the neighbour with an odd last bit: a later rounding is then right."""
    near = np.atleast_1d(array.astype(np.float32))
    exact = np.atleast_1d(array)
    even = (near.view(np.uint32) & 1) == 0
    inexact = np.isfinite(exact) & (near.astype(np.float64) != exact)
    toward = np.where(exact > near, np.float32(np.inf), np.float32(-np.inf))
    return np.where(inexact & even, np.nextafter(near, toward), near).reshape(array.shape)


def ufunc_reference(function: Callable[..., Any], *, elementary: bool = False) -> Reference:
    """The reference of an element-wise operator whose result has the dtype of its operands.

    Arithmetic on float16 and bfloat16 is done in float32 and rounded once; ``elementary`` functions are evaluated in
    the next wider format (float64, or extended for float64) and rounded once.
    """
    lift = precise if elementary else widen

    @quiet
    def evaluate(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
        return (narrow(function(*(lift(operand) for operand in operands)), operands[0].dtype),)

    return evaluate


def identity(kind: str, dtype: np.dtype[Any]) -> Any:
    """What leaves ``kind`` ("sum", "prod", "max", "min") unchanged, as a scalar of ``dtype``."""
    if kind in ("sum", "prod"):
        return np.asarray(kind == "prod").astype(dtype)
    lowest = kind == "max"
    if dtype == np.dtype(np.bool_):
        return np.asarray(not lowest)
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return np.asarray(limits.min if lowest else limits.max, dtype)
    return np.asarray(-np.inf if lowest else np.inf).astype(dtype)
