"""log, log2, log10 and log1p: exponent and significand apart, a polynomial in s = f / (2 + f).

Method: with f = m - 1, log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)), which rounds only small terms; see Muller,
Elementary Functions, 3rd ed., section 11.4 on table-free logarithms. Sums of large terms keep their rounding error.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from oarlock.codegen.math import coefficients as table
from oarlock.codegen.math.exponent import decompose
from oarlock.codegen.math.number import Number, select

__all__ = ["BOUNDS", "FUNCTIONS", "log1p_of_sum", "log_of_positive", "with_limits"]


def _significand(m: Number) -> tuple[Number, Number]:
    """(f, t) with log m = f + t, f exact and larger, for m in [sqrt(1/2), sqrt(2)]."""
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    half_square = 0.5 * f * f
    return f, s * (half_square + z * z.polynomial(table.LOG[m.dtype.bits])) - half_square


def log_of_positive(x: Number, extra: Number | None = None, doubled: Number | None = None) -> Number:
    """log(x) + extra for positive finite x; ``extra`` is below the last bits of log(x), or x is 1.

    Adds log(2) where ``doubled`` holds.
    """
    k, m = decompose(x)
    if doubled is not None:
        k = k + select(doubled, k.like(1.0), k.like(0.0))
    f, t = _significand(m)
    high, low = table.LN2[x.dtype.bits]
    leading = k * high  # exact; 0 or larger than f
    total = leading + f
    rest = t + k * low if extra is None else t + (k * low + extra)
    return total + ((f - (total - leading)) + rest)


def with_limits(x: Number, result: Number) -> Number:
    """``result`` with what logarithms of 0, negative numbers, infinity and NaN are."""
    result = select(x < math.inf, result, x)
    result = select(x.equals(0.0), -math.inf, result)
    return select(x < 0.0, math.nan, result)


def log(x: Number) -> Number:
    """Natural logarithm."""
    return with_limits(x, log_of_positive(x))


def _other_base(x: Number, factor: tuple[float, float], unit: tuple[float, float]) -> Number:
    """log(x) times ``factor``, where that times log(2) is ``unit``; both in two parts."""
    k, m = decompose(x)
    f, t = _significand(m)
    head = (f + t).head()
    tail = (f - head) + t
    product = head * factor[0]  # exact
    rest = tail * factor[0] + (head + tail) * factor[1]
    leading = k * unit[0]  # exact
    total = leading + product
    return with_limits(x, total + ((product - (total - leading)) + (rest + k * unit[1])))


def log2(x: Number) -> Number:
    """Logarithm to base 2."""
    return _other_base(x, table.LOG2_E[x.dtype.bits], (1.0, 0.0))


def log10(x: Number) -> Number:
    """Logarithm to base 10."""
    width = x.dtype.bits
    return _other_base(x, table.LOG10_E[width], table.LOG10_2[width])


def log1p_of_sum(x: Number, low: Number | None = None) -> Number:
    """log(1 + x + low), ``low`` being below x's last bits."""
    u = 1.0 + x
    back = u - 1.0
    rounding = (1.0 - (u - back)) + (x - back)  # 1 + x - u, exactly
    extra = rounding if low is None else rounding + low
    return with_limits(u, log_of_positive(u, extra / u))


def log1p(x: Number) -> Number:
    """log(1 + x)."""
    return log1p_of_sum(x).with_sign(x.sign())


FUNCTIONS: dict[str, Callable[[Number], Number]] = {"log": log, "log2": log2, "log10": log10, "log1p": log1p}
BOUNDS = {"log": 1.5, "log2": 1.5, "log10": 1.5, "log1p": 1.5}
