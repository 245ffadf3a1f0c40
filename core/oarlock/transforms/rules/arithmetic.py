"""Simplification of arithmetic. Every rule keeps every bit of the result, NaN payloads apart.

With floats x + 0.0 is not x (for -0.0), x * 0.0 is not 0.0 (for NaN, infinities, signs), x - x is not 0.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from oarlock.dtypes import DType
from oarlock.ir import Operation, Value
from oarlock.ir.drr import Native, Rule, built, native, op, value
from oarlock.ir.rewrite import RewritePattern, Rewriter, pattern
from oarlock.ops.record import tensor
from oarlock.transforms.matching import emit, is_commutative, produced_by, shaped_as, splat_of, uniform

__all__ = ["ARITHMETIC"]

_Test = Callable[[Any, DType], bool]


def _dtype(op: Operation) -> DType:
    return tensor(op.operands_[0]).dtype


def _named(name: str, test: _Test) -> _Test:
    """``test``, as the text of a rule calls it."""
    test.__name__ = name
    return test


def _is(number: int) -> _Test:
    return _named(f"is_{number}", lambda value, dtype: bool(value == number))


def _is_integer(number: int) -> _Test:
    return _named(f"is_integer_{number}", lambda value, dtype: not dtype.is_float and bool(value == number))


def _has_all_bits(value: Any, dtype: DType) -> bool:
    return bool(value) if dtype.kind == "bool" else bool(~value == 0)


def _is_zero_of_sign(negative: bool) -> _Test:
    """An integer zero, or the float zero of that sign."""

    def test(value: Any, dtype: DType) -> bool:
        return bool(value == 0) and (not dtype.is_float or bool(np.signbit(value)) == negative)

    return _named("is_negative_zero" if negative else "is_zero", test)


_X, _C, _Y = value("x"), value("c"), value("y")


def _known(test: _Test) -> Native:
    """Whether every element of c is one number, for which ``test`` holds in the dtype of x."""

    def holds(constant: Value, like: Value) -> bool:
        number = splat_of(constant)
        return number is not None and test(number, tensor(like).dtype)

    holds.__name__ = test.__name__.strip("_")
    return native(holds, _C, _X)


def _neutral(name: str, test: _Test) -> Rule:
    """``name(x, c)`` is x where ``test`` holds for the constant c."""
    return Rule(f"{name}_neutral", op("array." + name, _X, _C), built(shaped_as, _X), [_known(test)])


def _absorbing(name: str, test: _Test, result: int | None = None) -> Rule:
    """``name(x, c)`` is c (or ``result``) where ``test`` holds for the constant c."""
    made = built(uniform, native(splat_of, _C) if result is None else result)
    return Rule(f"{name}_absorbing", op("array." + name, _X, _C), made, [_known(test)])


def _idempotent(name: str) -> Rule:
    """``name(x, x)`` is x."""
    return Rule(f"{name}_same", op("array." + name, _X, _X), _X)


def _involution(name: str) -> Rule:
    """``name(name(x))`` is x."""
    return Rule(f"{name}_twice", op("array." + name, op("array." + name, _X).shared()), _X)


def _settled(name: str, inner: tuple[str, ...]) -> Rule:
    """``name(y)`` is y where y comes from one of ``inner``."""
    made = op(tuple("array." + other for other in inner), _X).shared()
    return Rule(f"{name}_settled", op("array." + name, made), made)


def of_integers(value: Value) -> bool:
    """Whether a value holds no floats."""
    return not tensor(value).dtype.is_float


def of_signed(value: Value) -> bool:
    """Whether a value holds numbers that have a sign."""
    return tensor(value).dtype.is_signed


@pattern(None, benefit=2)
def constant_last(op: Operation, rewriter: Rewriter) -> bool:
    """The constant operand of a commutative operator goes last, where the other rules look for it."""
    if not is_commutative(op):
        return False
    left, right = op.operands_
    if splat_of(left) is None or splat_of(right) is not None:
        return False
    op.set_operands((right, left))
    rewriter.touch(op)
    return True


@pattern("array.divide")
def divide_by_power_of_two(op: Operation, rewriter: Rewriter) -> bool:
    """x / 2^k is x * 2^-k, where both powers are normal numbers: the same real value, rounded once."""
    divisor = splat_of(op.operands_[1])
    if divisor is None or not np.isfinite(divisor) or abs(math.frexp(float(divisor))[0]) != 0.5:
        return False
    kind = _dtype(op)
    least = _least_normal(kind)
    reciprocal = 1.0 / float(divisor)
    if min(abs(float(divisor)), abs(reciprocal)) < least or not math.isfinite(reciprocal):
        return False
    factor = kind.numpy.type(reciprocal)
    if float(factor) != reciprocal:
        return False
    builder = emit(op, rewriter)
    rewriter.replace(op, [builder("multiply", op.operands_[0], _scalar_like(op, op.operands_[1], factor, rewriter))])
    return True


def _least_normal(dtype: DType) -> float:
    exponents = {"float16": -14, "bfloat16": -126, "float32": -126, "float64": -1022}
    return math.ldexp(1.0, exponents[dtype.name])


def _scalar_like(op: Operation, like: Value, value: Any, rewriter: Rewriter) -> Value:
    """``value`` in the shape of ``like``."""
    builder = emit(op, rewriter)
    scalar = builder.constant(np.asarray(value), tensor(like).dtype)
    return scalar if tensor(like).rank == 0 else builder("broadcast", scalar, shape=tensor(like).shape, dims=())


@pattern("array.power")
def small_power(op: Operation, rewriter: Rewriter) -> bool:
    """x ** 0 is 1, x ** 1 is x, x ** 2 is x * x; x ** -1 is 1 / x for floats."""
    exponent = splat_of(op.operands_[1])
    if exponent is None or exponent not in (0, 1, 2, -1) or (exponent == -1 and not _dtype(op).is_float):
        return False
    base = op.operands_[0]
    if exponent == 0:
        result = uniform(op, 1, rewriter)
    elif exponent == 1:
        result = shaped_as(op, base, rewriter)
    elif exponent == 2:
        result = shaped_as(op, emit(op, rewriter)("multiply", base, base), rewriter)
    else:
        one = _scalar_like(op, op.operands_[1], 1, rewriter)
        result = emit(op, rewriter)("divide", one, base)
    rewriter.replace(op, [result])
    return True


# --- select, convert -------------------------------------------------------------------------------------------------


@pattern("array.select")
def select_known(op: Operation, rewriter: Rewriter) -> bool:
    """A selection whose condition is constant, or whose branches are the same."""
    condition, yes, no = op.operands_
    known = splat_of(condition)
    if known is None and yes is not no:
        return False
    rewriter.replace(op, [shaped_as(op, yes if known is None or known else no, rewriter)])
    return True


_MANTISSA = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def is_lossless(source: DType, target: DType) -> bool:
    """Whether ``target`` holds every value of ``source``."""
    if source == target or source.kind == "bool":
        return True
    if target.kind == "bool":
        return False
    if source.is_float:
        return target.is_float and source.bits < target.bits
    digits = source.bits - (source.kind == "int")
    if target.is_float:
        return digits <= _MANTISSA[target.name]
    return digits <= target.bits - (target.kind == "int") and (source.kind == "uint" or target.kind == "int")


def is_same_dtype(converted: Operation) -> bool:
    """Whether the operand has the dtype already."""
    return bool(_dtype(converted) == converted.attributes["dtype"])


@pattern("array.convert")
def convert_twice(op: Operation, rewriter: Rewriter) -> bool:
    """A conversion after a lossless one is a conversion of the original.

    Not from integer over float to another integer type: floats saturate where integers wrap.
    """
    inner = produced_by(op.operands_[0], "convert")
    if inner is None:
        return False
    source, between, target = _dtype(inner), _dtype(op), tensor(op.results[0]).dtype
    if not is_lossless(source, between):
        return False
    if source.is_integer and between.is_float and target.is_integer and source != target:
        return False
    rewriter.replace(op, [emit(op, rewriter).convert(inner.operands_[0], target)])
    return True


@pattern("array.bitcast")
def bitcast_known(op: Operation, rewriter: Rewriter) -> bool:
    """A bitcast to the same dtype, or of a bitcast."""
    source, target = op.operands_[0], tensor(op.results[0]).dtype
    if tensor(source).dtype == target:
        rewriter.replace(op, [source])
        return True
    inner = produced_by(source, "bitcast")
    if inner is None:
        return False
    origin = inner.operands_[0]
    same = tensor(origin).dtype == target
    rewriter.replace(op, [origin if same else emit(op, rewriter)("bitcast", origin, dtype=target)])
    return True


_ROUNDED = ("floor", "ceil", "trunc", "round")
_CONVERT = op("array.convert", _X)

_RULES = (
    _neutral("add", _is_zero_of_sign(negative=True)),
    _neutral("subtract", _is_zero_of_sign(negative=False)),
    *(_neutral(name, _is(1)) for name in ("multiply", "divide")),
    _neutral("floor_divide", _is_integer(1)),
    *(_neutral(name, _is(0)) for name in ("left_shift", "right_shift", "bitwise_or", "bitwise_xor")),
    _neutral("bitwise_and", _has_all_bits),
    _absorbing("multiply", _is_integer(0)),
    _absorbing("bitwise_and", _is(0)),
    _absorbing("bitwise_or", _has_all_bits),
    *(_absorbing(name, _is_integer(1), result=0) for name in ("remainder", "trunc_remainder")),
    *(_idempotent(name) for name in ("maximum", "minimum", "bitwise_and", "bitwise_or")),
    *(_involution(name) for name in ("negative", "bitwise_invert")),
    *(_settled(name, _ROUNDED) for name in _ROUNDED),
    Rule("rounding_of_integers", op(tuple("array." + name for name in _ROUNDED), _X), _X, [native(of_integers, _X)]),
    _settled("abs", ("abs",)),
    Rule("subtract_same", op("array.subtract", _X, _X), built(uniform, 0), [native(of_integers, _X)]),
    Rule(
        "abs_of_negative",  # but not for unsigned integers, whose -x wraps
        source=op("array.abs", op("array.negative", _X).shared()),
        where=[native(of_signed, _X)],
        result=op("array.abs", _X),
    ),
    Rule(
        "select_inverted",
        source=op("array.select", op("array.bitwise_invert", _C).shared(), _X, _Y),
        result=op("array.select", _C, _Y, _X),
    ),
    Rule("convert_same", _CONVERT, _X, [native(is_same_dtype, _CONVERT)]),
)

ARITHMETIC: tuple[RewritePattern, ...] = (
    constant_last,
    *(rule.pattern for rule in _RULES),
    divide_by_power_of_two,
    small_power,
    select_known,
    convert_twice,
    bitcast_known,
)
"""The patterns."""
