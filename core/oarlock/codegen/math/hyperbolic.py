"""sinh, cosh and tanh, from the parts of the exponential.

With |x| = n log 2 + r, 2 sinh |x| = 2^n ((1 - q) cosh r + (1 + q) sinh r), q = 4^-n, and cosh with the signs exchanged:
no cancellation, also near 0 where n = 0 and q = 1.
"""

from __future__ import annotations

from collections.abc import Callable

from oarlock.codegen.math import coefficients as table
from oarlock.codegen.math.exponent import power_of_minus, scale
from oarlock.codegen.math.exponential import expm1_of_moderate, reduce_by_log2
from oarlock.codegen.math.number import Number, clamp

__all__ = ["BOUNDS", "FUNCTIONS"]

_LARGEST = {32: 90.0, 64: 711.0}
"""Beyond this sinh and cosh are infinite."""
_SATURATED = {32: 10.0, 64: 21.0}
"""From here tanh rounds to 1."""


def _parts(x: Number) -> tuple[Number, Number, Number, Number]:
    """(n, q, c, s): x >= 0 reduced, q = 4^-n, c = cosh(r) - 1, s = sinh(r)."""
    width = x.dtype.bits
    n, r, low = reduce_by_log2(x)
    z = r * r
    c = z * z.polynomial(table.COSH[width])
    s = r + (r * z * z.polynomial(table.SINH[width]) + low)
    return n, power_of_minus(n + n), c, s


def sinh(x: Number) -> Number:
    """Hyperbolic sine."""
    n, q, c, s = _parts(clamp(x.abs(), 0.0, _LARGEST[x.dtype.bits]))
    leading = 1.0 - q
    result = leading + (leading * c + (1.0 + q) * s)
    return scale(result, n - 1).with_sign(x.sign())


def cosh(x: Number) -> Number:
    """Hyperbolic cosine."""
    n, q, c, s = _parts(clamp(x.abs(), 0.0, _LARGEST[x.dtype.bits]))
    return scale(1.0 + (q + ((1.0 + q) * c + (1.0 - q) * s)), n - 1)


def tanh(x: Number) -> Number:
    """Hyperbolic tangent: e / (e + 2) with e = e^(2|x|) - 1."""
    magnitude = clamp(x.abs(), 0.0, _SATURATED[x.dtype.bits])
    above = expm1_of_moderate(magnitude + magnitude)
    return (above / (above + 2.0)).with_sign(x.sign())


FUNCTIONS: dict[str, Callable[[Number], Number]] = {"sinh": sinh, "cosh": cosh, "tanh": tanh}
BOUNDS = {"sinh": 2.0, "cosh": 1.5, "tanh": 2.5}
