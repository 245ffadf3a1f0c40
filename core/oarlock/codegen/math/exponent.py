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
    """x * 2^n, rounded once, for |n| up to the largest exponent and a little more, |x| below 2^30, and above 2^-30 or
    n <= 0.

    In two steps, of which the first is exact, with c half of the largest exponent: by 2^(n + c) and 2^-c up to n = 0,
    by 2^(n - c) and 2^c above.
    """
    form = n.format
    c = (form.bias + 1) // 2
    below = n < 1
    near = (n + select(below, n.like(form.bias + c), n.like(form.bias - c))) << form.stored
    return x * near.real() * select(below, x.like(2.0**-c), x.like(2.0**c))


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
