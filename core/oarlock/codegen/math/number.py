"""Numbers: values of a kernel under construction that are written as formulas."""

from __future__ import annotations

from dataclasses import dataclass

from oarlock import dtypes
from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.kernel.builder import dtype_of, lanes_of
from oarlock.dtypes import DType
from oarlock.ir import Value

__all__ = ["FORMATS", "Format", "Number", "clamp", "select"]


@dataclass(frozen=True, slots=True)
class Format:
    """An IEEE binary format and the integers of its width."""

    dtype: DType
    signed: DType
    unsigned: DType
    stored: int
    """Bits of the significand that are stored."""
    bias: int

    @property
    def sign_bit(self) -> int:
        return 1 << (self.dtype.bits - 1)

    @property
    def infinity_bits(self) -> int:
        return (2 * self.bias + 1) << self.stored

    @property
    def least_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def rounding_shift(self) -> float:
        """Adding it to a number below 2^(stored - 1) rounds that to an integer, which then stands in the low bits."""
        return 1.5 * 2.0**self.stored

    @property
    def rounding_shift_bits(self) -> int:
        return ((self.bias + self.stored) << self.stored) | (1 << (self.stored - 1))


FORMATS = {
    dtypes.float32: Format(dtypes.float32, dtypes.int32, dtypes.uint32, 23, 127),
    dtypes.float64: Format(dtypes.float64, dtypes.int64, dtypes.uint64, 52, 1023),
}
"""The formats that functions are generated for."""


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    """A value and the builder it belongs to. Operators emit kernel operations; Python numbers become constants.

    Shifts count from 0 to the width - 1; ``>>`` keeps the sign of signed integers. Comparisons give bool numbers;
    equality is spelt ``equals`` and ``differs``.
    """

    b: KernelBuilder
    value: Value

    @property
    def dtype(self) -> DType:
        return dtype_of(self.value)

    @property
    def format(self) -> Format:
        """The float format of this width."""
        return FORMATS[dtypes.float32 if self.dtype.bits == 32 else dtypes.float64]

    def like(self, value: float | int | bool) -> Number:
        """A constant of this number's type."""
        return Number(self.b, self.b.const(value, self.dtype, lanes_of(self.value)))

    def _value(self, other: Number | float | int) -> Value:
        return other.value if isinstance(other, Number) else self.like(other).value

    def _binary(self, name: str, other: Number | float | int) -> Number:
        return Number(self.b, self.b.binary(name, self.value, self._value(other)))

    def _unary(self, name: str) -> Number:
        return Number(self.b, self.b.unary(name, self.value))

    def __add__(self, other: Number | float) -> Number:
        return self._binary("add", other)

    def __radd__(self, other: float) -> Number:
        return self.like(other) + self

    def __sub__(self, other: Number | float) -> Number:
        return self._binary("sub", other)

    def __rsub__(self, other: float) -> Number:
        return self.like(other) - self

    def __mul__(self, other: Number | float) -> Number:
        return self._binary("mul", other)

    def __rmul__(self, other: float) -> Number:
        return self.like(other) * self

    def __truediv__(self, other: Number | float) -> Number:
        return self._binary("div", other)

    def __rtruediv__(self, other: float) -> Number:
        return self.like(other) / self

    def __floordiv__(self, other: Number | int) -> Number:
        """Quotient of unsigned integers; ``other`` is not 0."""
        return self._binary("quot", other)

    def __mod__(self, other: Number | int) -> Number:
        """Remainder of unsigned integers; ``other`` is not 0."""
        return self._binary("rem", other)

    def __neg__(self) -> Number:
        return self._unary("neg")

    def __invert__(self) -> Number:
        return Number(self.b, self.b.not_(self.value))

    def __and__(self, other: Number | int) -> Number:
        return Number(self.b, self.b.and_(self.value, self._value(other)))

    def __or__(self, other: Number | int) -> Number:
        return Number(self.b, self.b.or_(self.value, self._value(other)))

    def __xor__(self, other: Number | int) -> Number:
        return self._binary("xor", other)

    def __lshift__(self, count: Number | int) -> Number:
        return self._binary("shl", count)

    def __rshift__(self, count: Number | int) -> Number:
        return self._binary("shr", count)

    def __lt__(self, other: Number | float) -> Number:
        return self._binary("lt", other)

    def __le__(self, other: Number | float) -> Number:
        return self._binary("le", other)

    def __gt__(self, other: Number | float) -> Number:
        return Number(self.b, self.b.lt(self._value(other), self.value))

    def __ge__(self, other: Number | float) -> Number:
        return Number(self.b, self.b.le(self._value(other), self.value))

    def equals(self, other: Number | float) -> Number:
        return self._binary("eq", other)

    def differs(self, other: Number | float) -> Number:
        return self._binary("ne", other)

    def abs(self) -> Number:
        return self._unary("fabs")

    def sqrt(self) -> Number:
        return self._unary("sqrt")

    def trunc(self) -> Number:
        return self._unary("trunc")

    def is_nan(self) -> Number:
        return Number(self.b, self.b.is_nan(self.value))

    def convert(self, dtype: DType) -> Number:
        """The nearest value of ``dtype``; a float must be in range of an integer dtype."""
        return Number(self.b, self.b.raw_convert(self.value, dtype))

    def signed(self) -> Number:
        """The same bits as a signed integer."""
        return Number(self.b, self.b.bitcast(self.value, self.format.signed))

    def unsigned(self) -> Number:
        """The same bits as an unsigned integer."""
        return Number(self.b, self.b.bitcast(self.value, self.format.unsigned))

    def real(self) -> Number:
        """The same bits as a float."""
        return Number(self.b, self.b.bitcast(self.value, self.format.dtype))

    def head(self) -> Number:
        """The float with the lower half of its significand cleared: the product of two heads is exact."""
        cleared = (self.format.stored + 2) // 2
        mask = ((1 << self.dtype.bits) - 1) ^ ((1 << cleared) - 1)
        return (self.unsigned() & mask).real()

    def sign(self) -> Number:
        """The sign bit, as an unsigned integer."""
        return self.unsigned() & self.format.sign_bit

    def with_sign(self, sign: Number) -> Number:
        """This non-negative float (or one of that sign) with a sign bit."""
        return (self.unsigned() | sign).real()

    def times_plus(self, factor: Number | float, term: Number | float) -> Number:
        """``self * factor + term``, rounded once where the target has a fast fma, else twice.

        Never loose: a compiler that may regroup it would take rounding to an integer by a large term, and the parts of
        an argument's reduction, for nothing.
        """
        if self.b.fused:
            return Number(self.b, self.b.fma(self.value, self._value(factor), self._value(term)))
        return self * factor + term

    def polynomial(self, coefficients: tuple[float, ...]) -> Number:
        """The sum of ``coefficients[i] * self**i``, by Horner's rule."""
        result = self.like(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            result = result.times_plus(self, coefficient)
        return result


def select(condition: Number, yes: Number | float, no: Number | float) -> Number:
    """``yes`` where ``condition`` holds, else ``no``; one of them is a Number."""
    like = yes if isinstance(yes, Number) else no
    assert isinstance(like, Number)
    first, second = (v if isinstance(v, Number) else like.like(v) for v in (yes, no))
    return Number(like.b, like.b.select(condition.value, first.value, second.value))


def clamp(x: Number, low: float, high: float) -> Number:
    """``x`` within ``[low, high]``; NaN stays."""
    x = select(x < low, low, x)
    return select(x > high, high, x)
