"""Unary element-wise primitives: elementary functions, rounding, sign, bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ir import traits
from oarlock.ops.inference import BITS, FLOATS, NUMERIC, elementwise
from oarlock.ops.numerics import ufunc_reference
from oarlock.ops.record import Array, Record, Tolerance
from oarlock.ops.sampling import unary_samples

__all__ = ["UNARY"]

TRAITS = frozenset({traits.PURE, traits.ELEMENTWISE})

_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Array) -> Array:
    """The error function in float64 (error below 1 ulp), for the dtype of ``x``."""
    return np.asarray(_erf(x.astype(np.float64))).astype(x.dtype)


def _rounding(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` on floats; integers stay (NumPy would take some of them through floats)."""
    return lambda x: x if np.issubdtype(x.dtype, np.integer) else function(x)


def _elementary(name: str, summary: str, function: Callable[..., Any], low: float, high: float) -> Record:
    return Record(
        name,
        "elementwise",
        summary,
        ("x",),
        elementwise(name, FLOATS),
        ufunc_reference(function, elementary=True),
        dtypes=FLOATS,
        tolerance="elementary",
        traits=TRAITS,
        samples=unary_samples(low, high),
    )


def _exact(
    name: str,
    summary: str,
    function: Callable[..., Any],
    allowed: tuple[DType, ...],
    result: DType | None = None,
    tolerance: Tolerance = "exact",
) -> Record:
    return Record(
        name,
        "elementwise",
        summary,
        ("x",),
        elementwise(name, allowed, result),
        _bool_reference(function) if result else ufunc_reference(function),
        dtypes=allowed,
        tolerance=tolerance,
        traits=TRAITS,
        samples=unary_samples(-9.0, 9.0),
    )


def _bool_reference(function: Callable[..., Any]) -> Any:
    return lambda operands, attributes: (np.asarray(function(operands[0])),)


UNARY: tuple[Record, ...] = (
    _exact("sqrt", "The square root; NaN below zero.", np.sqrt, FLOATS, tolerance="arithmetic"),
    _elementary("exp", "e to the power x.", np.exp, -20.0, 20.0),
    _elementary("exp2", "2 to the power x.", np.exp2, -30.0, 30.0),
    _elementary("expm1", "exp(x) - 1, accurate near zero.", np.expm1, -2.0, 2.0),
    _elementary("log", "The natural logarithm; -inf at zero, NaN below.", np.log, 0.0, 10.0),
    _elementary("log2", "The logarithm to base 2.", np.log2, 0.0, 10.0),
    _elementary("log10", "The logarithm to base 10.", np.log10, 0.0, 10.0),
    _elementary("log1p", "log(1 + x), accurate near zero.", np.log1p, -1.0, 2.0),
    _elementary("sin", "The sine of x radians.", np.sin, -100.0, 100.0),
    _elementary("cos", "The cosine of x radians.", np.cos, -100.0, 100.0),
    _elementary("tan", "The tangent of x radians.", np.tan, -100.0, 100.0),
    _elementary("asin", "The arc sine, in [-pi/2, pi/2]; NaN outside [-1, 1].", np.arcsin, -1.0, 1.0),
    _elementary("acos", "The arc cosine, in [0, pi]; NaN outside [-1, 1].", np.arccos, -1.0, 1.0),
    _elementary("atan", "The arc tangent, in [-pi/2, pi/2].", np.arctan, -10.0, 10.0),
    _elementary("sinh", "The hyperbolic sine.", np.sinh, -10.0, 10.0),
    _elementary("cosh", "The hyperbolic cosine.", np.cosh, -10.0, 10.0),
    _elementary("tanh", "The hyperbolic tangent.", np.tanh, -5.0, 5.0),
    _elementary("asinh", "The inverse hyperbolic sine.", np.arcsinh, -10.0, 10.0),
    _elementary("acosh", "The inverse hyperbolic cosine; NaN below 1.", np.arccosh, 1.0, 10.0),
    _elementary("atanh", "The inverse hyperbolic tangent; NaN outside [-1, 1].", np.arctanh, -1.0, 1.0),
    _elementary("erf", "The error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x.", erf, -5.0, 5.0),
    _exact("negative", "-x; integers wrap.", np.negative, NUMERIC),
    _exact("abs", "|x|; the least signed integer wraps to itself.", np.abs, NUMERIC),
    _exact("sign", "-1, 0 or 1; NaN stays NaN.", np.sign, NUMERIC),
    _exact("floor", "Rounds down; integers stay.", _rounding(np.floor), NUMERIC),
    _exact("ceil", "Rounds up; integers stay.", _rounding(np.ceil), NUMERIC),
    _exact("trunc", "Rounds towards zero; integers stay.", _rounding(np.trunc), NUMERIC),
    _exact("round", "Rounds to nearest, ties to even; integers stay.", _rounding(np.rint), NUMERIC),
    _exact("isnan", "Whether x is NaN.", np.isnan, FLOATS, dtypes.bool_),
    _exact("bitwise_invert", "Every bit flipped; logical not on bool.", np.invert, BITS),
)
"""Their records."""
