"""Element-wise arithmetic, comparison, logic and bits, with promotion of operands and Python scalars."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import DTypeError, UnsupportedError
from oarlock.program.calls import Number, scalar_call
from oarlock.program.dtype_functions import as_float, broad_dtype, convert, integer_range
from oarlock.program.tape import Recorded, apply, concrete, record, scalar

if TYPE_CHECKING:
    from oarlock.program.backend import Place
    from oarlock.program.tensor import Tensor

__all__ = [
    "abs", "add", "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "ceil", "clip", "conj", "copysign", "divide", "equal", "floor", "floor_divide", "fmod", "greater",
    "greater_equal", "imag", "isfinite", "isinf", "isnan", "less", "less_equal", "logical_and", "logical_not",
    "logical_or", "logical_xor", "maximum", "minimum", "multiply", "negative", "nextafter", "not_equal", "positive",
    "pow", "real", "reciprocal", "remainder", "round", "sign", "signbit", "square", "subtract", "trunc",
]  # fmt: skip

_LARGEST = 3.4028234663852886e38
"""A float64 up to this is rounded to float32 where it enters a scalar block."""

Scalar: TypeAlias = "bool | int | float"
Operand: TypeAlias = "Tensor | bool | int | float | np.ndarray[Any, Any] | np.generic"


def as_scalar(place: Place, dtype: DType, value: Scalar) -> Tensor:
    """A Python scalar as a 0-d tensor of ``dtype``, entered at run time; raises DTypeError when it does not fit."""
    if dtype.is_float:
        return scalar(place, dtype, _rounded(dtype, value))
    if isinstance(value, float):
        raise DTypeError(f"{value} is a float and cannot become {dtype}: convert it, or the tensor, first")
    if dtype.kind == "bool":
        return scalar(place, dtype, int(bool(value)))
    low, high = integer_range(dtype)
    number = int(value)
    if not low <= number <= high:
        raise DTypeError(f"{number} does not fit {dtype} ({low} to {high}): convert the tensor to a wider dtype first")
    return scalar(place, dtype, number)


def _rounded(dtype: DType, value: Scalar) -> float:
    """``value`` as a float that ``dtype`` holds exactly, so that wider carriers round nothing twice."""
    try:
        number = float(value)
    except OverflowError:
        number = math.copysign(math.inf, value)
    if dtype.bits == 64:
        return number
    if dtype.bits == 32:
        return number if -_LARGEST <= number <= _LARGEST else ctypes.c_float(number).value
    with np.errstate(over="ignore"):
        return float(np.asarray(number).astype(dtype.numpy))


def tensors(name: str, *operands: Any) -> list[Tensor]:
    """``operands`` as tensors of one dtype on one place: promoted, with Python scalars in the dtype of the others."""
    place: Place | None = None
    dtype: DType | None = None
    foreign = False
    for operand in operands:
        if isinstance(operand, Recorded):
            place = operand._place if place is None else place
            own = operand._kind.dtype
            dtype = own if dtype is None or dtype is own else dtypes.promote(dtype, own)
        elif not isinstance(operand, (bool, int, float)) or isinstance(operand, np.generic):
            foreign = True
    if foreign or place is None or dtype is None:
        return tensors(name, *[_operand(name, operand, place) for operand in operands])
    for operand in operands:
        if not isinstance(operand, Recorded):
            dtype = broad_dtype(dtype, operand, place)
    return [
        convert(operand, dtype) if isinstance(operand, Recorded) else as_scalar(place, dtype, operand)  # type: ignore[arg-type]
        for operand in operands
    ]


def _operand(name: str, operand: Any, place: Place | None) -> Any:
    """``operand`` as a tensor, or as a Python scalar beside tensors."""
    from oarlock.program.creation import asarray

    if isinstance(operand, Recorded) or (place is not None and isinstance(operand, (bool, int, float))):
        return operand
    if isinstance(operand, (bool, int, float, np.ndarray, np.generic)):
        return asarray(operand, device=place.device if place is not None else None)
    if isinstance(operand, complex):
        raise UnsupportedError(f"{name}: complex numbers are not there yet (got {operand})")
    raise DTypeError(f"{name}: {type(operand).__name__} is neither a tensor nor a number; make it one with ol.asarray")


def on_place(name: str, operand: Any, place: Place | None) -> Tensor:
    """``operand`` as a tensor of its own dtype, on ``place`` when it is none yet (None: the default device)."""
    from oarlock.program.creation import asarray

    found = _operand(name, operand, place)
    if isinstance(found, Recorded):
        return found  # type: ignore[return-value]
    return asarray(found, device=None if place is None else place.device)


def _binary(name: str, x1: Any, x2: Any) -> Tensor:
    """A primitive on two operands of any dtype."""
    if isinstance(x1, Recorded):
        if isinstance(x2, Recorded):
            if x1._kind.dtype is x2._kind.dtype:
                return record(x1._place, name, (x1, x2))  # type: ignore[no-any-return]
        elif type(x2) is float and x1._kind.dtype.is_float:
            dtype, place = x1._kind.dtype, x1._place
            number = Number(scalar_call(dtype).results[0], place, _rounded(dtype, x2))
            return record(place, name, (x1, number))  # type: ignore[no-any-return]
    return apply(name, *tensors(name, x1, x2))


def _unary(name: str, x: Any) -> Tensor:
    """A primitive on one operand of any dtype."""
    return apply(name, *tensors(name, x))


def _rounding(name: str, x: Any) -> Tensor:
    """A rounding: integers stay as they are."""
    (x,) = tensors(name, x)
    return apply(name, x) if x._kind.dtype.is_float else positive(x)


def _fractional(name: str, x1: Any, x2: Any) -> Tensor:
    """A primitive on floats: integers and bools become the default float."""
    x, y = tensors(name, x1, x2)
    return apply(name, as_float(x), as_float(y))


def _truth(x: Tensor) -> Tensor:
    return convert(x, dtypes.bool_)


def add(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 + x2; integers wrap."""
    return _binary("add", x1, x2)


