"""asin, acos, atan and atan2: polynomials near 0, identities elsewhere, and multiples of pi/4 added in two parts.

asin x = pi/2 - 2 asin sqrt((1 - x) / 2) for x > 1/2; atan q = pi/4 + atan((q - 1) / (q + 1)) for q > 1/2, where the
numerator is exact, with one division: numerator and denominator are chosen first (see Cody & Waite, chapters 10, 11).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from oarlock.codegen.math import coefficients as table
from oarlock.codegen.math.number import Number, select

__all__ = ["BOUNDS", "FUNCTIONS"]


def _asin_parts(x: Number) -> tuple[Number, Number, Number]:
    """(far, s, t): asin|x| = s + t where not ``far``, else pi/2 - 2 (s + t); NaN where |x| > 1."""
    magnitude = x.abs()
    far = magnitude > 0.5
    z = select(far, (1.0 - magnitude) * 0.5, magnitude * magnitude)
    s = select(far, z.sqrt(), magnitude)
    return far, s, s * z * z.polynomial(table.ASIN[x.dtype.bits])


def asin(x: Number) -> Number:
    """Arc sine."""
    far, s, t = _asin_parts(x)
    high, low = table.HALF_PI[x.dtype.bits]
    doubled = s + s
    leading = high - doubled
    beyond = leading + (((high - leading) - doubled) + (low - (t + t)))
    return select(far, beyond, s + t).with_sign(x.sign())


def acos(x: Number) -> Number:
    """Arc cosine."""
    far, s, t = _asin_parts(x)
    high, low = table.HALF_PI[x.dtype.bits]
    negative = x < 0.0
    doubled, doubled_tail = s + s, t + t
    beyond = select(negative, (2 * high - doubled) + (2 * low - doubled_tail), doubled + doubled_tail)
    near = (high - x) + (low - select(negative, -t, t))
    return select(far, beyond, near)


def _angle(numerator: Number, denominator: Number, swapped: Number, negative: Number | None) -> Number:
    """atan of a ratio in [0, 1]; from pi/2 where ``swapped``; from pi where ``negative``."""
    near = numerator <= denominator * 0.5
    above = select(near, numerator, numerator - denominator)
    below = select(near, denominator, numerator + denominator)
    q = above / below
    z = q * q
    tail = q * z * z.polynomial(table.ATAN[q.dtype.bits])
    # the angle is a multiple of pi/2 plus or minus atan q
    multiple = select(near, select(swapped, q.like(1.0), q.like(0.0)), 0.5)
    minus = swapped
    if negative is not None:
        multiple = select(negative, 2.0 - multiple, multiple)
        minus = swapped ^ negative
    high, low = table.HALF_PI_HALVES[q.dtype.bits]
    q, tail = select(minus, -q, q), select(minus, -tail, tail)
    leading = multiple * high  # exact; 0 or larger than q
    total = leading + q
    return total + ((q - (total - leading)) + (multiple * low + tail))


def atan(x: Number) -> Number:
    """Arc tangent."""
    magnitude = x.abs()
    swapped = magnitude > 1.0
    numerator = select(swapped, 1.0, magnitude)
    denominator = select(swapped, magnitude, 1.0)
    return _angle(numerator, denominator, swapped, None).with_sign(x.sign())


def atan2(y: Number, x: Number) -> Number:
    """The angle of (x, y), in [-pi, pi]."""
    across, up = x.abs(), y.abs()
    swapped = up > across
    numerator, denominator = select(swapped, across, up), select(swapped, up, across)
    infinite = denominator.equals(math.inf)
    numerator = select(infinite, select(numerator.equals(math.inf), y.like(1.0), y.like(0.0)), numerator)
    denominator = select(infinite | denominator.equals(0.0), 1.0, denominator)
    # the sum of both must not overflow
    factor = select(denominator > 2.0 ** (x.format.bias - 1), x.like(0.25), x.like(1.0))
    angle = _angle(numerator * factor, denominator * factor, swapped, x.signed() < 0)
    return select(x.is_nan() | y.is_nan(), math.nan, angle).with_sign(y.sign())


FUNCTIONS: dict[str, Callable[..., Number]] = {"asin": asin, "acos": acos, "atan": atan, "atan2": atan2}
BOUNDS = {"asin": 1.5, "acos": 1.5, "atan": 1.5, "atan2": 2.0}
