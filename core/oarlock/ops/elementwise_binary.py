"""Binary element-wise primitives: arithmetic, division in its variants, power, extremes, bits, shifts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oarlock.dtypes import DType
from oarlock.ir import traits
from oarlock.ops.inference import BITS, FLOATS, INTEGERS, NUMERIC, elementwise
from oarlock.ops.numerics import narrow, precise, quiet, ufunc_reference
from oarlock.ops.record import Array, Attributes, Record, Tolerance
from oarlock.ops.sampling import Samples, binary_samples, small

__all__ = ["BINARY"]

TRAITS = frozenset({traits.PURE, traits.ELEMENTWISE})


def integer_power(base: Array, exponent: Array) -> Array:
    """Integer power that wraps; a negative exponent gives 0 unless the base is 1 or -1. Broadcasts."""
    base, exponent = np.broadcast_arrays(base, exponent)
    zero = exponent.dtype.type(0)
    result = np.power(base, np.maximum(exponent, zero))
    inverse = np.where(
        base == 1, base, np.where((base + base.dtype.type(1)) == 0, _alternating(exponent), base.dtype.type(0))
    )
    return np.where(exponent < 0, inverse, result).astype(base.dtype)


def _alternating(exponent: Array) -> Array:
    one = exponent.dtype.type(1)
    return np.asarray(one - (exponent & one) - (exponent & one))


@quiet
def _power(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    base, exponent = operands
    if np.issubdtype(base.dtype, np.integer):
        return (integer_power(base, exponent),)
    return (narrow(np.power(precise(base), precise(exponent)), base.dtype),)


@quiet
def _nextafter(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, y = operands
    return (np.where(x == y, y, np.nextafter(x, y)),)


def _define(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    allowed: tuple[DType, ...],
    *,
    tolerance: Tolerance = "exact",
    commutative: bool = False,
    samples: Samples | None = None,
) -> Record:
    return Record(
        name,
        "elementwise",
        summary,
        ("x", "y"),
        elementwise(name, allowed),
        reference,
        dtypes=allowed,
        tolerance=tolerance,
        traits=TRAITS | ({traits.COMMUTATIVE} if commutative else frozenset()),
        samples=samples or binary_samples(),
    )


BINARY: tuple[Record, ...] = (
    _define("add", "x + y; integers wrap.", ufunc_reference(np.add), NUMERIC, tolerance="arithmetic", commutative=True),
    _define("subtract", "x - y; integers wrap.", ufunc_reference(np.subtract), NUMERIC, tolerance="arithmetic"),
    _define(
        "multiply",
        "x * y; integers wrap.",
        ufunc_reference(np.multiply),
        NUMERIC,
        tolerance="arithmetic",
        commutative=True,
    ),
    _define("divide", "x / y.", ufunc_reference(np.divide), FLOATS, tolerance="arithmetic"),
    _define(
        "floor_divide",
        "The quotient rounded down. Integers: 0 where y is 0. Floats: (x - remainder(x, y)) / y to the nearest "
        "integer, x / y where y is 0.",
        ufunc_reference(np.floor_divide),
        NUMERIC,
        tolerance="arithmetic",
    ),
    _define(
        "remainder",
        "x - y * floor(x / y), exactly, with the sign of y; integers by zero give 0.",
        ufunc_reference(np.remainder),
        NUMERIC,
        tolerance="arithmetic",
    ),
    _define(
        "trunc_remainder",
        "x - y * trunc(x / y), exactly, with the sign of x (C's fmod); integers by zero give 0.",
        ufunc_reference(np.fmod),
        NUMERIC,
    ),
    _define(
        "power",
        "x to the power y; integers wrap, and a negative exponent gives 0 unless x is 1 or -1.",
        _power,
        NUMERIC,
        tolerance="power",
        samples=binary_samples(small),
    ),
    _define(
        "atan2",
        "The angle in [-pi, pi] of the point whose ordinate is x and whose abscissa is y (C's atan2(x, y)).",
        ufunc_reference(np.arctan2, elementary=True),
        FLOATS,
        tolerance="elementary",
    ),
    _define("maximum", "The larger; NaN where either is.", ufunc_reference(np.maximum), NUMERIC, commutative=True),
    _define("minimum", "The smaller; NaN where either is.", ufunc_reference(np.minimum), NUMERIC, commutative=True),
    _define("bitwise_and", "And, bit by bit.", ufunc_reference(np.bitwise_and), BITS, commutative=True),
    _define("bitwise_or", "Or, bit by bit.", ufunc_reference(np.bitwise_or), BITS, commutative=True),
    _define("bitwise_xor", "Exclusive or, bit by bit.", ufunc_reference(np.bitwise_xor), BITS, commutative=True),
    _define(
        "left_shift",
        "x shifted left by y bits; 0 where y is not in [0, width).",
        ufunc_reference(np.left_shift),
        INTEGERS,
        samples=binary_samples(small),
    ),
    _define(
        "right_shift",
        "x shifted right by y bits, keeping the sign; 0, or -1 where x < 0, where y is not in [0, width).",
        ufunc_reference(np.right_shift),
        INTEGERS,
        samples=binary_samples(small),
    ),
    _define("nextafter", "The next value of the dtype after x towards y; y where they are equal.", _nextafter, FLOATS),
    _define("copysign", "|x| with the sign bit of y.", ufunc_reference(np.copysign), FLOATS),
)
"""Their records."""
