"""Kernels without reductions over their domain: each element of the domain by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

from oarlock.codegen.free import memory_of, significant
from oarlock.codegen.groups import Group
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.lower.domain import cuts, member_index, run_of, runs_between, turned_dim, walk_runs
from oarlock.codegen.lower.emitter import EmitElement, Emitter
from oarlock.codegen.lower.index import Run, split_linear
from oarlock.codegen.lower.vectors import computes_functions, each_element, group_lanes, is_streamed, widest
from oarlock.codegen.schedule import RULES, Schedule
from oarlock.codegen.values import shape_of
from oarlock.dtypes import DType
from oarlock.ir import Value
from oarlock.ops import tensor
from oarlock.target import Target

__all__ = ["lower_pointwise"]

BLOCKS = 64
"""Blocks to aim at where a block is a function: enough for many cores, few enough to cost nothing."""
ALIGNED = 64
"""Elements that blocks of a long run are multiples of, so that they begin where vectors may be streamed."""
AHEAD_BYTES = 2048
"""How far what is read is brought closer in time, where results are streamed."""
SQUARE = 16
"""Rows and columns of a square where an operand lies the other way: a line of float32. There may be fewer columns, such
as the channels of an image."""
PANEL_LEAST = 8192
"""Elements of a block that fills panels, at least."""
THREADS = 128
"""Threads per block where blocks have threads."""


def lower_pointwise(
    group: Group,
    target: Target,
    table: dict[str, EmitElement],
    name: str,
    label: str,
    index: DType,
    schedule: Schedule = RULES,
) -> KernelCall:
    """A kernel for a group whose members all live on the whole domain."""
    threads = min(schedule.threads or THREADS, target.limits.max_threads) if target.has_threads else 1
    spans = runs_between(group.domain, cuts(group))

    def lower(lanes: int) -> KernelCall:
        e = Emitter(
            name, group.leaves, group.stored, table, (threads, 1, 1), index, fused=target.has_fma, placed=group.placed
        )
        if target.has_threads:
            return e.call(_threads(e, group, target, spans, threads), label)
        return e.call(_blocks(e, group, target, spans, lanes, schedule), label)

    run = math.prod(group.domain[slice(*spans[-1])]) if spans else 1
    return widest(lower, group_lanes(group, target, schedule, run))


def _element(e: Emitter, group: Group, runs: list[Run], streamed: Sequence[Value] = ()) -> None:
    """Compute and store all outputs at one position."""
    _members(e, group, runs)
    for output in group.outputs:
        at = member_index(e, output, runs)
        e.store(output, at, e.value(output, at), output in streamed)


def _members(e: Emitter, group: Group, runs: list[Run]) -> None:
    """Let members be computed at one position."""
    for member in group.members:
        for result in member.results:
            e.members[result] = lambda result=result: member_index(e, result, runs)  # type: ignore[misc]


def _threads(
    e: Emitter, group: Group, target: Target, spans: list[tuple[int, int]], threads: int
) -> tuple[int, int, int]:
    """A thread per element, striding where there are more elements than threads."""
    b = e.b
    total = math.prod(group.domain)
    blocks = max(1, min(-(-total // threads), target.limits.max_grid[0]))
    start = b.add(b.mul(b.position("block_id", 0), b.i(threads)), b.position("thread_id", 0))
    stride = e.parameter(blocks * threads, b.index)
    count = e.size(total, "run", 0, len(group.domain))

    def body(i: Value, _: list[Value]) -> list[Value]:
        _element(e, group, walk_runs(e, group.domain, spans, i))
        return []

    if not group.domain:
        count = b.i(1)
    e.loop(start, count, body, step=stride)
    return (blocks, 1, 1)


def _blocks(
    e: Emitter, group: Group, target: Target, spans: list[tuple[int, int]], lanes: int, schedule: Schedule
) -> tuple[int, int, int]:
    """Blocks of rows; the last run of dimensions is the loop of ``lanes`` elements at once."""
    b = e.b
    if not spans:
        _element(e, group, [])
        return (1, 1, 1)
    if lanes > 1 and _fills_panels(group, spans, lanes):
        return _panels(e, group, spans, lanes, schedule)
    turned = _turned(group)
    if turned is not None:
        return _squares(e, group, target, turned, lanes, schedule)
    streamed = [v for v in group.outputs if is_streamed(v, schedule)] if lanes > 1 else []
    far = [] if computes_functions(group) else [v for v in group.leaves if _is_walked(v, group)]
    outer, (first, end) = spans[:-1], spans[-1]
    rows = math.prod(group.domain[: outer[-1][1]]) if outer else 1
    inner = math.prod(group.domain[first:end])
    least = 16 if group.anchor is not None else 2048
    blocks = schedule.blocks or BLOCKS
    chunk = inner if outer and inner <= 4 * least else max(least, -(-inner // blocks))
    chunk = -(-chunk // ALIGNED) * ALIGNED if chunk < inner else chunk
    columns = max(1, -(-inner // chunk))
    if columns > target.limits.max_grid[0]:
        columns, chunk = 1, inner
    per_block = max(-(-least // max(1, inner)), -(-rows // (blocks * 4)), -(-rows // target.limits.max_grid[1]), 1)
    total = run_of(e, group.domain, first, end, b.i(0)).total
    one_chunk = columns == 1
    low = b.i(0)
    high = total
    if not one_chunk:
        size = e.parameter(chunk, b.index)
        low = b.mul(b.position("block_id", 0), size)
        high = b.min(b.add(low, size), total)

    def row(runs: list[Run]) -> None:
        def at(j: Value) -> list[Run]:
            return [*runs, run_of(e, group.domain, first, end, j)]

        def some(j: Value, streams: bool) -> None:
            if streams:
                for v in far:
                    ahead = b.add(j, b.i(AHEAD_BYTES // tensor(v).dtype.itemsize))
                    e.prefetch(v, member_index(e, v, at(ahead)))
            _element(e, group, at(j), streamed if streams else ())

        places = [e.place(v, member_index(e, v, at(low))) for v in streamed]
        each_element(e, low, high, lanes, some, places)

    if not outer:
        row([])
        return (columns, 1, 1)
    count = e.size(rows, "rows")
    step = e.parameter(per_block, b.index)
    start = b.mul(b.position("block_id", 1), step)

    def body(r: Value, _: list[Value]) -> list[Value]:
        row(walk_runs(e, group.domain, outer, r))
        return []

    e.loop(start, b.min(b.add(start, step), count), body)
    return (columns, -(-rows // per_block), 1)


def _is_walked(leaf: Value, group: Group) -> bool:
    """Whether a long array is read once, in the order of the domain: the results that are streamed keep the processor
    so busy with waiting that it does not reach for the array far enough by itself."""
    if any(m.name == "array.gather" and memory_of(m.operands[0]) is leaf for m in group.members):
        return False
    return is_streamed(leaf, RULES) and significant(shape_of(leaf)) == significant(group.domain)


def _turned(group: Group) -> int | None:
    """The dimension along which an operand lies in memory, where it is not the last one, and long."""
    known = all(type(d) is int for d in group.domain)
    if group.anchor is not None or not known or any(tensor(v).dtype.kind == "bool" for v in group.outputs):
        return None
    k = turned_dim(group) if len(group.domain) > 1 else None
    return k if k is not None and group.domain[k] >= SQUARE and group.domain[-1] > 1 else None


def _squares(
    e: Emitter, group: Group, target: Target, turned: int, lanes: int, schedule: Schedule
) -> tuple[int, int, int]:
    """Blocks of squares of the last dimension and the ``turned`` one: computed along the one, in private memory, and
    stored along the other, so that a line of either is used while it is at hand."""
    b, domain, lanes = e.b, group.domain, min(lanes, SQUARE)
    last = len(domain) - 1
    rest = [d for d in range(last) if d != turned]
    counts = [*(domain[d] for d in rest), -(-domain[turned] // SQUARE), -(-domain[last] // SQUARE)]
    sizes = [e.size(count, "squares", i) for i, count in enumerate(counts)]
    total = math.prod(counts)
    per_block = max(1, -(-total // ((schedule.blocks or BLOCKS) * 4)), -(-total // target.limits.max_grid[0]))
    step = e.parameter(per_block, b.index)
    start = b.mul(b.position("block_id", 0), step)
    memory = [b.private(tensor(v).dtype, SQUARE * SQUARE) for v in group.outputs]
    edges = {d: run_of(e, domain, d, d + 1, b.i(0)).total for d in (turned, last)}

    def square(t: Value, _: list[Value]) -> list[Value]:
        *outer, row, column = split_linear(b, t, counts, sizes)
        at = dict(zip(rest, outer, strict=True))
        low = {turned: b.mul(row, b.i(SQUARE)), last: b.mul(column, b.i(SQUARE))}
        high = {d: b.min(b.i(SQUARE), b.sub(edges[d], low[d])) for d in low}

        def runs(i: Value, j: Value) -> list[Run]:
            place = {**at, turned: b.add(low[turned], i), last: b.add(low[last], j)}
            return [run_of(e, domain, d, d + 1, place[d]) for d in range(len(domain))]

        def compute(j: Value, _: list[Value]) -> list[Value]:
            def some(i: Value, streams: bool) -> None:
                here = runs(i, j)
                _members(e, group, here)
                for output, kept in zip(group.outputs, memory, strict=True):
                    e.keep(kept, b.add(b.mul(j, b.i(SQUARE)), i), e.value(output, member_index(e, output, here)))

            each_element(e, b.i(0), high[turned], lanes, some)
            return []

        def store(i: Value, _: list[Value]) -> list[Value]:
            def one(j: Value, _: list[Value]) -> list[Value]:
                for output, kept in zip(group.outputs, memory, strict=True):
                    e.store(output, member_index(e, output, runs(i, j)), e.kept(kept, b.add(b.mul(j, b.i(SQUARE)), i)))
                return []

            if domain[last] < SQUARE:
                for j in range(domain[last]):
                    one(b.i(j), [])
            else:
                e.loop(b.i(0), high[last], one)
            return []

        e.loop(b.i(0), high[last], compute)
        e.loop(b.i(0), high[turned], store)
        return []

    e.loop(start, b.min(b.add(start, step), e.size(total, "all squares")), square)
    return (-(-total // per_block), 1, 1)


def _fills_panels(group: Group, spans: Sequence[tuple[int, int]], lanes: int) -> bool:
    """Whether the domain is (..., panels, steps, width) of a copy, all apart, and vectors fill the width."""
    copied = any(m.name == "schedule.copy" and m.attributes.get("panels") for m in group.members)
    apart = len(spans) >= 3 and all(end - first == 1 for first, end in spans[-3:])
    return copied and apart and group.domain[-1] % lanes == 0


def _panels(
    e: Emitter, group: Group, spans: list[tuple[int, int]], lanes: int, schedule: Schedule
) -> tuple[int, int, int]:
    """Blocks of steps, each through all panels: what is copied is read along its rows."""
    b = e.b
    *outer, panel, step, last = spans
    panels, steps, width = group.domain[-3:]
    rows = math.prod(group.domain[:-3]) * steps
    per_block = max(1, -(-PANEL_LEAST // (panels * width)), -(-rows // (schedule.blocks or BLOCKS)))
    size = e.parameter(per_block, b.index)
    start = b.mul(b.position("block_id", 0), size)

    def row(position: Value, _: list[Value]) -> list[Value]:
        *before, at = walk_runs(e, group.domain, [*outer, step], position)

        def one(p: Value, _: list[Value]) -> list[Value]:
            runs = [*before, run_of(e, group.domain, *panel, p), at]

            def element(j: Value, streams: bool) -> None:
                _element(e, group, [*runs, run_of(e, group.domain, *last, j)])

            each_element(e, b.i(0), b.i(width), lanes, element)
            return []

        e.loop(b.i(0), e.size(panels, "domain", panel[0]), one)
        return []

    e.loop(start, b.min(b.add(start, size), e.size(rows, "rows")), row)
    return (-(-rows // per_block), 1, 1)
