"""sin, cos and tan: reduction by multiples of pi/2, then polynomials for sine and cosine on [-pi/4, pi/4]."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from oarlock.codegen.math import coefficients as table
from oarlock.codegen.math.number import Number, select
from oarlock.codegen.math.reduction import Reduced, reduce_by_half_pi

__all__ = ["BOUNDS", "FUNCTIONS"]


@dataclass(frozen=True, slots=True)
class Sum:
    """A number as a leading term and a correction."""

    leading: Number
    rest: Number

    def total(self) -> Number:
        return self.leading + self.rest

    def where(self, condition: Number, other: Sum) -> Sum:
        """This where ``condition`` holds, else ``other``."""
        return Sum(select(condition, self.leading, other.leading), select(condition, self.rest, other.rest))


def _sine_cosine(reduced: Reduced) -> tuple[Sum, Sum]:
    """Sine and cosine of r + low."""
    r, low = reduced.r, reduced.low
    width = r.dtype.bits
    z = r * r
    half = 0.5 * z
    leading = 1.0 - half
    rest = ((1.0 - leading) - half) + (z * z * z.polynomial(table.COS[width]) - r * low)
    return Sum(r, r * z * z.polynomial(table.SIN[width]) + low), Sum(leading, rest)


def _bit(n: Number, bit: int) -> Number:
    return (n & (1 << bit)).differs(0)


def _signed(n: Number) -> Number:
    """The sign bit of sine in quadrant n."""
    return ((n & 2).unsigned() << (n.dtype.bits - 2)) & n.format.sign_bit


def _finite(x: Number, result: Number) -> Number:
    return select(x.abs() < math.inf, result, math.nan)


def sin(x: Number) -> Number:
    """Sine."""
    reduced = reduce_by_half_pi(x.abs())
    sine, cosine = _sine_cosine(reduced)
    result = cosine.where(_bit(reduced.n, 0), sine).total()
    return _finite(x, (result.unsigned() ^ _signed(reduced.n) ^ x.sign()).real())


def cos(x: Number) -> Number:
    """Cosine."""
    reduced = reduce_by_half_pi(x.abs())
    sine, cosine = _sine_cosine(reduced)
    result = sine.where(_bit(reduced.n, 0), cosine).total()
    return _finite(x, (result.unsigned() ^ _signed(reduced.n + 1)).real())


def tan(x: Number) -> Number:
    """Tangent: the quotient, corrected for what rounding its terms lost."""
    reduced = reduce_by_half_pi(x.abs())
    sine, cosine = _sine_cosine(reduced)
    odd = _bit(reduced.n, 0)
    above, below = cosine.where(odd, sine), sine.where(odd, cosine)
    numerator, denominator = above.total(), below.total()
    above_low = (above.leading - numerator) + above.rest
    below_low = (below.leading - denominator) + below.rest
    ratio = numerator / denominator
    ratio = ratio + (above_low - ratio * below_low) / denominator
    flip = ((reduced.n & 1).unsigned() << (x.dtype.bits - 1)) ^ x.sign()
    return _finite(x, (ratio.unsigned() ^ flip).real())


FUNCTIONS: dict[str, Callable[[Number], Number]] = {"sin": sin, "cos": cos, "tan": tan}
BOUNDS = {"sin": 1.5, "cos": 1.5, "tan": 2.0}
