"""Element-wise operators as kernel expressions: where NumPy's semantics meet what a target computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oarlock import dtypes
from oarlock.codegen import math
from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.kernel.builder import dtype_of
from oarlock.dtypes import DType
from oarlock.errors import UnsupportedError
from oarlock.ir import Value

__all__ = ["ELEMENTWISE", "combine", "identity", "maximum", "minimum"]

Emit = Callable[[KernelBuilder, Sequence[Value]], Value]

ELEMENTARY = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "power", "atan2",
)  # fmt: skip
"""Float functions that codegen.math generates."""


def _wide(name: str) -> Emit:
    """Emit a float operation on 16-bit floats through float32, rounding once."""

    def emit(b: KernelBuilder, x: Sequence[Value]) -> Value:
        dtype = dtype_of(x[0])
        if dtype.bits == 16:
            wide = [b.raw_convert(v, dtypes.float32) for v in x]
            return b.raw_convert(math.emit(b, name, *wide), dtype)
        return math.emit(b, name, *x)

    return emit


def _power(b: KernelBuilder, x: Sequence[Value]) -> Value:
    dtype = dtype_of(x[0])
    return _wide("power")(b, x) if dtype.is_float else _integer_power(b, x[0], x[1])


def _integer_power(b: KernelBuilder, base: Value, exponent: Value) -> Value:
    """Square and multiply, wrapping; a negative exponent gives 0 unless the base is 1 or -1."""
    dtype = dtype_of(base)
    zero, one = b.const(0, dtype), b.const(1, dtype)

    def step(_: Value, carried: list[Value]) -> list[Value]:
        result, square, rest = carried
        odd = b.ne(b.emit("and", (rest, one)), zero)
        result = b.select(odd, b.mul(result, square), result)
        return [result, b.mul(square, square), b.emit("shr", (rest, one))]

    if dtype.kind == "uint":
        return b.loop(b.i(0), b.i(dtype.bits), step, [one, base, exponent])[0]
    positive = b.select(b.lt(exponent, zero), zero, exponent)
    result = b.loop(b.i(0), b.i(dtype.bits - 1), step, [one, base, positive])[0]
    minus = b.const(-1, dtype)
    odd = b.ne(b.emit("and", (exponent, one)), zero)
    unit = b.select(b.eq(base, one), one, b.select(b.eq(base, minus), b.select(odd, minus, one), zero))
    return b.select(b.lt(exponent, zero), unit, result)


def maximum(b: KernelBuilder, x: Value, y: Value) -> Value:
    """Greatest of two; NaN wins; for bool: or."""
    return _extreme(b, x, y, largest=True)


def minimum(b: KernelBuilder, x: Value, y: Value) -> Value:
    """Least of two; NaN wins; for bool: and."""
    return _extreme(b, x, y, largest=False)


def _extreme(b: KernelBuilder, x: Value, y: Value, *, largest: bool) -> Value:
    dtype = dtype_of(x)
    if dtype.kind == "bool":
        return b.or_(x, y) if largest else b.and_(x, y)
    if dtype.is_integer:
        return b.max(x, y) if largest else b.min(x, y)
    if _is_number(b, x):
        x, y = y, x
    if _is_number(b, y):  # then a comparison with NaN, which is false, keeps it
        return b.select(b.lt(x, y) if largest else b.lt(y, x), y, x)
    better = b.lt(y, x) if largest else b.lt(x, y)
    return b.select(b.or_(b.is_nan(x), better), x, y)


def _is_number(b: KernelBuilder, x: Value) -> bool:
    """Whether a float is known, and not NaN."""
    op = x.defining_op
    number = b.constant_value(op.operands[0] if op is not None and op.name == "kernel.splat" else x)
    return isinstance(number, (int, float)) and number == number


def _floor_divide(b: KernelBuilder, x: Sequence[Value]) -> Value:
    return _floor_divmod(b, x[0], x[1])[0]


def _remainder(b: KernelBuilder, x: Sequence[Value]) -> Value:
    return _floor_divmod(b, x[0], x[1])[1]


def _floor_divmod(b: KernelBuilder, x: Value, y: Value) -> tuple[Value, Value]:
    """Quotient towards minus infinity, and the remainder with the divisor's sign, as NumPy's divmod."""
    dtype = dtype_of(x)
    if dtype.is_float:
        return _float_divmod(b, x, y)
    quotient, remainder = b.total_quot_rem(x, y)
    if dtype.kind == "uint":
        return quotient, remainder
    zero, one = b.const(0, dtype), b.const(1, dtype)
    signs_differ = b.emit("xor", (b.lt(remainder, zero), b.lt(y, zero)))
    adjust = b.and_(b.ne(remainder, zero), signs_differ)
    return (
        b.select(adjust, b.sub(quotient, one), quotient),
        b.select(adjust, b.add(remainder, y), remainder),
    )


def _float_divmod(b: KernelBuilder, x: Value, y: Value) -> tuple[Value, Value]:
    dtype = dtype_of(x)
    if dtype.bits == 16:
        wide = _float_divmod(b, b.raw_convert(x, dtypes.float32), b.raw_convert(y, dtypes.float32))
        return b.raw_convert(wide[0], dtype), b.raw_convert(wide[1], dtype)
    zero = b.const(0.0, dtype)
    remainder = math.emit(b, "fmod", x, y)
    quotient = b.emit("div", (b.sub(x, remainder), y))
    nonzero = b.ne(remainder, zero)
    adjust = b.and_(nonzero, b.emit("xor", (b.lt(y, zero), b.lt(remainder, zero))))
    remainder_out = b.select(adjust, b.add(remainder, y), remainder)
    remainder_out = b.select(nonzero, remainder_out, _copysign(b, [zero, y]))
    quotient = b.select(adjust, b.sub(quotient, b.const(1.0, dtype)), quotient)
    floored = b.unary("floor", quotient)
    floored = b.select(
        b.lt(b.const(0.5, dtype), b.sub(quotient, floored)), b.add(floored, b.const(1.0, dtype)), floored
    )
    ratio = b.emit("div", (x, y))
    floored = b.select(b.eq(quotient, zero), _copysign(b, [zero, ratio]), floored)
    by_zero = b.eq(y, zero)
    remainder_out = b.select(by_zero, remainder, remainder_out)
    return b.select(by_zero, ratio, floored), remainder_out


def _trunc_remainder(b: KernelBuilder, x: Sequence[Value]) -> Value:
    dtype = dtype_of(x[0])
    return _wide("fmod")(b, x) if dtype.is_float else b.total_quot_rem(x[0], x[1])[1]


def _bits(b: KernelBuilder, x: Value) -> tuple[Value, DType]:
    bits = dtypes.by_name(f"uint{dtype_of(x).bits}")
    return b.bitcast(x, bits), bits


def _copysign(b: KernelBuilder, x: Sequence[Value]) -> Value:
    magnitude, bits = _bits(b, x[0])
    sign, _ = _bits(b, x[1])
    top = 1 << (bits.bits - 1)
    kept = b.emit("and", (magnitude, b.const(top - 1, bits)))
    return b.bitcast(b.emit("or", (kept, b.emit("and", (sign, b.const(top, bits))))), dtype_of(x[0]))


def _nextafter(b: KernelBuilder, x: Sequence[Value]) -> Value:
    """One step in the order of the bits, through zero."""
    dtype = dtype_of(x[0])
    bits, kind = _bits(b, x[0])
    zero = b.const(0.0, dtype)
    one = b.const(1, kind)
    up = b.lt(x[0], x[1])
    away = b.eq(up, b.lt(zero, x[0]))
    stepped = b.bitcast(b.select(away, b.add(bits, one), b.sub(bits, one)), dtype)
    least = b.const(1, kind)
    negative_least = b.const((1 << (kind.bits - 1)) | 1, kind)
    from_zero = b.bitcast(b.select(up, least, negative_least), dtype)
    result = b.select(b.eq(x[0], zero), from_zero, stepped)
    result = b.select(b.eq(x[0], x[1]), x[1], result)
    return b.select(b.or_(b.is_nan(x[0]), b.is_nan(x[1])), b.add(x[0], x[1]), result)


def _abs(b: KernelBuilder, x: Sequence[Value]) -> Value:
    dtype = dtype_of(x[0])
    if dtype.is_float:
        return b.unary("fabs", x[0])
    if dtype.kind == "int":
        return b.select(b.lt(x[0], b.const(0, dtype)), b.unary("neg", x[0]), x[0])
    return x[0]


def _sign(b: KernelBuilder, x: Sequence[Value]) -> Value:
    dtype = dtype_of(x[0])
    zero, one = b.const(0, dtype), b.const(1, dtype)
    positive = b.select(b.lt(zero, x[0]), one, zero)
    if dtype.kind == "uint":
        return positive
    result = b.select(b.lt(x[0], zero), b.const(-1, dtype), positive)
    return b.select(b.is_nan(x[0]), x[0], result) if dtype.is_float else result


def _rounding(name: str) -> Emit:
    def emit(b: KernelBuilder, x: Sequence[Value]) -> Value:
        return b.unary(name, x[0]) if dtype_of(x[0]).is_float else x[0]

    return emit


def _shift(name: str) -> Emit:
    return lambda b, x: b.total_shift(name, x[0], x[1])


def _plain(name: str) -> Emit:
    return lambda b, x: b.binary(name, x[0], x[1])


def _swapped(name: str) -> Emit:
    return lambda b, x: b.binary(name, x[1], x[0])


ELEMENTWISE: dict[str, Emit] = {
    **{name: _wide(name) for name in ELEMENTARY if name != "power"},
    "power": _power,
    "sqrt": lambda b, x: b.unary("sqrt", x[0]),
    "negative": lambda b, x: b.unary("neg", x[0]),
    "abs": _abs,
    "sign": _sign,
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "trunc": _rounding("trunc"),
    "round": _rounding("rint"),
    "isnan": lambda b, x: b.is_nan(x[0]) if dtype_of(x[0]).is_float else b.const(False, dtypes.bool_),
    "bitwise_invert": lambda b, x: b.not_(x[0]),
    "add": _plain("add"),
    "subtract": _plain("sub"),
    "multiply": _plain("mul"),
    "divide": _plain("div"),
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "trunc_remainder": _trunc_remainder,
    "maximum": lambda b, x: maximum(b, x[0], x[1]),
    "minimum": lambda b, x: minimum(b, x[0], x[1]),
    "bitwise_and": lambda b, x: b.and_(x[0], x[1]),
    "bitwise_or": lambda b, x: b.or_(x[0], x[1]),
    "bitwise_xor": _plain("xor"),
    "left_shift": _shift("shl"),
    "right_shift": _shift("shr"),
    "copysign": _copysign,
    "nextafter": _nextafter,
    "equal": _plain("eq"),
    "not_equal": _plain("ne"),
    "less": _plain("lt"),
    "less_equal": _plain("le"),
    "greater": _swapped("lt"),
    "greater_equal": _swapped("le"),
    "select": lambda b, x: b.select(x[0], x[1], x[2]),
}
"""The kernel expression of each element-wise primitive (convert and bitcast, which have attributes, aside)."""


def identity(kind: str, dtype: DType) -> bool | int | float:
    """The neutral element of a reduction."""
    if kind == "sum":
        return 0
    if kind == "prod":
        return 1
    if dtype.kind == "bool":
        return kind == "min"
    if dtype.is_float:
        return float("-inf") if kind == "max" else float("inf")
    least = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
    greatest = (1 << (dtype.bits - (dtype.kind == "int"))) - 1
    return least if kind == "max" else greatest


def combine(b: KernelBuilder, kind: str, x: Value, y: Value) -> Value:
    """One step of a reduction."""
    if kind == "max":
        return maximum(b, x, y)
    if kind == "min":
        return minimum(b, x, y)
    if kind not in ("sum", "prod"):
        raise UnsupportedError(f"no reduction {kind!r}; there are sum, prod, max, min")
    return b.add(x, y) if kind == "sum" else b.mul(x, y)
