"""Kernels with reductions over their domain: rows, each reduced and perhaps written again, in one kernel.

On targets whose blocks are functions a row is read in vectors, into one to four vectors of partial results, which also
keeps the rounding error of a long sum small. On targets with threads a block shares a row: each thread takes every n-th
element, and local memory and barriers combine what they have. Short rows are reduced by one thread in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from oarlock.codegen.free import REDUCTIONS, is_free, significant
from oarlock.codegen.groups import Group
from oarlock.codegen.lower import reductions
from oarlock.codegen.lower.anchors import accumulator, kind_of
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.lower.columns import columns
from oarlock.codegen.lower.domain import cuts, member_index, run_of, runs_between, walk_runs
from oarlock.codegen.lower.elementwise import combine, identity
from oarlock.codegen.lower.emitter import EmitElement, Emitter
from oarlock.codegen.lower.index import Run
from oarlock.codegen.lower.vectors import each_element, group_lanes, is_streamed, widest
from oarlock.codegen.math import FUNCTIONS
from oarlock.codegen.schedule import RULES, Schedule
from oarlock.codegen.values import shape_of
from oarlock.dtypes import DType
from oarlock.ir import Operation, Value
from oarlock.ops import tensor
from oarlock.target import Target

__all__ = ["Rows", "lower_rows"]

SHORT = 64
"""Rows of at most so many elements are reduced in order."""
THREADS = 128
"""Threads that share a row on targets with threads."""
BLOCKS = 256
"""Blocks to aim at where a block is a function."""
LINE_BYTES = 64
"""What is brought closer at once."""
KEEP, KEPT = 8192, 2
"""The longest row of which elements are kept between passes, and how many of each element."""
AHEAD = range(256, 16385)
"""Lengths of rows that are brought closer while the row before is still worked on: the second cache holds several."""


def lower_rows(
    group: Group,
    target: Target,
    table: dict[str, EmitElement],
    name: str,
    label: str,
    index: DType,
    schedule: Schedule = RULES,
) -> KernelCall:
    """A kernel for a group with reductions."""

    def lower(lanes: int) -> KernelCall:
        rows = Rows(group, target, table, name, index, lanes, schedule)
        return rows.e.call(rows.lower(), label)

    first, end = runs_between(group.domain, cuts(group))[-1]
    return widest(lower, group_lanes(group, target, schedule, math.prod(group.domain[first:end])))


class Rows:
    def __init__(
        self,
        group: Group,
        target: Target,
        table: dict[str, EmitElement],
        name: str,
        index: DType,
        lanes: int,
        schedule: Schedule,
    ) -> None:
        self.lanes = lanes
        self.schedule = schedule
        self.group = group
        self.target = target
        spans = runs_between(group.domain, cuts(group))
        self.inner = [s for s in spans if s[0] in group.reduced]
        self.outer = [s for s in spans if s[0] not in group.reduced]
        self.order = spans
        self.length = math.prod(group.domain[k] for k in group.reduced)
        self.count = math.prod(group.domain[k] for k in range(len(group.domain)) if k not in group.reduced)
        self.column = group.is_column
        self.shared = target.has_threads and not self.column and self.length > SHORT
        threads = min(schedule.threads or THREADS, target.limits.max_threads) if target.has_threads else 1
        self.threads = 1 << (threads.bit_length() - 1)  # halving needs a power of two
        self.e = Emitter(name, group.leaves, group.outputs, table, (self.threads, 1, 1), index, fused=target.has_fma)
        self.reductions = [m for m in group.members if m.name in REDUCTIONS and not is_free(m)]
        self.kept: dict[Value, Value] = {}
        """Elements that one pass over the row computes and keeps in private memory for the passes behind it."""
        self.passes = 0
        """Passes over the row that there are so far."""
        self.following: list[Run] = []
        """Where the next row is."""
        self.part = 0
        """Which of several vectors that one step computes is computed."""
        self.far = self.brought_closer()

    # --- the grid --------------------------------------------------------------------------------------------------

    def lower(self) -> tuple[int, int, int]:
        e, b = self.e, self.e.b
        if self.shared:
            return self.strided(self.count, b.position("block_id", 0), 1)
        if self.target.has_threads:
            thread = b.add(b.mul(b.position("block_id", 0), b.i(self.threads)), b.position("thread_id", 0))
            return self.strided(self.count, thread, self.threads)
        if self.column and self.outer:
            return columns(self)
        most = min(self.schedule.blocks or BLOCKS, self.target.limits.max_grid[0])
        per_block = max(1, -(-self.count // most), 2048 // max(1, self.length))
        step = e.parameter(per_block, b.index)
        start = b.mul(b.position("block_id", 0), step)
        e.loop(start, b.min(b.add(start, step), e.size(self.count, "rows")), self.one_row)
        return (-(-self.count // per_block), 1, 1)

    def strided(self, count: int, start: Value, rows_per_block: int) -> tuple[int, int, int]:
        """Rows from ``start`` on, striding where there are more than the grid holds."""
        blocks = max(1, min(-(-count // rows_per_block), self.target.limits.max_grid[0]))
        stride = self.e.parameter(blocks * rows_per_block, self.e.b.index)
        self.e.loop(start, self.e.size(count, "rows"), self.one_row, step=stride)
        return (blocks, 1, 1)

    # --- one row ---------------------------------------------------------------------------------------------------

    def one_row(self, row: Value, _: list[Value]) -> list[Value]:
        e = self.e
        outer = walk_runs(e, self.group.domain, self.outer, row)
        self.passes = 0
        if self.far:
            self.following = walk_runs(e, self.group.domain, self.outer, e.b.add(row, e.b.i(1)))
        self.place(outer, None)
        self.row_level(0, outer)
        elements = [v for v in self.group.outputs if self.group.is_element(v)]
        depths = sorted({self.group.depths[r.result] for r in self.reductions})
        passes = [[r for r in self.reductions if self.group.depths[r.result] == depth] for depth in depths]
        keep = self.worth_keeping([[r.operands[0] for r in ops] for ops in passes] + [elements])
        for depth, ops, values in zip(depths, passes, keep, strict=False):
            self.reduce(ops, outer, values)
            self.row_level(depth, outer)
        for output in self.group.outputs:
            if output not in elements:
                self.store_row(output, outer)
        if elements:
            self.each(outer, elements)
        return []

    def worth_keeping(self, passes: Sequence[Sequence[Value]]) -> list[list[Value]]:
        """Which elements each pass computes first that take long to compute and that a later one needs again."""
        size = 1 << (self.length - 1).bit_length()
        if self.target.has_threads or self.length <= SHORT or len(self.inner) != 1 or self.column or size > KEEP:
            return [[] for _ in passes]
        reached = [self.costly_behind(values) for values in passes]
        found: list[list[Value]] = []
        for number, values in enumerate(reached):
            later = {v for each in reached[number + 1 :] for v in each}
            found.append([v for v in values if v in later and not any(v in each for each in found)][:KEPT])
        return found

    def costly_behind(self, values: Sequence[Value]) -> list[Value]:
        """The results of elementary functions on the row's elements that ``values`` are computed from."""
        found: dict[Value, None] = {}
        seen: set[Value] = set()
        pending = list(values)
        while pending:
            value = pending.pop()
            op = value.defining_op
            if value in seen or op is None or value in self.e.leaves:
                continue
            seen.add(value)
            if value not in self.group.maps:
                if is_free(op):
                    pending += op.operands
                continue
            if self.group.is_element(value) and op not in self.reductions:
                if op.name.removeprefix("array.") in FUNCTIONS:
                    found[value] = None
                pending += op.operands
        return list(found)

    def row_level(self, depth: int, outer: Sequence[Run]) -> None:
        """Compute what stands on the row now, so that loops over its elements find it."""
        for member in self.group.members:
            result = member.results[0]
            on_row = member not in self.reductions and not self.group.is_element(result)
            if on_row and self.group.depths[result] == depth:
                self.e.value(result, member_index(self.e, result, outer))

    def place(self, outer: Sequence[Run], inner: Sequence[Run] | None) -> None:
        """Say where members are computed: on the row, and (with ``inner``) at one element of it."""
        runs = self.interleave(outer, inner) if inner is not None else None
        for value in self.group.maps:
            if not self.group.is_element(value):
                self.e.members[value] = lambda v=value: member_index(self.e, v, outer)  # type: ignore[misc]
            elif runs is not None:
                self.e.members[value] = lambda v=value: member_index(self.e, v, runs)  # type: ignore[misc]
                if value in self.kept and inner is not None:
                    self.e.remember(("member", value), self.e.kept(self.kept[value], inner[-1].position))

    def interleave(self, outer: Sequence[Run], inner: Sequence[Run]) -> list[Run]:
        rest_outer, rest_inner = iter(outer), iter(inner)
        return [next(rest_inner) if span in self.inner else next(rest_outer) for span in self.order]

    def brought_closer(self) -> list[Value]:
        """What lies in memory row by row, and has rows for which it pays to fetch the next one in time."""
        in_rows = len(self.inner) == 1 and self.order[-1] == self.inner[0]
        exact = type(self.length) is int  # a guard on the length would cost more than this brings
        if self.lanes == 1 or not in_rows or not exact or self.length not in AHEAD:
            return []
        read = {v for m in self.group.members for v in m.operands}
        domain = tuple(self.group.domain)
        return [v for v in self.group.leaves if v in read and significant(shape_of(v)) == domain]

    def look_ahead(self, inner: Sequence[Run]) -> None:
        """In the second pass, which finds the row in a cache and has memory idle, bring the next row closer: each line
        of it once."""
        if not self.following or self.passes != 1:
            return
        *lead, last = inner
        for value in self.far:
            line = LINE_BYTES // tensor(value).dtype.itemsize
            start = self.part * self.lanes
            for element in range(-(-start // line) * line, start + self.lanes, line):
                there = self.run(self.inner[-1], self.e.b.add(last.position, self.e.b.i(element - start)))
                self.e.prefetch(value, member_index(self.e, value, self.interleave(self.following, [*lead, there])))

    def store(self, values: Sequence[Value], runs: Sequence[Run]) -> None:
        for value in values:
            at = member_index(self.e, value, runs)
            self.e.store(value, at, self.e.value(value, at))

    def store_row(self, value: Value, outer: Sequence[Run]) -> None:
        if not self.shared:
            self.store([value], outer)
            return
        b = self.e.b
        element = self.e.value(value, member_index(self.e, value, outer))
        first = b.eq(b.position("thread_id", 0), b.i(0))

        def write() -> list[Value]:
            self.e.store(value, member_index(self.e, value, outer), element)
            return []

        self.e.branch(first, write)

    def each(self, outer: Sequence[Run], values: Sequence[Value]) -> None:
        """Store ``values`` at every element of the row."""
        self.part = 0
        e, b = self.e, self.e.b
        streamed = [v for v in values if is_streamed(v, self.schedule)]
        *lead, last = self.inner or [(0, 0)]

        def nest(depth: int, runs: list[Run]) -> None:
            if depth < len(lead):
                span = lead[depth]
                total = run_of(e, self.group.domain, *span, b.i(0)).total
                e.loop(b.i(0), total, lambda i, _: self._none(nest, depth + 1, [*runs, self.run(span, i)]))
                return

            def at(j: Value, streams: bool) -> None:
                inner = [*runs, self.run(last, j)]
                self.look_ahead(inner)
                self.place(outer, inner)
                at_element = self.interleave(outer, inner)
                for value in values:
                    where = member_index(e, value, at_element)
                    e.store(value, where, e.value(value, where), streams and value in streamed)

            def body(j: Value, _: list[Value]) -> list[Value]:
                at(j, False)
                return []

            total = run_of(e, self.group.domain, *last, b.i(0)).total
            if self.shared:
                e.loop(b.position("thread_id", 0), total, body, step=b.i(self.threads))
                return
            first = self.interleave(outer, [*runs, self.run(last, b.i(0))])
            places = [e.place(v, member_index(e, v, first)) for v in streamed if self.lanes > 1]
            each_element(e, b.i(0), total, self.lanes, at, places)

        nest(0, [])

    @staticmethod
    def _none(call: Callable[[int, list[Run]], None], depth: int, runs: list[Run]) -> list[Value]:
        call(depth, runs)
        return []

    def run(self, span: tuple[int, int], position: Value) -> Run:
        return run_of(self.e, self.group.domain, *span, position)

    # --- reducing --------------------------------------------------------------------------------------------------

    def reduce(self, ops: Sequence[Operation], outer: Sequence[Run], keep: Sequence[Value]) -> None:
        """Reduce the row for all of ``ops`` at once and remember the results; keep ``keep`` of what they compute."""
        size = 1 << (self.length - 1).bit_length()
        memory = {v: self.e.b.private(tensor(v).dtype, size) for v in keep}
        kinds = [kind_of(op) for op in ops]
        wide = [accumulator(k, tensor(op.result).dtype) for k, op in zip(kinds, ops, strict=True)]
        neutral = [self.e.b.const(identity(k, d), d) for k, d in zip(kinds, wide, strict=True)]

        def elements(inner: list[Run]) -> list[Value]:
            self.look_ahead(inner)
            self.place(outer, inner)
            runs = self.interleave(outer, inner)
            found = []
            for op, dtype in zip(ops, wide, strict=True):
                (x,) = op.operands
                found.append(self.e.b.convert(self.e.value(x, member_index(self.e, x, runs)), dtype))
            for value, place in memory.items():
                self.e.keep(place, inner[-1].position, self.e.value(value, member_index(self.e, value, runs)))
            return found

        def fold(left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
            return [combine(self.e.b, k, x, y) for k, x, y in zip(kinds, left, right, strict=True)]

        if self.shared:
            totals = reductions.shared(self, elements, fold, neutral)
        elif self.length <= SHORT or self.target.has_threads:
            totals = reductions.in_order(self, elements, fold, neutral)
        elif self.lanes > 1:
            totals = reductions.in_vectors(self, elements, fold, neutral)
        else:
            totals = reductions.in_lanes(self, elements, fold, neutral)
        self.passes += 1
        self.kept.update(memory)
        for op, total in zip(ops, totals, strict=True):
            self.e.remember(("member", op.result), self.e.b.convert(total, tensor(op.result).dtype))
