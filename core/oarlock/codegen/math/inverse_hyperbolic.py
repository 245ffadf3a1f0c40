"""asinh, acosh and atanh, through log(1 + t) with t in two parts.

asinh x = log(1 + x + (sqrt(1 + x^2) - 1)), acosh x = log(1 + t + sqrt(t (t + 2))) with t = x - 1, and for large x both
are log(x) + log(2); atanh x = log(1 + 2x / (1 - x)) / 2, and near 0 the polynomial of the logarithm itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from oarlock.codegen.math import coefficients as table
from oarlock.codegen.math.logarithm import log1p_of_sum, log_of_positive, with_limits
from oarlock.codegen.math.number import Number, select

__all__ = ["BOUNDS", "FUNCTIONS"]

_LARGE = {32: 2.0**13, 64: 2.0**28}
"""From here x^2 + 1 rounds to x^2."""
_ATANH_NEAR = 0.171


def _log1p_or_log2x(high: Number, low: Number, x: Number) -> Number:
    """log(1 + high + low), or log(2 x) where x is large."""
    large = x > _LARGE[x.dtype.bits]
    u = 1.0 + high
    back = u - 1.0
    rounding = (1.0 - (u - back)) + (high - back)
    extra = select(large, 0.0, (rounding + low) / u)
    u = select(large, x, u)
    return with_limits(u, log_of_positive(u, extra, doubled=large))


def asinh(x: Number) -> Number:
    """Inverse hyperbolic sine."""
    magnitude = x.abs()
    square = magnitude * magnitude
    rest = square / (1.0 + (1.0 + square).sqrt())
    t = magnitude + rest
    return _log1p_or_log2x(t, (magnitude - t) + rest, magnitude).with_sign(x.sign())


def acosh(x: Number) -> Number:
    """Inverse hyperbolic cosine."""
    above = x - 1.0
    factor = above + 2.0
    square = above * factor
    root = square.sqrt()
    head = root.head()
    tail = root - head
    error = (((square - head * head) - 2.0 * head * tail) - tail * tail) / (root + root)  # of the root
    t = root + above
    low = ((root - t) + above) + error
    result = _log1p_or_log2x(t, select(x > 1.0, low, 0.0), x)
    return select(x < 1.0, math.nan, result)


def atanh(x: Number) -> Number:
    """Inverse hyperbolic tangent."""
    magnitude = x.abs()
    z = x * x
    near = magnitude + 0.5 * magnitude * z * z.polynomial(table.LOG[x.dtype.bits])
    left = 1.0 - magnitude
    left_low = (1.0 - left) - magnitude
    t = (magnitude + magnitude) / left
    far = 0.5 * log1p_of_sum(t, -(t * left_low) / left)
    return select(magnitude < _ATANH_NEAR, near, far).with_sign(x.sign())


FUNCTIONS: dict[str, Callable[[Number], Number]] = {"asinh": asinh, "acosh": acosh, "atanh": atanh}
BOUNDS = {"asinh": 2.0, "acosh": 2.0, "atanh": 2.0}
