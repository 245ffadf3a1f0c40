"""Philox4x32-10 in 32-bit arithmetic: the counter-based generator of Salmon et al., "Parallel random numbers: as easy
as 1, 2, 3" (SC 2011)."""

from __future__ import annotations

from oarlock import dtypes
from oarlock.codegen.kernel import KernelBuilder
from oarlock.ir import Value

__all__ = ["random_word"]

_U32 = dtypes.uint32
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def _shift(b: KernelBuilder, name: str, x: Value, count: int) -> Value:
    return b.emit(name, (x, b.const(count, _U32)))


def _high(b: KernelBuilder, x: Value, factor: int) -> Value:
    """The upper 32 bits of x * factor, from 16-bit halves."""
    mask = b.const(0xFFFF, _U32)
    low, high = b.emit("and", (x, mask)), _shift(b, "shr", x, 16)
    f_low, f_high = b.const(factor & 0xFFFF, _U32), b.const(factor >> 16, _U32)
    cross_1 = b.mul(low, f_high)
    cross_2 = b.mul(high, f_low)
    carry = b.add(_shift(b, "shr", b.mul(low, f_low), 16), b.emit("and", (cross_1, mask)))
    carry = b.add(carry, b.emit("and", (cross_2, mask)))
    upper = b.add(b.mul(high, f_high), _shift(b, "shr", cross_1, 16))
    return b.add(b.add(upper, _shift(b, "shr", cross_2, 16)), _shift(b, "shr", carry, 16))


def random_word(b: KernelBuilder, key: tuple[Value, Value], counter: tuple[Value, Value], element: Value) -> Value:
    """Word ``element % 4`` of block ``counter + element // 4``; all uint32 but the index ``element``."""
    linear = b.raw_convert(element, _U32)
    block = _shift(b, "shr", linear, 2)
    low = b.add(counter[0], block)
    carry = b.select(b.lt(low, block), b.const(1, _U32), b.const(0, _U32))
    zero = b.const(0, _U32)
    state = [low, b.add(counter[1], carry), zero, zero]
    k0, k1 = key
    for _ in range(_ROUNDS):
        m0, m1 = (b.const(m, _U32) for m in _MULTIPLIERS)
        state = [
            b.emit("xor", (b.emit("xor", (_high(b, state[2], _MULTIPLIERS[1]), state[1])), k0)),
            b.mul(state[2], m1),
            b.emit("xor", (b.emit("xor", (_high(b, state[0], _MULTIPLIERS[0]), state[3])), k1)),
            b.mul(state[0], m0),
        ]
        k0, k1 = b.add(k0, b.const(_WEYL[0], _U32)), b.add(k1, b.const(_WEYL[1], _U32))
    word = b.emit("and", (linear, b.const(3, _U32)))
    result = state[3]
    for i in (2, 1, 0):
        result = b.select(b.eq(word, b.const(i, _U32)), state[i], result)
    return result
