"""fmod, exactly: long division of the significands as integers, a few bits a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from oarlock.codegen.kernel.builder import NotVectorisable, lanes_of
from oarlock.codegen.math.exponent import scale
from oarlock.codegen.math.number import Number, select
from oarlock.ir import Value

__all__ = ["BOUNDS", "FUNCTIONS"]


def fmod(x: Number, y: Number) -> Number:
    """x less the multiple of y that leaves a remainder of x's sign, smaller than y; scalars only, as it loops.

    NaN for infinite x or zero y; x for infinite y.
    """
    if lanes_of(x.value) > 1:
        raise NotVectorisable("fmod loops, each element at its own length: it takes scalars, not vectors")
    form = x.format
    spare = x.dtype.bits - form.stored - 1
    exponent, significand = _parts(x)
    exponent_y, divisor = _parts(y)
    divisor = select(divisor.equals(0), 1, divisor)
    distance = exponent - exponent_y
    distance = select(distance < 0, 0, distance).unsigned()
    b = x.b

    def step(_: Value, carried: Sequence[Value]) -> list[Value]:
        return [((Number(b, carried[0]) << spare) % divisor).value]

    first = significand % divisor
    count = distance // spare
    left = b.loop(b.i(0), count.convert(b.index).value, step, [first.value])[0]
    rest = (Number(b, left) << (distance - count * spare)) % divisor
    result = scale(rest.signed().convert(x.dtype), exponent_y - (form.bias + form.stored))
    magnitude, magnitude_y = x.abs(), y.abs()
    result = select(magnitude < magnitude_y, magnitude, result)
    ordinary = (magnitude < math.inf) & (magnitude_y > 0.0)
    return select(ordinary, result, math.nan).with_sign(x.sign())


def _parts(x: Number) -> tuple[Number, Number]:
    """(exponent, significand): |x| = significand 2^(exponent - bias - stored), the exponent at least 1."""
    form = x.format
    bits = x.unsigned()
    exponent = ((bits >> form.stored) & (2 * form.bias + 1)).signed()
    fraction = bits & ((1 << form.stored) - 1)
    subnormal = exponent.equals(0)
    return select(subnormal, 1, exponent), select(subnormal, fraction, fraction | (1 << form.stored))


FUNCTIONS: dict[str, Callable[[Number, Number], Number]] = {"fmod": fmod}
BOUNDS = {"fmod": 0.0}
