"""float16 and bfloat16 by integer arithmetic on targets that do not compute them, exact in every case.

Values travel as float32, which holds each of them; ``bits`` are the 16-bit pattern in a uint32. + - * / and sqrt are
computed in float32 and rounded once more, which is correctly rounded since 24 >= 2 p + 2 for both formats (Figueroa,
"When is double rounding innocuous?", 1995); where that does not hold (fma, conversions from wider types) the first
rounding is to odd, after which the second is exact (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums",
2008).
"""

from __future__ import annotations

from oarlock import dtypes
from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.kernel.builder import lanes_of
from oarlock.dtypes import DType
from oarlock.ir import ScalarType, Value

__all__ = ["Narrow"]

_SIGN = 0x80000000
_INFINITY = 0x7F800000


class Narrow:
    """Emits conversions between float32 and the patterns of ``dtype`` (float16 or bfloat16), lane by lane."""

    def __init__(self, builder: KernelBuilder, dtype: DType) -> None:
        self.b = builder
        self.dtype = dtype

    def _u(self, value: int, like: Value) -> Value:
        return self.b.const(value, dtypes.uint32, lanes_of(like))

    def _f(self, value: float, like: Value) -> Value:
        return self.b.const(value, dtypes.float32, lanes_of(like))

    def value(self, bits: Value) -> Value:
        """The float32 that a pattern stands for."""
        b = self.b
        if self.dtype == dtypes.bfloat16:
            return b.bitcast(b.emit("shl", (bits, self._u(16, bits))), dtypes.float32)
        sign = b.emit("shl", (b.emit("and", (bits, self._u(0x8000, bits))), self._u(16, bits)))
        magnitude = b.emit("shl", (b.emit("and", (bits, self._u(0x7FFF, bits))), self._u(13, bits)))
        rebias = self._u(112 << 23, bits)
        normal = b.add(magnitude, rebias)
        # all ones in the exponent stay all ones
        special = b.le(self._u(0x7C00 << 13, bits), magnitude)
        normal = b.select(special, b.add(normal, rebias), normal)
        # a subnormal is its mantissa x 2^-24: exact, and a normal float32
        mantissa = b.raw_convert(b.emit("shr", (magnitude, self._u(13, bits))), dtypes.float32)
        subnormal = b.bitcast(b.mul(mantissa, self._f(2.0**-24, bits)), dtypes.uint32)
        small = b.lt(magnitude, self._u(0x0400 << 13, bits))
        return b.bitcast(b.emit("or", (sign, b.select(small, subnormal, normal))), dtypes.float32)

    def bits(self, x: Value) -> Value:
        """The pattern of a float32 rounded to nearest even; NaN stays a NaN, made quiet."""
        b = self.b
        pattern = b.bitcast(x, dtypes.uint32)
        magnitude = b.emit("and", (pattern, self._u(_SIGN - 1, x)))
        nan = b.lt(self._u(_INFINITY, x), magnitude)
        if self.dtype == dtypes.bfloat16:
            odd = b.emit("and", (b.emit("shr", (pattern, self._u(16, x))), self._u(1, x)))
            rounded = b.add(pattern, b.add(odd, self._u(0x7FFF, x)))
            quiet = b.emit("or", (pattern, self._u(0x00400000, x)))
            return b.emit("shr", (b.select(nan, quiet, rounded), self._u(16, x)))
        sign = b.emit("and", (b.emit("shr", (pattern, self._u(16, x))), self._u(0x8000, x)))
        rounded = b.select(b.lt(magnitude, self._u(0x38800000, x)), self._subnormal(magnitude), self._normal(magnitude))
        huge = b.le(self._u(0x47800000, x), magnitude)
        rounded = b.select(huge, b.select(nan, self._u(0x7E00, x), self._u(0x7C00, x)), rounded)
        return b.emit("or", (sign, rounded))

    def _normal(self, magnitude: Value) -> Value:
        """float16 pattern of a magnitude in [2^-14, 2^16); what rounds up past the greatest becomes infinity."""
        b = self.b
        odd = b.emit("and", (b.emit("shr", (magnitude, self._u(13, magnitude))), self._u(1, magnitude)))
        # 0xFFF rounds half up, `odd` makes it half to even; the exponent's bias changes from 127 to 15
        bias = self._u((0xFFF - (112 << 23)) & 0xFFFFFFFF, magnitude)
        return b.emit("shr", (b.add(magnitude, b.add(odd, bias)), self._u(13, magnitude)))

    def _subnormal(self, magnitude: Value) -> Value:
        """float16 pattern of a magnitude below 2^-14: its mantissa in units of 2^-24."""
        b = self.b
        exponent = b.emit("shr", (magnitude, self._u(23, magnitude)))
        # from 2^-1 on the difference wraps, and `min` keeps the count in range; the result is not used then
        shift = b.emit("min", (b.sub(self._u(126, magnitude), exponent), self._u(25, magnitude)))
        hidden = self._u(0x00800000, magnitude)
        mantissa = b.emit("or", (b.emit("and", (magnitude, self._u(0x007FFFFF, magnitude))), hidden))
        one = self._u(1, magnitude)
        half = b.emit("shr", (b.emit("shl", (one, shift)), one))
        odd = b.emit("and", (b.emit("shr", (mantissa, shift)), one))
        return b.emit("shr", (b.add(mantissa, b.add(b.sub(half, one), odd)), shift))

    # --- from wider types

    def from_double(self, x: Value) -> Value:
        """The pattern of a float64."""
        b = self.b
        near = b.raw_convert(x, dtypes.float32)
        back = b.raw_convert(near, dtypes.float64)
        inexact = b.or_(b.lt(back, x), b.lt(x, back))
        away = b.lt(b.unary("fabs", x), b.unary("fabs", back))
        return self.bits(_make_odd(b, near, inexact, away))

    def from_integer(self, x: Value, dtype: DType) -> Value:
        """The pattern of an integer of 32 or 64 bits."""
        b = self.b
        if self.dtype == dtypes.float16:  # what float32 rounds is far past the greatest float16
            return self.bits(b.raw_convert(x, dtypes.float32))
        unsigned = dtypes.by_name(f"uint{dtype.bits}")
        lanes = lanes_of(x)
        zero = b.const(0, dtype, lanes)
        magnitude = b.raw_convert(x, unsigned)
        if dtype.kind == "int":
            magnitude = b.select(b.lt(x, zero), b.sub(b.const(0, unsigned, lanes), magnitude), magnitude)
        result = magnitude
        # keep 24 bits and at least 11 significant ones; what is cut off sets the last of them
        for bound, cut in ((24, 8),) if dtype.bits == 32 else ((24, 14), (38, 28), (52, 40)):
            low = b.emit("and", (magnitude, b.const((1 << cut) - 1, unsigned, lanes)))
            sticky = b.select(
                b.ne(low, b.const(0, unsigned, lanes)), b.const(1 << cut, unsigned, lanes), b.const(0, unsigned, lanes)
            )
            kept = b.emit("or", (b.emit("xor", (magnitude, low)), sticky))
            result = b.select(b.le(b.const(1 << bound, unsigned, lanes), magnitude), kept, result)
        value = b.raw_convert(result, dtypes.float32)
        if dtype.kind == "int":
            value = b.select(b.lt(x, zero), b.emit("neg", (value,)), value)
        return self.bits(value)

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """The pattern of x * y + z with one rounding. bfloat16 goes through float64, float16 does not need to."""
        b = self.b
        wide = dtypes.float64 if self.dtype == dtypes.bfloat16 else dtypes.float32
        x, y, z = (b.raw_convert(v, wide) for v in (x, y, z))
        product = b.mul(x, y)  # exact
        total = b.add(product, z)
        # the error of the sum (Knuth's two-sum)
        part = b.sub(total, product)
        error = b.add(b.sub(product, b.sub(total, part)), b.sub(z, part))
        zero = b.const(0.0, wide, lanes_of(x))
        above, below, positive = b.lt(zero, error), b.lt(error, zero), b.lt(zero, total)
        away = b.or_(b.and_(positive, below), b.and_(b.not_(positive), above))
        odd = _make_odd(b, total, b.or_(above, below), away)
        return self.from_double(odd) if wide == dtypes.float64 else self.bits(odd)


def _make_odd(b: KernelBuilder, x: Value, inexact: Value, away: Value) -> Value:
    """``x``, or its neighbour with an odd last bit where it is ``inexact``: the one nearer to 0 where ``away``."""
    assert isinstance(x.type, ScalarType)
    bits = dtypes.by_name(f"uint{x.type.dtype.bits}")
    pattern = b.bitcast(x, bits)
    one, zero = b.const(1, bits, x.type.lanes), b.const(0, bits, x.type.lanes)
    even = b.eq(b.emit("and", (pattern, one)), zero)
    moved = b.select(away, b.sub(pattern, one), b.add(pattern, one))
    return b.bitcast(b.select(b.and_(inexact, even), moved, pattern), x.type.dtype)
