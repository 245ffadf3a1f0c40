"""erf: a polynomial near 0, and 1 - exp(polynomial - x^2) where erfc is small.

log(erfc(x)) + x^2 is smooth and small, so one polynomial serves from 1 to where erf rounds to 1; erfc is at most 0.16
there, so that its relative error counts little.
"""

from __future__ import annotations

from collections.abc import Callable

from oarlock.codegen.math import coefficients as table
from oarlock.codegen.math.exponential import exp_of_moderate
from oarlock.codegen.math.number import Number, clamp, select

__all__ = ["BOUNDS", "FUNCTIONS"]

_ONE = {32: 4.0, 64: 6.0}
"""From here erf rounds to 1."""
_FAR = {32: (2.0, table.ERFC[32]), 64: (3.0, table.ERFC_WIDE[64])}
"""Centre and coefficients of log(erfc(x)) + x^2."""


def erf(x: Number) -> Number:
    """Error function."""
    width = x.dtype.bits
    magnitude = x.abs()
    z = x * x
    near = magnitude + magnitude * z.polynomial(table.ERF[width])
    centre, coefficients = _FAR[width]
    limited = clamp(magnitude, 1.0, _ONE[width])
    far = 1.0 - exp_of_moderate((limited - centre).polynomial(coefficients) - limited * limited)
    return select(magnitude < 1.0, near, far).with_sign(x.sign())


FUNCTIONS: dict[str, Callable[[Number], Number]] = {"erf": erf}
BOUNDS = {"erf": 1.5}
