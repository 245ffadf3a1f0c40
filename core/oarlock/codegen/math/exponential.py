"""exp, exp2 and expm1: reduction by multiples of log 2, a polynomial, and scaling by a power of two.

Method: Cody & Waite, Software Manual for the Elementary Functions, chapter 6; the reduced argument is kept in two
parts where the result is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from oarlock.codegen.math import coefficients as table
from oarlock.codegen.math.exponent import nearest_integer, power_of_minus, power_of_two, scale
from oarlock.codegen.math.number import Number, clamp

__all__ = ["BOUNDS", "FUNCTIONS", "exp_of_moderate", "expm1_of_moderate", "reduce_by_log2"]

_RANGE = {32: (-104.0, 89.0), 64: (-746.0, 710.0)}
"""Beyond these exp is 0 or infinite."""
_MINUS_ONE = {32: -20.0, 64: -40.0}
"""Here expm1 is -1 rounded."""
_RANGE2 = {32: (-151.0, 129.0), 64: (-1076.0, 1025.0)}
"""Beyond these exp2 is 0 or infinite."""


def reduce_by_log2(x: Number) -> tuple[Number, Number, Number]:
    """(n, r, low) with x = n log 2 + r + low: n a signed integer, |r| <= log(2)/2 about, ``low`` below r's last bit."""
    width = x.dtype.bits
    high, rest = table.LN2[width]
    k, n = nearest_integer(x, 1 / math.log(2))
    near = x - k * high  # exact
    correction = k * rest
    r = near - correction
    return n, r, (near - r) - correction


def exp(x: Number) -> Number:
    """e^x."""
    n, above = _parts(clamp(x, *_RANGE[x.dtype.bits]))
    return scale(1.0 + above, n)


def exp_of_moderate(x: Number) -> Number:
    """e^x for x at which e^x is far from overflow and underflow."""
    n, above = _parts(x)
    return (1.0 + above) * power_of_two(n)


def expm1_of_moderate(x: Number) -> Number:
    """e^x - 1 for x >= 0 at which 2^(x / log 2) is far from overflow, a little less exact than ``expm1``."""
    n, above = _parts(x)
    power = power_of_two(n)
    return power.times_plus(above, power - 1.0)


def _parts(x: Number) -> tuple[Number, Number]:
    """(n, e^r - 1) with x = n log 2 + r: what r loses is a quarter of a unit of e^r at most, 0 at n = 0."""
    width = x.dtype.bits
    high, rest = table.LN2[width]
    k, n = nearest_integer(x, 1 / math.log(2))
    r = k.times_plus(-rest, k.times_plus(-high, x))  # the inner sum is exact
    return n, (r * r).times_plus(r.polynomial(table.EXP[width]), r)


def exp2(x: Number) -> Number:
    """2^x."""
    width = x.dtype.bits
    x = clamp(x, *_RANGE2[width])
    k, n = nearest_integer(x)
    r = x - k
    return scale(1.0 + r * r.polynomial(table.EXP2[width]), n)


def expm1(x: Number) -> Number:
    """e^x - 1 = 2^n (e^r - 1 + (1 - 2^-n))."""
    width = x.dtype.bits
    n, r, low = reduce_by_log2(clamp(x, _MINUS_ONE[width], _RANGE[width][1]))
    tail = r * r * r.polynomial(table.EXP[width]) + low
    offset = 1.0 - power_of_minus(n)  # 0 or larger than r: what rounding the sum loses is exact
    total = offset + r
    return scale(total + ((r - (total - offset)) + tail), n).with_sign(x.sign())


FUNCTIONS: dict[str, Callable[[Number], Number]] = {"exp": exp, "exp2": exp2, "expm1": expm1}
BOUNDS = {"exp": 1.5, "exp2": 1.5, "expm1": 1.5}
