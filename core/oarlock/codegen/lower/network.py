"""Sorting many short rows: a block sorts as many rows at once as a vector has lanes, by a network of exchanges.

Every row takes the same steps, so the rows lie side by side in private memory, position by position, and a step
exchanges two vectors. The network merges as Batcher's bitonic sort does (Knuth, The Art of Computer Programming,
volume 3, section 5.3.4). It is not stable by itself: where positions are asked for, keys that are equal are told apart
by theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from oarlock import dtypes
from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.kernel.builder import dtype_of
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.lower.radix import key_bits
from oarlock.codegen.values import shape_of
from oarlock.dtypes import DType
from oarlock.ir import Value
from oarlock.ops import tensor

if TYPE_CHECKING:
    from oarlock.codegen.lower.solitary import Solitary

__all__ = ["sort_rows"]

BLOCK = 16
"""Vectors that are sorted in registers: half as many keys where positions travel with them."""
SELECTED = 4
"""Chunks of a row from which on the first keys are selected, rather than all sorted."""


def rank(b: KernelBuilder, key: Value, descending: bool, ties: bool) -> Value:
    """A signed number that orders as ``key`` does, NaN last either way; with ``ties`` both zeros give the same."""
    dtype = dtype_of(key)
    bits = max(32, dtype.bits)
    signed, unsigned = (dtypes.int32, dtypes.uint32) if bits == 32 else (dtypes.int64, dtypes.uint64)
    if not dtype.is_float:
        if dtype.kind == "uint" and dtype.bits == bits:
            flipped = b.emit("xor", (key, b.const(1 << (bits - 1), unsigned)))
            number = b.bitcast(flipped, signed)
        else:
            number = b.convert(key, signed)
        return b.emit("not", (number,)) if descending else number
    real = dtypes.float32 if bits == 32 else dtypes.float64
    x = b.convert(key, real)
    missing = b.is_nan(x)
    if ties:
        x = b.select(b.eq(x, b.const(0, real)), b.const(0, real), x)
    number = _turned(b, b.bitcast(x, signed))
    number = b.emit("not", (number,)) if descending else number
    return b.select(missing, b.const((1 << (bits - 1)) - 1, signed), number)


def _turned(b: KernelBuilder, raw: Value) -> Value:
    """The bits of a float as a number that orders as it does, and back: those of a negative one but for its sign."""
    dtype = dtype_of(raw)
    sign = b.emit("shr", (raw, b.const(dtype.bits - 1, dtype)))
    return b.emit("xor", (raw, b.emit("and", (sign, b.const((1 << (dtype.bits - 1)) - 1, dtype)))))


def unrank(b: KernelBuilder, number: Value, dtype: DType, descending: bool) -> Value:
    """The key of ``dtype`` that ``rank`` without ties made ``number`` of; any NaN for that of a NaN."""
    signed = dtype_of(number)
    number = b.emit("not", (number,)) if descending else number
    if dtype.is_float:
        real = dtypes.float32 if signed.bits == 32 else dtypes.float64
        return b.convert(b.bitcast(_turned(b, number), real), dtype)
    if dtype.kind == "uint" and dtype.bits == signed.bits:
        return b.emit("xor", (b.bitcast(number, dtype), b.const(1 << (dtype.bits - 1), dtype)))
    return b.convert(number, dtype)


class _Keys:
    """The keys of as many rows as there are lanes, and their positions where these are asked for."""

    def __init__(self, b: KernelBuilder, dtype: DType, capacity: int, lanes: int, positions: bool) -> None:
        signed = dtypes.int64 if max(32, key_bits(dtype)) > 32 else dtypes.int32
        self.b, self.lanes = b, lanes
        kinds = [signed, b.index] if positions else [signed]
        self.memory = [b.private(kind, capacity * lanes) for kind in kinds]
        self.block = BLOCK // len(kinds)

    def none(self, position: Value) -> list[Value]:
        """What stands behind all keys, in place of one past the end of a row."""
        kind = dtype_of(self.memory[0])
        return [self.b.const((1 << (kind.bits - 1)) - 1, kind), position][: len(self.memory)]

    def at(self, position: Value, lane: Value | None = None) -> Value:
        place = self.b.mul(position, self.b.i(self.lanes))
        return place if lane is None else self.b.add(place, lane)

    def load(self, position: Value) -> list[Value]:
        return [self.b.load(memory, self.at(position), self.lanes) for memory in self.memory]

    def store(self, position: Value, vectors: list[Value]) -> None:
        for memory, vector in zip(self.memory, vectors, strict=True):
            self.b.store(memory, self.at(position), vector)

    def ordered(self, x: list[Value], y: list[Value]) -> tuple[list[Value], list[Value]]:
        """Lane by lane, what stands first and what stands last."""
        b = self.b
        if len(x) == 1:
            return [b.min(x[0], y[0])], [b.max(x[0], y[0])]
        swap = b.or_(b.lt(y[0], x[0]), b.and_(b.eq(y[0], x[0]), b.lt(y[1], x[1])))
        first, last = [b.min(x[0], y[0])], [b.max(x[0], y[0])]
        # not by a choice: what is stored where it may have been loaded from would become a store under a mask, which
        # some processors are slow at
        change = b.select(swap, b.sub(y[1], x[1]), b.const(0, dtype_of(x[1]), self.lanes))
        return [*first, b.add(x[1], change)], [*last, b.sub(y[1], change)]


class _Rows:
    """Rows of the operand in groups of as many as there are lanes, read into and written from their keys."""

    def __init__(self, s: Solitary, capacity: int) -> None:
        (self.x,) = s.op.operands
        self.s, self.shape = s, shape_of(self.x)
        self.descending, self.positions = bool(s.op.attributes["descending"]), len(s.op.results) == 2
        self.lanes, dtype = s.target.limits.vector_width, tensor(self.x).dtype
        self.rows = math.prod(d for i, d in enumerate(self.shape) if i != s.axis)
        self.size, self.count = s.e.size(self.shape[s.axis], self.x, s.axis), s.e.size(self.rows, "rows")
        self.keys = _Keys(s.e.b, dtype, capacity, self.lanes, self.positions)

    def lane(self, group: Value, r: Value) -> list[Value]:
        """Where row ``r`` of a group lies; past the last row, the last."""
        b = self.s.e.b
        row = b.add(b.mul(group, b.i(self.lanes)), r)
        return self.s.lane(self.x, b.min(row, b.sub(self.count, b.i(1))))

    def read(self, group: Value, first: Value, many: Value) -> None:
        """So many keys of each row, from position ``first`` on."""
        s, e, b = self.s, self.s.e, self.s.e.b

        def row(r: Value, _: list[Value]) -> list[Value]:
            lane = self.lane(group, r)

            def one(j: Value, _: list[Value]) -> list[Value]:
                position = b.add(first, j)
                number = rank(b, e.value(self.x, s.at(self.x, lane, position)), self.descending, self.positions)
                for memory, element in zip(self.keys.memory, (number, position), strict=False):
                    b.store(memory, self.keys.at(j, r), element)
                return []

            e.loop(b.i(0), many, one)
            return []

        e.loop(b.i(0), b.i(self.lanes), row)

    def fill(self, first: Value, low: Value, high: Value) -> None:
        """Nothing from ``low`` to ``high``, which are counted from position ``first`` on."""
        b = self.s.e.b

        def one(j: Value, _: list[Value]) -> list[Value]:
            self.keys.store(j, [b.splat(part, self.lanes) for part in self.keys.none(b.add(first, j))])
            return []

        b.loop(low, high, one)

    def write(self, group: Value) -> None:
        """The first keys as the results' values, and where they came from."""
        s, e, b = self.s, self.s.e, self.s.e.b
        values = s.op.results[0]
        dtype = tensor(values).dtype
        wanted = e.size(shape_of(values)[s.axis], values, s.axis)

        def row(r: Value, _: list[Value]) -> list[Value]:
            lane = self.lane(group, r)

            def one(j: Value, _: list[Value]) -> list[Value]:
                found = [b.load(memory, self.keys.at(j, r)) for memory in self.keys.memory]
                if self.positions:
                    value = e.value(self.x, s.at(self.x, lane, found[1]))
                    e.store(s.op.results[1], s.at(values, lane, j), b.convert(found[1], dtypes.int32))
                else:
                    value = unrank(b, found[0], dtype, self.descending)
                e.store(values, s.at(values, lane, j), value)
                return []

            e.loop(b.i(0), wanted, one)
            return []

        rest = b.sub(self.count, b.mul(group, b.i(self.lanes)))
        e.loop(b.i(0), b.min(b.i(self.lanes), rest), row)


