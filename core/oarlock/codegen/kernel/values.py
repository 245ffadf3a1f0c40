"""Exact values of the kernel's scalar operations over NumPy: one operation, one rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType

__all__ = ["COMPARE", "COMPUTE", "PreconditionError", "convert", "fma", "from_number", "round_to"]

Array = npt.NDArray[Any]


class PreconditionError(Exception):
    """An operation was given what its precondition excludes; the interpreter adds where."""


def from_number(value: bool | int | float, dtype: DType, lanes: int) -> Array:
    """A constant in all lanes."""
    if dtype.is_float:
        return round_to(np.full(lanes, value, np.float64), dtype)
    return np.full(lanes, value, object).astype(dtype.numpy)


def round_to(x: Array, dtype: DType) -> Array:
    """float64 to a float dtype, rounded once to nearest even (NumPy's own cast to bfloat16 rounds twice)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return (_to_odd(x).astype(np.float32) if dtype == dtypes.bfloat16 else x).astype(dtype.numpy)


def _to_odd(x: Array) -> Array:
    """float64 to the float32 next to it whose last bit is odd, where none is equal: rounding that again is exact."""
    near = x.astype(np.float32)
    bits = near.view(np.uint32).copy()
    back = near.astype(np.float64)
    move = np.isfinite(x) & (back != x) & (bits & 1 == 0)
    away = np.abs(back) > np.abs(x)
    bits = np.where(move & away, bits - 1, np.where(move, bits + 1, bits)).astype(np.uint32)
    return bits.view(np.float32).astype(np.float64)


def fma(x: Array, y: Array, z: Array) -> Array:
    """x * y + z with one rounding, exact by rational arithmetic."""
    dtype = dtypes.from_numpy(x.dtype)
    return np.concatenate([_fma(float(a), float(b), float(c), dtype) for a, b, c in zip(x, y, z, strict=True)])


def _fma(a: float, b: float, c: float, dtype: DType) -> Array:
    if math.isfinite(a) and math.isfinite(b) and math.isfinite(c):
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        if exact:
            return _from_fraction(exact, dtype)
        special = a * b + c if a * b == 0 and c == 0 else 0.0
    else:
        special = c if math.isfinite(a) and math.isfinite(b) else a * b + c
    return np.array([special], np.float64).astype(dtype.numpy)


def _from_fraction(exact: Fraction, dtype: DType) -> Array:
    try:
        near = float(exact)
    except OverflowError:
        near = math.inf if exact > 0 else -math.inf
    if dtype == dtypes.float64:
        return np.array([near])
    if math.isfinite(near) and Fraction(near) != exact:  # make it odd, so that the next rounding is the only one
        bits = np.array([near]).view(np.uint64)
        if bits[0] & np.uint64(1) == 0:
            bits += np.uint64(1) if abs(Fraction(near)) < abs(exact) else np.uint64(0xFFFFFFFFFFFFFFFF)
        near = float(bits.view(np.float64)[0])
    return round_to(np.array([near]), dtype)


def convert(x: Array, source: DType, target: DType) -> Array:
    """kernel.convert; raises PreconditionError for a float outside an integer's range."""
    if source.is_float and target.is_integer:
        wide = x.astype(np.float64)
        whole = np.trunc(wide)
        low = -(2.0 ** (target.bits - 1)) if target.kind == "int" else 0.0
        high = 2.0 ** (target.bits - (target.kind == "int"))
        if not bool(np.all((whole >= low) & (whole < high))):
            raise PreconditionError(f"{x.tolist()} is outside {target}")
        return whole.astype(target.numpy)
    if target.is_float and target.bits == 16:
        if source.is_integer:  # NumPy would round to float32 first
            return np.concatenate([_from_fraction(Fraction(int(v)), target) for v in x])
        return round_to(x.astype(np.float64), target)
    return x.astype(target.numpy)


def _narrow(operation: Callable[..., Any]) -> Callable[..., Array]:
    """16-bit floats go through float32, which makes + - * / and sqrt correctly rounded."""

    def compute(*operands: Array) -> Array:
        dtype = operands[0].dtype
        if dtype.itemsize == 2 and dtypes.from_numpy(dtype).is_float:
            result = operation(*(x.astype(np.float32) for x in operands))
            return np.asarray(result).astype(dtype)
        return np.asarray(operation(*operands)).astype(dtype, copy=False)

    return compute


def _quot(x: Array, y: Array) -> Array:
    _check_divisor(x, y)
    return np.array(
        [abs(int(a)) // abs(int(b)) * (1 if (a < 0) == (b < 0) else -1) for a, b in zip(x, y, strict=True)], x.dtype
    )


def _rem(x: Array, y: Array) -> Array:
    _check_divisor(x, y)
    pairs = zip(x.tolist(), y.tolist(), strict=True)
    return np.array([abs(a) % abs(b) * (-1 if a < 0 else 1) for a, b in pairs], x.dtype)


def _check_divisor(x: Array, y: Array) -> None:
    if bool(np.any(y == 0)):
        raise PreconditionError("division by 0")
    if x.dtype.kind == "i" and bool(np.any((y == -1) & (x == np.iinfo(x.dtype).min))):
        raise PreconditionError("the least value divided by -1")


def _shift(operation: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def compute(x: Array, count: Array) -> Array:
        if bool(np.any((count < 0) | (count >= x.dtype.itemsize * 8))):
            raise PreconditionError(f"shift by {count.tolist()}, of {x.dtype.itemsize * 8} bits")
        return operation(x, count).astype(x.dtype, copy=False)

    return compute


def _neg(x: Array) -> Array:
    return -x if dtypes.from_numpy(x.dtype).is_float else np.subtract(x.dtype.type(0), x)


def _select(condition: Array, yes: Array, no: Array) -> Array:
    return np.where(condition, yes, no).astype(yes.dtype, copy=False)


COMPUTE: dict[str, Callable[..., Array]] = {
    "add": _narrow(np.add), "sub": _narrow(np.subtract), "mul": _narrow(np.multiply), "div": _narrow(np.divide),
    "quot": _quot, "rem": _rem, "fma": fma, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "neg": _neg, "shl": _shift(np.left_shift),
    "shr": _shift(np.right_shift), "select": _select, "fabs": _narrow(np.fabs), "sqrt": _narrow(np.sqrt),
    "floor": _narrow(np.floor), "ceil": _narrow(np.ceil), "trunc": _narrow(np.trunc), "rint": _narrow(np.rint),
}  # fmt: skip
"""Operations on arrays of lanes; overflow wraps or gives infinities (the caller silences NumPy's warnings)."""

COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
}  # fmt: skip
"""Comparisons; they give bool."""