def subtract(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 - x2; integers wrap."""
    return _binary("subtract", x1, x2)


def multiply(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 * x2; integers wrap."""
    return _binary("multiply", x1, x2)


def divide(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 / x2 as floats: integers become the default float, float32."""
    return _fractional("divide", x1, x2)


def floor_divide(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 / x2 rounded down; an integer divided by zero gives 0."""
    return _binary("floor_divide", x1, x2)


def remainder(x1: Operand, x2: Operand, /) -> Tensor:
    """The rest of ``floor_divide``, with the sign of x2; for integers and x2 = 0 it is 0."""
    return _binary("remainder", x1, x2)


def fmod(x1: Operand, x2: Operand, /) -> Tensor:
    """The rest of the division rounded towards zero, with the sign of x1."""
    return _binary("trunc_remainder", x1, x2)


def pow(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 to the power of x2; an integer to a negative power gives 0, but for the bases 1 and -1."""
    if isinstance(x1, Recorded) and type(x2) in (int, float) and x2 == 2 and x1._kind.dtype.kind != "bool":
        x = x1 if type(x2) is int else as_float(x1)
        return apply("multiply", x, x)
    return _binary("power", x1, x2)


def maximum(x1: Operand, x2: Operand, /) -> Tensor:
    """The larger of each pair; NaN where either is NaN."""
    return _binary("maximum", x1, x2)


def minimum(x1: Operand, x2: Operand, /) -> Tensor:
    """The smaller of each pair; NaN where either is NaN."""
    return _binary("minimum", x1, x2)


def copysign(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 with the sign of x2."""
    return _fractional("copysign", x1, x2)


def nextafter(x1: Operand, x2: Operand, /) -> Tensor:
    """The next number after x1 towards x2."""
    return _fractional("nextafter", x1, x2)


def equal(x1: Operand, x2: Operand, /) -> Tensor:
    """Whether x1 == x2."""
    return _binary("equal", x1, x2)


def not_equal(x1: Operand, x2: Operand, /) -> Tensor:
    """Whether x1 != x2; true where either is NaN."""
    return _binary("not_equal", x1, x2)


def less(x1: Operand, x2: Operand, /) -> Tensor:
    """Whether x1 < x2."""
    return _binary("less", x1, x2)


def less_equal(x1: Operand, x2: Operand, /) -> Tensor:
    """Whether x1 <= x2."""
    return _binary("less_equal", x1, x2)


def greater(x1: Operand, x2: Operand, /) -> Tensor:
    """Whether x1 > x2."""
    return _binary("greater", x1, x2)


def greater_equal(x1: Operand, x2: Operand, /) -> Tensor:
    """Whether x1 >= x2."""
    return _binary("greater_equal", x1, x2)


def logical_and(x1: Operand, x2: Operand, /) -> Tensor:
    """Whether both are true (not 0)."""
    x, y = tensors("logical_and", x1, x2)
    return apply("bitwise_and", _truth(x), _truth(y))


def logical_or(x1: Operand, x2: Operand, /) -> Tensor:
    """Whether one is true (not 0)."""
    x, y = tensors("logical_or", x1, x2)
    return apply("bitwise_or", _truth(x), _truth(y))


def logical_xor(x1: Operand, x2: Operand, /) -> Tensor:
    """Whether just one is true (not 0)."""
    x, y = tensors("logical_xor", x1, x2)
    return apply("bitwise_xor", _truth(x), _truth(y))


def logical_not(x: Operand, /) -> Tensor:
    """Whether it is false (0)."""
    return apply("bitwise_invert", _truth(tensors("logical_not", x)[0]))


def bitwise_and(x1: Operand, x2: Operand, /) -> Tensor:
    """Bits set in both; for integers and bools."""
    return _binary("bitwise_and", x1, x2)


def bitwise_or(x1: Operand, x2: Operand, /) -> Tensor:
    """Bits set in either; for integers and bools."""
    return _binary("bitwise_or", x1, x2)


def bitwise_xor(x1: Operand, x2: Operand, /) -> Tensor:
    """Bits set in just one; for integers and bools."""
    return _binary("bitwise_xor", x1, x2)


def bitwise_invert(x: Operand, /) -> Tensor:
    """Every bit flipped; for integers and bools."""
    return _unary("bitwise_invert", x)


def bitwise_left_shift(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 shifted left by x2 bits; past the width it is 0."""
    return _binary("left_shift", x1, x2)


def bitwise_right_shift(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 shifted right by x2 bits, filled with the sign; past the width it is 0, or -1 where x1 < 0."""
    return _binary("right_shift", x1, x2)


def negative(x: Operand, /) -> Tensor:
    """-x; integers wrap."""
    return _unary("negative", x)


def positive(x: Operand, /) -> Tensor:
    """+x: another tensor of the same value."""
    (x,) = tensors("positive", x)
    if x._data is not None:
        return concrete(x._kind, x._place, x._data)
    return apply("reshape", x, shape=x._kind.shape)


def abs(x: Operand, /) -> Tensor:
    """The absolute value; the least signed integer stays itself."""
    return _unary("abs", x)


def sign(x: Operand, /) -> Tensor:
    """-1, 0 or 1; NaN stays NaN."""
    return _unary("sign", x)


def square(x: Operand, /) -> Tensor:
    """x * x."""
    return _unary("square", x)


def reciprocal(x: Operand, /) -> Tensor:
    """1 / x."""
    (x,) = tensors("reciprocal", x)
    return apply("reciprocal", as_float(x))


def ceil(x: Operand, /) -> Tensor:
    """Rounded up; integers stay."""
    return _rounding("ceil", x)


def floor(x: Operand, /) -> Tensor:
    """Rounded down; integers stay."""
    return _rounding("floor", x)


def trunc(x: Operand, /) -> Tensor:
    """Rounded towards zero; integers stay."""
    return _rounding("trunc", x)


def round(x: Operand, /) -> Tensor:
    """Rounded to the nearest integer, halves to the even one; integers stay."""
    return _rounding("round", x)


def isnan(x: Operand, /) -> Tensor:
    """Whether it is NaN."""
    (x,) = tensors("isnan", x)
    return apply("isnan", x) if x._kind.dtype.is_float else _everywhere(x, False)


def isinf(x: Operand, /) -> Tensor:
    """Whether it is an infinity."""
    (x,) = tensors("isinf", x)
    return apply("is_inf", x) if x._kind.dtype.is_float else _everywhere(x, False)


def isfinite(x: Operand, /) -> Tensor:
    """Whether it is neither an infinity nor NaN."""
    (x,) = tensors("isfinite", x)
    return apply("is_finite", x) if x._kind.dtype.is_float else _everywhere(x, True)


def signbit(x: Operand, /) -> Tensor:
    """Whether the sign bit is set: negative numbers, -0 and NaN with that bit."""
    (x,) = tensors("signbit", x)
    return apply("signbit", x) if x._kind.dtype.kind != "bool" else _everywhere(x, False)


def _everywhere(x: Tensor, value: bool) -> Tensor:
    return apply("broadcast", scalar(x._place, dtypes.bool_, int(value)), shape=x._kind.shape, dims=())


def real(x: Operand, /) -> Tensor:
    """The real part, which is x: there are no complex dtypes."""
    return positive(x)


def conj(x: Operand, /) -> Tensor:
    """The complex conjugate, which is x: there are no complex dtypes."""
    return positive(x)


def imag(x: Operand, /) -> Tensor:
    """Raises UnsupportedError: there are no complex dtypes."""
    raise UnsupportedError("imag: complex numbers are not there yet, so there is no imaginary part")


def clip(x: Operand, /, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """x limited to [min, max], in the dtype of x; either bound may be missing. Shapes broadcast."""
    (result,) = tensors("clip", x)
    dtype = result._kind.dtype
    for name, bound in (("maximum", min), ("minimum", max)):
        if bound is None:
            continue
        value, limit = tensors("clip", result, bound)
        if value._kind.dtype != dtype and not isinstance(bound, Recorded):
            raise DTypeError(f"clip: bound {bound} cannot become {dtype}, the dtype of x")
        result = apply(name, value, limit)
    return convert(result, dtype)
