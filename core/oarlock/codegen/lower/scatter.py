"""Scatter: a copy of x, to which updates are applied in order, each element's by one block or thread."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from oarlock.codegen.lower.anchors import accumulator
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.lower.elementwise import combine
from oarlock.codegen.lower.index import Index, single
from oarlock.codegen.lower.vectors import each_element, widest
from oarlock.codegen.lower.views import to_index
from oarlock.codegen.values import shape_of
from oarlock.ir import Value
from oarlock.ops import tensor

if TYPE_CHECKING:
    from oarlock.codegen.lower.solitary import Solitary

__all__ = ["scatter"]

STRETCHES = (64, 16, 4)
"""Into how many stretches of the axis the work may be cut. Each stretch reads all indices."""
READS = 32
"""A stretch is worth it while it moves as many elements for each index that it reads (the fewest stretches always)."""
STRETCH_LEAST = 64
"""Elements of a stretch, at least."""

BATCH = 512
"""Indices that are read at once: first it is noted which are of the stretch, then these are applied."""
AHEAD = 4
"""How many updates ahead rows are brought closer, where they are moved in vectors: no processor foresees them."""

_REDUCING = {"add": "sum", "multiply": "prod", "minimum": "min", "maximum": "max"}


def scatter(s: Solitary) -> KernelCall:
    """Rows along the last dimensions where a block walks alone; an element a thread where there are many."""
    if s.target.has_threads:
        return _by_lanes(s)
    return widest(lambda lanes: _by_rows(s.anew(), lanes), s.target.limits.vector_width)


def _by_rows(s: Solitary, lanes: int) -> KernelCall:
    """Each visit owns a stretch of rows; it copies them, and reads all indices for those of its own."""
    e, b, axis = s.e, s.e.b, s.axis
    x, indices, updates = s.op.operands
    (result,) = s.op.results
    shape, table = shape_of(x), shape_of(indices)
    size, last, width = shape[axis], len(shape), len(table)
    outer, inner, count = math.prod(shape[:axis]), math.prod(shape[axis + 1 :]), math.prod(table)
    many = _stretches(outer, size, inner, count)
    stretch, pieces = e.size(-(-size // many), "stretch"), e.size(many, "pieces")
    axis_size, row = e.size(size, x, axis), s.run(x, axis + 1, last, b.i(0))
    row_size = row[0].total if row else b.i(1)
    all_updates, chosen = e.size(count, "updates"), b.private(b.index, BATCH)

    def body(i: Value) -> None:
        before = s.run(x, 0, axis, b.quot(i, pieces))
        low = b.mul(b.rem(i, pieces), stretch)
        high = b.min(b.add(low, stretch), axis_size)

        def copy(j: Value, streams: bool) -> None:
            at = Index((*before, *s.run(x, axis, last, j)))
            e.store(result, at, e.value(x, at))

        each_element(e, b.mul(low, row_size), b.mul(high, row_size), lanes, copy)

        def target_of(k: Value) -> Value:
            return to_index(b, e.value(indices, Index(s.run(indices, 0, width, k))))

        def row_at(target: Value, j: Value) -> Index:
            return Index((*before, single(size, axis_size, target), *s.run(x, axis + 1, last, j)))

        def update_at(k: Value, j: Value) -> Index:
            return Index((*before, *s.run(indices, 0, width, k), *s.run(x, axis + 1, last, j)))

        def batch(c: Value, _: list[Value]) -> list[Value]:
            def choose(k: Value, found: list[Value]) -> list[Value]:
                target = target_of(k)
                b.store(chosen, found[0], k)
                inside = b.and_(b.le(low, target), b.lt(target, high))
                return [b.add(found[0], b.select(inside, b.i(1), b.i(0)))]

            (found,) = e.loop(c, b.min(b.add(c, b.i(BATCH)), all_updates), choose, [b.i(0)])

            def apply(i: Value, _: list[Value]) -> list[Value]:
                k = b.load(chosen, i)
                later = b.load(chosen, b.min(b.add(i, b.i(AHEAD)), b.sub(found, b.i(1))))
                target, farther = target_of(k), target_of(later)

                def element(j: Value, streams: bool) -> None:
                    if updates in e.leaves:
                        e.prefetch(updates, update_at(later, j))
                    e.prefetch(result, row_at(farther, j))
                    at = row_at(target, j)
                    e.store(result, at, _update(s, at, e.value(updates, update_at(k, j))))

                if inner == 1:
                    element(b.i(0), False)
                else:
                    each_element(e, b.i(0), row_size, lanes if inner >= lanes else 1, element)
                return []

            e.loop(b.i(0), found, apply)
            return []

        e.loop(b.i(0), all_updates, batch, step=b.i(BATCH))

    grid = s.walk(outer * many, body, -(-size // many) * inner + count)
    return s.call(grid, f"scatter_{s.op.attributes['kind']}")


def _stretches(outer: int, size: int, inner: int, count: int) -> int:
    """Into how many stretches the axis is cut: none where what lies before it is work enough for all."""
    if outer >= STRETCHES[0]:
        return 1
    for many in STRETCHES:
        repaid = many == STRETCHES[-1] or many * READS * count <= (size + count) * inner
        if size >= many and size * inner >= many * STRETCH_LEAST and repaid:
            return many
    return 1


def _update(s: Solitary, at: Index, update: Value) -> Value:
    """What stands at ``at`` after an update."""
    b = s.e.b
    kind = _REDUCING.get(str(s.op.attributes["kind"]))
    if kind is None:
        return update
    (result,) = s.op.results
    dtype = tensor(result).dtype
    wide = accumulator(kind, dtype)
    return b.convert(combine(b, kind, b.convert(s.e.reload(result, at), wide), b.convert(update, wide)), dtype)


def _by_lanes(s: Solitary) -> KernelCall:
    """Each visit owns a stretch of one lane, and reads all indices."""
    e, b = s.e, s.e.b
    x, indices, updates = s.op.operands
    (result,) = s.op.results
    shape, table = shape_of(x), shape_of(indices)
    lanes = math.prod(d for i, d in enumerate(shape) if i != s.axis)
    stretches = 1 if lanes >= 64 else max(1, min(64, shape[s.axis] // 64))
    per = -(-shape[s.axis] // stretches)
    size = e.size(shape[s.axis], x, s.axis)
    stretch, pieces = e.size(per, "stretch"), e.size(stretches, "pieces")
    count = math.prod(table)

    def body(i: Value) -> None:
        lane = s.lane(x, b.quot(i, pieces))
        low = b.mul(b.rem(i, pieces), stretch)
        high = b.min(b.add(low, stretch), size)

        def copy(a: Value, _: list[Value]) -> list[Value]:
            at = s.at(x, lane, a)
            e.store(result, at, e.value(x, at))
            return []

        e.loop(low, high, copy)

        def apply(k: Value, _: list[Value]) -> list[Value]:
            place = Index.of_dims((count,), (e.size(count, "updates"),), (k,))
            place = place.reshape(b, table, lambda d: e.size(table[d], indices, d))
            target = to_index(b, e.value(indices, place))

            def write() -> list[Value]:
                rest = [*lane[: s.axis], *place.dims(b), *lane[s.axis + 1 :]]
                at = s.at(x, lane, target)
                e.store(result, at, _update(s, at, e.value(updates, e.index_of_dims(updates, rest))))
                return []

            e.branch(b.and_(b.le(low, target), b.lt(target, high)), write)
            return []

        e.loop(b.i(0), e.size(count, "updates"), apply)

    grid = s.walk(lanes * stretches, body, per + count)
    return s.call(grid, f"scatter_{s.op.attributes['kind']}")
