"""Arguments of sin, cos and tan: |x| less the nearest multiple of pi/2, in two parts, for every finite x.

Up to a few hundred turns: subtraction of k pi/2 with pi/2 in short parts (Cody & Waite). Beyond: the digits of 2/pi
that matter for the exponent of x are multiplied by its significand as integers (Payne & Hanek, Radian reduction for
trigonometric functions, 1983), with integers of the float's own width. Both keep what rounding loses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from oarlock.codegen.kernel.builder import lanes_of
from oarlock.codegen.math import coefficients as table
from oarlock.codegen.math.exponent import nearest_integer, small_integer
from oarlock.codegen.math.number import Number, select

__all__ = ["Reduced", "reduce_by_half_pi"]

_MODERATE = {32: 1500.0, 64: 1.5e6}
"""Up to here the multiples of the short parts of pi/2 are exact."""
_HEAD_BITS = {32: 12, 64: 26}


@dataclass(frozen=True, slots=True)
class Reduced:
    """|x| = n pi/2 + r + low (n a signed integer, right modulo 4), |r| <= pi/4 about, ``low`` below r's last bit."""

    n: Number
    r: Number
    low: Number


def reduce_by_half_pi(magnitude: Number) -> Reduced:
    """Reduce a non-negative float; arbitrary for infinity and NaN."""
    moderate = magnitude < _MODERATE[magnitude.dtype.bits]
    if lanes_of(magnitude.value) > 1:
        near, far = _by_subtraction(magnitude), _by_digits(magnitude)
        return Reduced(*(select(moderate, a, b) for a, b in zip(near, far, strict=True)))
    b = magnitude.b
    results = b.branch(
        moderate.value,
        lambda: [part.value for part in _by_subtraction(magnitude)],
        lambda: [part.value for part in _by_digits(magnitude)],
    )
    return Reduced(*(Number(b, result) for result in results))


def _by_subtraction(x: Number) -> tuple[Number, Number, Number]:
    p0, p1, p2, p3 = table.HALF_PI_SHORT[x.dtype.bits]
    k, n = nearest_integer(x * (2 / math.pi))
    r0 = x - k * p0  # exact, as are the products with p1 and p2
    r1 = r0 - k * p1
    low1 = (r0 - r1) - k * p1
    r2 = r1 - k * p2
    low2 = (r1 - r2) - k * p2
    low = (low1 + low2) - k * p3
    r = r2 + low
    return n, r, (r2 - r) + low


def _by_digits(x: Number) -> tuple[Number, Number, Number]:
    high, low = _turns(x)
    return _radians(high, low)


def _turns(x: Number) -> tuple[Number, Number]:
    """x 2/pi modulo 4 as an unsigned fixed-point number of two words; the first has two bits before the point.

    With x = M 2^E for an integer M, only the digits of 2/pi from weight 2^(1-E) down to three words on matter: what
    stands before gives multiples of 4.
    """
    form, width = x.format, x.dtype.bits
    bits = x.unsigned()
    exponent = (bits >> form.stored).signed()
    significand = (bits & ((1 << form.stored) - 1)) | (1 << form.stored)
    skipped = (exponent - (form.bias + form.stored + 2 - width)).unsigned()
    a, b, c = _digits(skipped)
    half = width // 2
    ones = (1 << half) - 1
    m1, m0 = significand >> half, significand & ones
    b1, b0 = b >> half, b & ones
    middle = ((m0 * b0) >> half) + m1 * b0 + ((m0 * b1) & ones)
    high_of_b = m1 * b1 + ((m0 * b1) >> half) + (middle >> half)
    c1, c0 = c >> half, c & ones
    high_of_c = m1 * c1 + ((m0 * c1) >> half) + ((m1 * c0) >> half)  # but for two units in the last place
    low = significand * b + high_of_c
    carry = select(low < high_of_c, low.like(1), low.like(0))
    return significand * a + high_of_b + carry, low


def _digits(skipped: Number) -> tuple[Number, Number, Number]:
    """Three words of the digits of 2/pi, behind a word of zeros, after ``skipped`` bits."""
    width = skipped.dtype.bits
    words: list[Number | int] = [0, *table.TWO_OVER_PI[width]]
    index = skipped >> (width.bit_length() - 1)
    for stage in (16, 8, 4, 2, 1) if width == 64 else (4, 2, 1):
        chosen = (index & stage).differs(0)
        kept = min(stage + 3, len(words))
        words = [
            _choose(chosen, words[i + stage], words[i], skipped) if i + stage < len(words) else words[i]
            for i in range(kept)
        ]
    shift = skipped & (width - 1)
    back = (width - 1) - shift
    numbers = [word if isinstance(word, Number) else skipped.like(word) for word in words]
    a, b, c = (
        (word << shift) | ((following >> 1) >> back) for word, following in zip(numbers[:3], numbers[1:], strict=True)
    )
    return a, b, c


def _choose(condition: Number, yes: Number | int, no: Number | int, like: Number) -> Number:
    first, second = (v if isinstance(v, Number) else like.like(v) for v in (yes, no))
    return select(condition, first, second)


def _radians(high: Number, low: Number) -> tuple[Number, Number, Number]:
    """(n, r, low) of a fixed-point number of quarter turns."""
    width = high.dtype.bits
    unit = width - 2  # the first word's last bit is 2^-unit
    half = width // 2
    n = (high + (1 << (unit - 1))) >> unit
    fraction = (high - (n << unit)).signed()
    cut = unit - 1 - _HEAD_BITS[width]
    head_bits = (fraction + (1 << (cut - 1))) >> cut
    rest_bits = fraction - (head_bits << cut)
    head = small_integer(head_bits) * 2.0 ** (cut - unit)
    rest = small_integer(rest_bits) * 2.0**-unit
    upper, lower = (low >> half).signed(), (low & ((1 << half) - 1)).signed()
    last = small_integer(upper) * 2.0 ** (-unit - half) + small_integer(lower) * 2.0 ** (-unit - width)
    first = head + rest  # head is 0 or larger than rest
    turns = first + last  # likewise
    turns_low = ((head - first) + rest) + ((first - turns) + last)
    p0, p1 = table.HALF_PI_HALVES[width]
    turns_head = turns.head()
    leading = turns_head * p0  # exact
    tail = (turns - turns_head) * p0 + (turns * p1 + turns_low * (math.pi / 2))
    r = leading + tail
    return n.signed(), r, (leading - r) + tail
