"""Scans: the running result along an axis, or along pieces of it that begin at what the pieces before them gave."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from oarlock.codegen.lower.anchors import accumulator
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.lower.elementwise import combine, identity
from oarlock.codegen.lower.index import Index, single
from oarlock.codegen.lower.vectors import each_element, multiple, widest
from oarlock.codegen.values import shape_of
from oarlock.ir import Value
from oarlock.ops import tensor

if TYPE_CHECKING:
    from oarlock.codegen.lower.solitary import Solitary

__all__ = ["scan"]

TOGETHER = 8
"""Neighbours along the axis that are combined before the running result meets them, which waits for itself alone."""
WIDTHS = (1024, 256, 64)
"""How many lines, side by side in memory, are walked at once: more read longer stretches, fewer give all cores work."""
VISITS = 8
"""Visits that there should be at least."""


def scan(s: Solitary) -> KernelCall:
    """Lines side by side where there are so many as to fill vectors; else each by itself."""
    x = s.op.operands[0]
    width = s.target.limits.vector_width
    if not s.target.has_threads and 1 < width <= math.prod(shape_of(x)[s.axis + 1 :]):
        return widest(lambda lanes: _side_by_side(_Scan(s.anew()), lanes), width)
    return _by_lines(_Scan(s))


class _Scan:
    """A scan being lowered: its lines are cut into pieces, one if there are no starts."""

    def __init__(self, s: Solitary) -> None:
        self.s, e, b = s, s.e, s.e.b
        self.x = s.op.operands[0]
        self.starts = s.op.operands[1] if len(s.op.operands) == 2 else None
        self.result = s.op.results[0]
        self.shape = shape_of(self.x)
        self.kind = str(s.op.attributes["kind"])
        self.reverse, self.exclusive = (bool(s.op.attributes.get(name, False)) for name in ("reverse", "exclusive"))
        self.dtype = tensor(self.x).dtype
        self.wide = accumulator(self.kind, self.dtype)
        self.length = self.shape[s.axis]
        self.size = e.size(self.length, self.x, s.axis)
        piece = s.op.attributes.get("piece", self.length)
        assert isinstance(piece, int)
        self.piece = piece
        self.many = 1 if self.starts is None else shape_of(self.starts)[s.axis] + 1
        self.pieces, self.step = e.size(self.many, "pieces"), e.size(piece, "piece")
        self.none = b.const(identity(self.kind, self.wide), self.wide)
        """What a line begins with."""

    def bounds(self, piece: Value) -> tuple[Value, Value]:
        """Where a piece begins and ends, in the order of the walk."""
        b = self.s.e.b
        if self.starts is None:
            return b.i(0), self.size
        low = b.mul(piece, self.step)
        return low, b.min(b.add(low, self.step), self.size)

    def place(self, a: Value) -> Value:
        """The position along the axis of step ``a`` of the walk."""
        b = self.s.e.b
        return b.sub(b.sub(self.size, b.i(1)), a) if self.reverse else a

    def start(self, piece: Value, at: Callable[[Value, Value], Index]) -> Value:
        """What a piece begins with, the total of those before it; ``at`` gives the index of a value in the line."""
        b = self.s.e.b
        if self.starts is None:
            return self.none
        found = self.s.e.value(self.starts, at(self.starts, b.max(b.sub(piece, b.i(1)), b.i(0))))
        return b.select(b.eq(piece, b.i(0)), self.none, b.convert(found, self.wide))

    def combine(self, x: Value, y: Value) -> Value:
        return combine(self.s.e.b, self.kind, x, y)

    def put(self, at: Index, before: Value, after: Value) -> None:
        """Store the running result: what it was before the element, or what it is after."""
        e = self.s.e
        e.store(self.result, at, e.b.convert(before if self.exclusive else after, self.dtype))


def _by_lines(q: _Scan) -> KernelCall:
    """One visit walks a piece of a line and carries the running result."""
    s, e, b, x = q.s, q.s.e, q.s.e.b, q.x
    lines = math.prod(d for i, d in enumerate(q.shape) if i != s.axis)
    # products are not regrouped: what lies between may be too large or too small for a float, where they are not
    together = TOGETHER if not (s.target.has_threads or (q.kind == "prod" and q.dtype.is_float)) else 1

    def body(i: Value) -> None:
        lane, piece = s.lane(x, b.quot(i, q.pieces)), b.rem(i, q.pieces)
        low, high = q.bounds(piece)

        def element(a: Value) -> tuple[Index, Value]:
            at = s.at(x, lane, q.place(a))
            return at, b.convert(e.value(x, at), q.wide)

        def some(a: Value, carried: list[Value]) -> list[Value]:
            found = [element(b.add(a, b.i(k))) for k in range(together)]
            inner = [found[0][1]]
            for _, value in found[1:]:
                inner.append(q.combine(inner[-1], value))
            running = [carried[0], *(q.combine(carried[0], value) for value in inner)]
            for k, (at, _) in enumerate(found):
                q.put(at, running[k], running[k + 1])
            return [running[-1]]

        def one(a: Value, carried: list[Value]) -> list[Value]:
            at, value = element(a)
            after = q.combine(carried[0], value)
            q.put(at, carried[0], after)
            return [after]

        carried = [q.start(piece, lambda v, position: s.at(v, lane, position))]
        if together > 1:
            whole = b.add(low, multiple(e, b.sub(high, low), together))
            carried, low = e.loop(low, whole, some, carried, b.i(together)), whole
        e.loop(low, high, one, carried)

    return s.call(s.walk(lines * q.many, body, q.piece), f"scan_{q.kind}")


def _side_by_side(q: _Scan, lanes: int) -> KernelCall:
    """One visit walks the same piece of neighbouring lines, whose running results are kept in private memory."""
    s, e, b, x = q.s, q.s.e, q.s.e.b, q.x
    outer, inner, last = math.prod(q.shape[: s.axis]), math.prod(q.shape[s.axis + 1 :]), len(q.shape)
    width = next((w for w in WIDTHS if outer * q.many * (inner // w) >= VISITS), WIDTHS[-1])
    strips = -(-inner // width)
    strip_count, total = e.size(strips, "strips"), s.run(x, s.axis + 1, last, b.i(0))[0].total
    memory = b.private(q.wide, width)

    def body(i: Value) -> None:
        first = b.mul(b.rem(i, strip_count), b.i(width))
        span = b.min(b.i(width), b.sub(total, first))
        rest = b.quot(i, strip_count)
        line, piece = b.quot(rest, q.pieces), b.rem(rest, q.pieces)
        low, high = q.bounds(piece)

        def at(v: Value, position: Value, j: Value) -> Index:
            size = shape_of(v)[s.axis]
            here = single(size, e.size(size, v, s.axis), position)
            return Index((*s.run(v, 0, s.axis, line), here, *s.run(v, s.axis + 1, last, b.add(first, j))))

        def begin(j: Value, streams: bool) -> None:
            e.keep(memory, j, q.start(piece, lambda v, position: at(v, position, j)))

        def step(a: Value, _: list[Value]) -> list[Value]:
            position = q.place(a)

            def one(j: Value, streams: bool) -> None:
                place = at(x, position, j)
                before = e.kept(memory, j)
                after = q.combine(before, b.convert(e.value(x, place), q.wide))
                q.put(place, before, after)
                e.keep(memory, j, after)

            each_element(e, b.i(0), span, lanes, one)
            return []

        each_element(e, b.i(0), span, lanes, begin)
        e.loop(low, high, step)

    return s.call(s.walk(outer * q.many * strips, body, q.piece * width), f"scan_{q.kind}")
