"""power(x, y) = 2^(y log2 |x|), the logarithm and the product in two parts each.

The parts are split so that products of leading parts are exact (Dekker, A floating-point technique for extending the
available precision, 1971): no fused operation is needed. Special values follow C99, annex F.9.4.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from oarlock.codegen.math import coefficients as table
from oarlock.codegen.math.exponent import decompose, nearest_integer, scale
from oarlock.codegen.math.number import Number, clamp, select

__all__ = ["BOUNDS", "FUNCTIONS"]

_LARGEST_EXPONENT = {32: 2.0**33, 64: 2.0**65}
"""With a larger |y| every x but 1 overflows or underflows."""
_RANGE = {32: (-160.0, 130.0), 64: (-1080.0, 1026.0)}
"""2^z is 0 or infinite beyond."""


def _fine_log2(x: Number) -> tuple[Number, Number]:
    """log2 of positive finite x in two parts, the first with half the digits; about 2^-35 (2^-66) relative."""
    width = x.dtype.bits
    k, m = decompose(x)
    f = m - 1.0
    below = m + 1.0
    inverse = 1.0 / below
    s = f * inverse
    s_head = s.head()
    below_head = below.head()
    below_tail = m - (below_head - 1.0)
    s_tail = inverse * ((f - s_head * below_head) - s_head * below_tail)
    z = s * s
    small = z * z * z.polynomial(table.LOG_FINE[width]) + s_tail * (s_head + s)
    square = s_head * s_head  # exact
    series = (3.0 + square + small).head()
    series_tail = small - ((series - 3.0) - square)
    product = s_head * series  # exact
    product_tail = s_tail * series + series_tail * s
    head = (product + product_tail).head()
    tail = product_tail - (head - product)
    high, low = table.TWO_THIRDS_LOG2_E[width]
    leading = high * head  # exact
    rest = low * head + tail * (high + low)
    total = ((leading + rest) + k).head()
    return total, rest - ((total - k) - leading)


def _exp2_of_sum(high: Number, low: Number) -> Number:
    """2^(high + low)."""
    width = high.dtype.bits
    total = high + low
    beyond = (total < _RANGE[width][0]) | (total > _RANGE[width][1])
    k, n = nearest_integer(clamp(total, *_RANGE[width]))
    r = select(beyond, 0.0, (high - k) + low)
    return scale(1.0 + r * r.polynomial(table.EXP2[width]), n)


def power(x: Number, y: Number) -> Number:
    """x to the power y."""
    magnitude = x.abs()
    log_head, log_tail = _fine_log2(magnitude)
    limit = _LARGEST_EXPONENT[x.dtype.bits]
    exponent = clamp(y, -limit, limit)
    exponent_head = exponent.head()
    low = (exponent - exponent_head) * log_head + exponent * log_tail
    result = _exp2_of_sum(exponent_head * log_head, low)
    return _special(x, y, magnitude, result)


def _special(x: Number, y: Number, magnitude: Number, result: Number) -> Number:
    """``result`` = |x|^y for ordinary x, with signs and special values."""
    infinite = magnitude.equals(math.inf)
    grows = y > 0.0
    extreme = select((infinite & grows) | ~(infinite | grows), math.inf, y.like(0.0))
    result = select(infinite | magnitude.equals(0.0), extreme, result)
    whole = y.trunc().equals(y)
    half = y * 0.5
    odd = whole & half.trunc().differs(half)
    zero = x.unsigned().like(0)
    result = result.with_sign(select(odd, x.sign(), zero))
    result = select((x < 0.0) & (magnitude < math.inf) & ~whole, math.nan, result)
    result = select(x.is_nan() | y.is_nan(), math.nan, result)
    return select(y.equals(0.0) | x.equals(1.0), 1.0, result)


FUNCTIONS: dict[str, Callable[[Number, Number], Number]] = {"power": power}
BOUNDS = {"power": 2.0}