def sort_rows(s: Solitary) -> KernelCall:
    """One visit sorts neighbouring rows, one in each lane of a vector."""
    length, wanted = (shape_of(v)[s.axis] for v in (s.op.operands[0], s.op.results[0]))
    several = chunk_of(wanted)
    if several and length >= SELECTED * several:
        return _select_rows(s, several)
    capacity = 2
    while capacity < length:
        capacity *= 2
    rows, b = _Rows(s, capacity), s.e.b
    block = b.i(min(rows.keys.block, capacity))
    whole = b.mul(b.quot(b.add(rows.size, b.sub(block, b.i(1))), block), block)

    def visit(group: Value) -> None:
        rows.read(group, b.i(0), rows.size)
        rows.fill(b.i(0), rows.size, whole)
        _sort_all(rows.keys, whole, capacity)
        rows.write(group)

    return s.call(s.walk(-(-rows.rows // rows.lanes), visit, rows.lanes * length), "sort_rows")


def chunk_of(wanted: int) -> int:
    """The power of two of keys that are kept to find the first ``wanted``; 0 where those do not fit registers."""
    return next((n for n in (2, 4, 8, 16) if wanted <= n), 0)


def _select_rows(s: Solitary, several: int) -> KernelCall:
    """The first keys alone: ``several`` are kept in order, and meet as many others in order, again and again."""
    e, b = s.e, s.e.b
    rows = _Rows(s, several)
    keys, chunk = rows.keys, b.i(several)
    kinds = [dtype_of(memory) for memory in keys.memory]

    def flat(vectors: list[list[Value]]) -> list[Value]:
        return [part for vector in vectors for part in vector]

    def visit(group: Value) -> None:
        def step(c: Value, carried: list[Value]) -> list[Value]:
            first = b.mul(c, chunk)
            many = b.min(chunk, b.sub(rows.size, first))
            rows.read(group, first, many)
            rows.fill(first, many, chunk)
            new = _sorted(keys, [keys.load(b.i(j)) for j in range(several)])
            best = [carried[j : j + len(kinds)] for j in range(0, len(carried), len(kinds))]
            nearer = [keys.ordered(x, y)[0] for x, y in zip(best, reversed(new), strict=True)]
            return flat(_merged(keys, nearer))

        start = [
            b.splat(part, rows.lanes) for part in flat([keys.none(b.add(rows.size, b.i(j))) for j in range(several)])
        ]
        chunks = b.quot(b.add(rows.size, b.i(several - 1)), chunk)
        found = e.loop(b.i(0), chunks, step, start)
        for j in range(several):
            keys.store(b.i(j), found[j * len(kinds) : (j + 1) * len(kinds)])
        rows.write(group)

    work = rows.lanes * rows.shape[s.axis]
    return s.call(s.walk(-(-rows.rows // rows.lanes), visit, work), "select_rows")


def _sorted(keys: _Keys, found: list[list[Value]]) -> list[list[Value]]:
    """A power of two of vectors in order, lane by lane."""
    if len(found) == 1:
        return found
    half = len(found) // 2
    return _merged(keys, _sorted(keys, found[:half]) + _sorted(keys, found[half:])[::-1])


def _merged(keys: _Keys, found: list[list[Value]]) -> list[list[Value]]:
    """Vectors that rise and then fall, in order."""
    if len(found) == 1:
        return found
    half = len(found) // 2
    pairs = [keys.ordered(x, y) for x, y in zip(found[:half], found[half:], strict=True)]
    return _merged(keys, [first for first, _ in pairs]) + _merged(keys, [second for _, second in pairs])


def _sort_all(keys: _Keys, size: Value, capacity: int) -> None:
    """Sort ``size`` vectors of keys, which blocks in registers divide, lane by lane: blocks, and then runs of these.

    Two runs are merged by exchanging each key of the first with its mirror image in the second, and then keys at half
    the distance again and again, the last times in registers. What would lie past the end is never moved from there.
    """
    b, zero = keys.b, keys.b.i(0)
    block = min(keys.block, capacity)

    def each_block(change: Callable[[_Keys, list[list[Value]]], list[list[Value]]]) -> None:
        def one(first: Value, _: list[Value]) -> list[Value]:
            places = [b.add(first, b.i(j)) for j in range(block)]
            for place, found in zip(places, change(keys, [keys.load(place) for place in places]), strict=True):
                keys.store(place, found)
            return []

        b.loop(zero, size, one, step=b.i(block))

    def exchange(low: Value, high: Value) -> list[Value]:
        first, last = keys.ordered(keys.load(low), keys.load(high))
        keys.store(low, first)
        keys.store(high, last)
        return []

    def merge(t: Value, _: list[Value]) -> list[Value]:
        run = b.emit("shl", (b.i(block), t))
        double = b.add(run, run)

        def mirror(base: Value, _: list[Value]) -> list[Value]:
            end = b.add(base, double)
            last = b.sub(end, b.i(1))
            b.loop(b.max(b.sub(end, size), zero), run, lambda i, _: exchange(b.add(base, i), b.sub(last, i)))
            return []

        def halve(u: Value, _: list[Value]) -> list[Value]:
            distance = b.emit("shr", (run, b.add(u, b.i(1))))

            def pairs(base: Value, _: list[Value]) -> list[Value]:
                end = b.min(b.add(base, distance), b.sub(size, distance))
                b.loop(base, end, lambda i, _: exchange(i, b.add(i, distance)))
                return []

            b.loop(zero, size, pairs, step=b.add(distance, distance))
            return []

        b.loop(zero, size, mirror, step=double)
        b.loop(zero, t, halve)
        each_block(_merged)
        return []

    each_block(_sorted)
    rounds = (capacity // block).bit_length() - 1
    if rounds:
        b.loop(zero, b.i(rounds), merge)
