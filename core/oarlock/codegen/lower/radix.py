"""Sorting by digits: one stable pass over each row, by some bits of a number that orders as the keys do.

A pass counts how often each digit occurs, adds these up to where each digit begins, and moves every key there in turn
(Knuth, The Art of Computer Programming, volume 3, section 5.2.5).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from oarlock import dtypes
from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.kernel.builder import dtype_of
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.values import shape_of
from oarlock.dtypes import DType
from oarlock.ir import Value

if TYPE_CHECKING:
    from oarlock.codegen.lower.solitary import Solitary

__all__ = ["digits", "key_bits", "radix_pass"]

LONG = 2048
"""From this many keys a row, digits of eleven bits are worth their longer table of counts; below, of eight."""


def key_bits(dtype: DType) -> int:
    """How many bits of ``ordered`` tell keys of ``dtype`` apart."""
    if dtype.kind == "bool":
        return 1
    return max(32, dtype.bits) if dtype.is_float else dtype.bits


def digits(dtype: DType, length: int) -> list[tuple[int, int]]:
    """(first bit, number of bits) of the digits of a key, the least significant first, for rows of ``length``.

    All have the same number of bits, so that one kernel does all passes.
    """
    bits = key_bits(dtype)
    count = -(-bits // (11 if length >= LONG else 8))
    each = -(-bits // count)
    return [(low, each) for low in range(0, bits, each)]


def ordered(b: KernelBuilder, key: Value, descending: bool) -> Value:
    """An unsigned number that orders as ``key`` does: both zeros alike, NaN above all, or below all of a sort that is
    ``descending``."""
    dtype = dtype_of(key)
    bits = max(32, dtype.bits)
    signed, unsigned = (dtypes.int32, dtypes.uint32) if bits == 32 else (dtypes.int64, dtypes.uint64)
    if not dtype.is_float:
        least = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
        number = b.bitcast(b.convert(key, signed), unsigned) if dtype.kind == "int" else b.convert(key, unsigned)
        return b.sub(number, b.const(least, unsigned))
    real = dtypes.float32 if bits == 32 else dtypes.float64
    x = b.convert(key, real)
    x = b.select(b.eq(x, b.const(0, real)), b.const(0, real), x)
    raw = b.bitcast(x, signed)
    negative = b.lt(raw, b.const(0, signed))
    turned = b.select(negative, b.const(-1, signed), b.const(1 << (bits - 1), signed))
    number = b.emit("xor", (b.bitcast(raw, unsigned), b.bitcast(turned, unsigned)))
    return b.select(b.is_nan(x), b.const(0 if descending else (1 << bits) - 1, unsigned), number)


def radix_pass(s: Solitary) -> KernelCall:
    """One visit moves the keys of a row, and what travels with them, to where the digit says."""
    e, b = s.e, s.e.b
    keys = s.op.operands[0]
    shape = shape_of(keys)
    shift, bits, descending = (s.op.attributes[name] for name in ("shift", "bits", "descending"))
    assert isinstance(shift, int) and isinstance(bits, int)
    size = e.size(shape[s.axis], keys, s.axis)
    counts = b.private(b.index, 1 << bits)
    last = b.i((1 << bits) - 1)
    first = e.parameter(shift, dtypes.int32)

    def digit(lane: list[Value], i: Value) -> Value:
        number = ordered(b, e.value(keys, s.at(keys, lane, i)), bool(descending))
        number = b.emit("shr", (number, b.convert(first, dtype_of(number))))
        return b.emit("and", (b.raw_convert(number, b.index), last))

    def clear(d: Value, _: list[Value]) -> list[Value]:
        b.store(counts, d, b.i(0))
        return []

    def begin(i: Value, carried: list[Value]) -> list[Value]:
        d = b.sub(last, i) if descending else i
        here = b.load(counts, d)
        b.store(counts, d, carried[0])
        return [b.add(carried[0], here)]

    def visit(row: Value) -> None:
        lane = s.lane(keys, row)

        def count(i: Value, _: list[Value]) -> list[Value]:
            d = digit(lane, i)
            b.store(counts, d, b.add(b.load(counts, d), b.i(1)))
            return []

        def move(i: Value, _: list[Value]) -> list[Value]:
            d = digit(lane, i)
            place = b.load(counts, d)
            b.store(counts, d, b.add(place, b.i(1)))
            for operand, result in zip(s.op.operands, s.op.results, strict=True):
                e.store(result, s.at(result, lane, place), e.value(operand, s.at(operand, lane, i)))
            return []

        e.loop(b.i(0), b.i(1 << bits), clear)
        e.loop(b.i(0), size, count)
        e.loop(b.i(0), b.i(1 << bits), begin, [b.i(0)])
        e.loop(b.i(0), size, move)

    rows = math.prod(d for i, d in enumerate(shape) if i != s.axis)
    return s.call(s.walk(rows, visit, 2 * shape[s.axis]), "radix_pass")
