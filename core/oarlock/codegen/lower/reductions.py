"""The ways to reduce a row: in order, in vectors, in lanes of private memory, or shared by the threads of a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from oarlock.codegen.kernel.builder import dtype_of
from oarlock.codegen.lower.domain import run_of
from oarlock.codegen.lower.index import Run
from oarlock.codegen.lower.vectors import multiple
from oarlock.ir import Value

if TYPE_CHECKING:
    from oarlock.codegen.lower.rows import Rows

__all__ = ["in_lanes", "in_order", "in_vectors", "shared"]

Elements: TypeAlias = Callable[[list[Run]], list[Value]]
"""Gives what is reduced at a position in the row."""
Fold: TypeAlias = Callable[[Sequence[Value], Sequence[Value]], list[Value]]
"""Combines two partial results."""

LANES = 64
"""Partial results of one row in private memory."""


def in_order(
    rows: Rows,
    elements: Elements,
    fold: Fold,
    neutral: Sequence[Value],
) -> list[Value]:
    """One element after the other."""
    bounds = [run_of(rows.e, rows.group.domain, *span, rows.e.b.i(0)).total for span in rows.inner]

    def body(at: list[Value], carried: list[Value]) -> list[Value]:
        inner = [rows.run(span, i) for span, i in zip(rows.inner, at, strict=True)]
        return fold(carried, elements(inner))

    return rows.e.loops(bounds, body, neutral)


def in_vectors(
    rows: Rows,
    elements: Elements,
    fold: Fold,
    neutral: Sequence[Value],
) -> list[Value]:
    """Partial results in vectors, several of them at once where that hides how long one step takes."""
    e, b, lanes, width = rows.e, rows.e.b, rows.lanes, len(neutral)
    vectors = 1 if rows.length < 4 * lanes or rows.costly_behind([r.operands[0] for r in rows.reductions]) else 4
    vectors = rows.schedule.partials or vectors
    *lead, last = rows.inner
    total = run_of(e, rows.group.domain, *last, b.i(0)).total
    blocks, whole = multiple(e, total, vectors * lanes), multiple(e, total, lanes)
    partial = vectors * width

    def row(at: list[Value], carried: list[Value]) -> list[Value]:
        runs = [rows.run(span, i) for span, i in zip(lead, at, strict=True)]

        def step(j: Value, held: list[Value], count: int) -> list[Value]:
            found: list[Value] = []
            for k in range(count):
                rows.part = k
                with e.scope():
                    element = elements([*runs, rows.run(last, b.add(j, b.i(k * lanes)))])
                found += fold(held[k * width : (k + 1) * width], element)
            return found

        held = e.vector_loop(b.i(0), blocks, lanes, lambda j, h: step(j, h, vectors), carried[:partial], vectors)
        if vectors > 1:
            rest = e.vector_loop(blocks, whole, lanes, lambda j, h: step(j, h, 1), held[:width])
            held = [*rest, *held[width:]]
        return [*held, *e.loop(whole, total, lambda j, h: step(j, h, 1), carried[partial:], few=True)]

    bounds = [run_of(e, rows.group.domain, *span, b.i(0)).total for span in lead]
    zeros = [b.splat(n, lanes) for n in neutral]
    found = e.loops(bounds, row, [*zeros * vectors, *neutral])
    parts = [found[k * width : (k + 1) * width] for k in range(vectors)]
    while len(parts) > 1:
        parts = [fold(parts[k], parts[k + len(parts) // 2]) for k in range(len(parts) // 2)]
    lane = [[b.emit("extract", (v,), {"index": i}) for v in parts[0]] for i in range(lanes)]
    while len(lane) > 1:
        lane = [fold(lane[k], lane[k + len(lane) // 2]) for k in range(len(lane) // 2)]
    return fold(lane[0], found[partial:])


def in_lanes(
    rows: Rows,
    elements: Elements,
    fold: Fold,
    neutral: Sequence[Value],
) -> list[Value]:
    """LANES partial results in private memory, a stretch of the row at a time."""
    e, b = rows.e, rows.e.b
    partial = [b.private(dtype_of(n), LANES) for n in neutral]

    def update(j: Value, values: Sequence[Value]) -> list[Value]:
        for memory, value in zip(partial, values, strict=True):
            b.store(memory, j, value)
        return []

    def current(j: Value) -> list[Value]:
        return [b.load(memory, j) for memory in partial]

    e.loop(b.i(0), b.i(LANES), lambda j, _: update(j, neutral))
    *lead, last = rows.inner
    total = run_of(e, rows.group.domain, *last, b.i(0)).total

    def stretch(start: Value, _: list[Value], runs: list[Run]) -> list[Value]:
        width = b.min(b.i(LANES), b.sub(total, start))
        e.loop(
            b.i(0),
            width,
            lambda j, _: update(j, fold(current(j), elements([*runs, rows.run(last, b.add(start, j))]))),
        )
        return []

    def outer_nest(at: list[Value], _: list[Value]) -> list[Value]:
        runs = [rows.run(span, i) for span, i in zip(lead, at, strict=True)]
        e.loop(b.i(0), total, lambda i, c: stretch(i, c, runs), step=b.i(LANES))
        return []

    e.loops([run_of(e, rows.group.domain, *span, b.i(0)).total for span in lead], outer_nest, [])

    def halve(k: Value, _: list[Value]) -> list[Value]:
        width = b.emit("shr", (b.i(LANES // 2), k))
        e.loop(b.i(0), width, lambda j, _: update(j, fold(current(j), current(b.add(j, width)))))
        return []

    e.loop(b.i(0), b.i(LANES.bit_length() - 1), halve)
    return current(b.i(0))


def shared(
    rows: Rows,
    elements: Elements,
    fold: Fold,
    neutral: Sequence[Value],
) -> list[Value]:
    """Each thread takes every n-th element; what they have is combined in subgroups or in halves."""
    e, b = rows.e, rows.e.b
    thread = b.position("thread_id", 0)
    *lead, last = rows.inner
    total = run_of(e, rows.group.domain, *last, b.i(0)).total

    def body(at: list[Value], carried: list[Value]) -> list[Value]:
        runs = [rows.run(span, i) for span, i in zip(lead, at, strict=True)]
        return e.loop(
            thread,
            total,
            lambda j, c: fold(c, elements([*runs, rows.run(last, j)])),
            carried,
            step=b.i(rows.threads),
        )

    mine = e.loops([run_of(e, rows.group.domain, *span, b.i(0)).total for span in lead], body, neutral)
    width = rows.target.subgroup
    if width and rows.threads % width == 0 and all(dtype_of(n).kind != "bool" for n in neutral):
        return _combine_subgroups(rows, mine, fold, width)
    memory = [b.local(dtype_of(n), rows.threads) for n in neutral]
    b.barrier()  # the previous reduction's results have been read by all
    for slot, value in zip(memory, mine, strict=True):
        b.store(slot, thread, value)
    b.barrier()
    half = rows.threads // 2
    while half >= 1:
        width = half

        def step(width: int = width) -> list[Value]:
            left = [b.load(slot, thread) for slot in memory]
            right = [b.load(slot, b.add(thread, b.i(width))) for slot in memory]
            for slot, value in zip(memory, fold(left, right), strict=True):
                b.store(slot, thread, value)
            return []

        e.branch(b.lt(thread, b.i(width)), step)
        b.barrier()
        half //= 2
    return [b.load(slot, b.i(0)) for slot in memory]


def _combine_subgroups(rows: Rows, mine: Sequence[Value], fold: Fold, width: int) -> list[Value]:
    """What the block's threads have, combined: in subgroups without memory, then across these through it."""
    b = rows.e.b
    mask = width // 2
    while mask:
        mine = fold(mine, [b.shuffle(value, mask, width) for value in mine])
        mask //= 2
    count = rows.threads // width
    memory = [b.local(dtype_of(value), count) for value in mine]
    thread = b.position("thread_id", 0)
    b.barrier()  # the previous reduction's results have been read by all

    def write() -> list[Value]:
        for slot, value in zip(memory, mine, strict=True):
            b.store(slot, b.quot(thread, b.i(width)), value)
        return []

    rows.e.branch(b.eq(b.rem(thread, b.i(width)), b.i(0)), write)
    b.barrier()
    parts = [[b.load(slot, b.i(k)) for slot in memory] for k in range(count)]
    while len(parts) > 1:
        pairs = [fold(parts[k], parts[k + 1]) for k in range(0, len(parts) - 1, 2)]
        parts = [*pairs, *parts[2 * len(pairs) :]]
    return parts[0]
