"""Taking floats apart into exponent and significand, and putting them together."""

from __future__ import annotations

from oarlock.codegen.math.number import Number, select

__all__ = ["decompose", "nearest_integer", "power_of_minus", "power_of_two", "scale", "small_integer"]

_SQRT_HALF = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}
"""The bits of sqrt(1/2)."""


def nearest_integer(x: Number, factor: float = 1.0) -> tuple[Number, Number]:
    """An integer nearest to ``x * factor``, as float and as signed integer; arbitrary unless below 2^(stored - 1)."""
    shift = x.format.rounding_shift
    shifted = x + shift if factor == 1.0 else x.times_plus(factor, shift)
    return shifted - x.format.rounding_shift, shifted.signed() - x.format.rounding_shift_bits


def power_of_two(n: Number) -> Number:
    """2^n for a signed integer in the range of normal exponents."""
    return ((n + n.format.bias) << n.format.stored).real()


def power_of_minus(n: Number) -> Number:
    """2^-n where that is normal, else the least normal number, for n above minus the largest exponent."""
    least = n.like(1 - n.format.bias)
    exponent = n.like(0) - n
    return power_of_two(select(exponent < least, least, exponent))


def scale(x: Number, n: Number) -> Number:
    """x * 2^n, rounded once, for |n| up to twice the largest exponent and |x| near 1.

    In two steps, of which the first is exact; the halves are found by a logical shift, which all vector units have.
    """
    form = n.format
    halved = (n.unsigned() + 2 * (form.bias + 1)) >> 1
    first = halved.signed() - (form.bias + 1)
    return x * power_of_two(first) * power_of_two(n - first)


def decompose(x: Number) -> tuple[Number, Number]:
    """(k, m) with x = m 2^k, m in [sqrt(1/2), sqrt(2)), both floats, for positive finite x; subnormal x is fine.

    For zero, infinity and NaN the results are finite and arbitrary.
    """
    form = x.format
    subnormal = x < form.least_normal
    lift = form.stored + 2
    bits = select(subnormal, x * 2.0**lift, x).signed()
    base = _SQRT_HALF[x.dtype.bits]
    # the biased exponent of x / sqrt(1/2) is positive: a logical shift
    above = (bits.unsigned() + ((form.bias << form.stored) - base)) >> form.stored
    k = above.signed() - form.bias
    m = (bits - (k << form.stored)).real()
    return small_integer(k - select(subnormal, k.like(lift), k.like(0))), m


def small_integer(k: Number) -> Number:
    """A signed integer below 2^(stored - 1) as a float, by its bits: few vector units convert 64-bit integers."""
    return (k + k.format.rounding_shift_bits).real() - k.format.rounding_shift
