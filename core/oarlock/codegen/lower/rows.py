"""Kernels with reductions over their domain: rows, each reduced and perhaps written again, in one kernel.

On targets whose blocks are functions a row is read in stretches of LANES elements into LANES partial results, which
every compiler vectorises, and which also keeps the rounding error of a long sum small; the partial results are then
combined in halves. On targets with threads a block shares a row: each thread takes every n-th element, and local memory
and barriers combine what they have. Short rows are reduced by one thread in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from oarlock.codegen.free import REDUCTIONS, is_free
from oarlock.codegen.fuse import Group
from oarlock.codegen.kernel.builder import dtype_of
from oarlock.codegen.lower.anchors import accumulator
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.lower.domain import cuts, member_index, run_of, runs_between, walk_runs
from oarlock.codegen.lower.elementwise import combine, identity
from oarlock.codegen.lower.emitter import EmitElement, Emitter
from oarlock.codegen.lower.index import Run
from oarlock.dtypes import DType
from oarlock.ir import Operation, Value
from oarlock.ops import tensor
from oarlock.target import Target

__all__ = ["lower_rows"]

LANES = 64
"""Partial results of one row on targets without threads."""
SHORT = 64
"""Rows of at most so many elements are reduced in order."""
THREADS = 128
"""Threads that share a row on targets with threads."""


def lower_rows(
    group: Group, target: Target, table: dict[str, EmitElement], name: str, label: str, index: DType
) -> KernelCall:
    """A kernel for a group with reductions."""
    rows = _Rows(group, target, table, name, index)
    return rows.e.call(rows.lower(), label)


def _kind(op: Operation) -> str:
    return op.name.removeprefix("array.reduce_")


class _Rows:
    def __init__(self, group: Group, target: Target, table: dict[str, EmitElement], name: str, index: DType) -> None:
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
        threads = min(THREADS, target.limits.max_threads) if target.has_threads else 1
        self.threads = 1 << (threads.bit_length() - 1)  # halving needs a power of two
        self.e = Emitter(name, group.leaves, group.outputs, table, (self.threads, 1, 1), index)
        self.reductions = [m for m in group.members if m.name in REDUCTIONS and not is_free(m)]

    # --- the grid --------------------------------------------------------------------------------------------------

    def lower(self) -> tuple[int, int, int]:
        e, b = self.e, self.e.b
        if self.shared:
            return self.strided(self.count, b.position("block_id", 0), 1)
        if self.target.has_threads:
            thread = b.add(b.mul(b.position("block_id", 0), b.i(self.threads)), b.position("thread_id", 0))
            return self.strided(self.count, thread, self.threads)
        if self.column and self.outer:
            return self.columns()
        per_block = max(
            1, -(-self.count // 256), 2048 // max(1, self.length), -(-self.count // self.target.limits.max_grid[0])
        )
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
        self.place(outer, None)
        self.row_level(0, outer)
        for depth in sorted({self.group.depths[r.result] for r in self.reductions}):
            self.reduce([r for r in self.reductions if self.group.depths[r.result] == depth], outer)
            self.row_level(depth, outer)
        elements = [v for v in self.group.outputs if self.group.is_element(v)]
        for output in self.group.outputs:
            if output not in elements:
                self.store_row(output, outer)
        if elements:
            self.each(outer, lambda runs: self.store(elements, runs))
        return []

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

    def interleave(self, outer: Sequence[Run], inner: Sequence[Run]) -> list[Run]:
        rest_outer, rest_inner = iter(outer), iter(inner)
        return [next(rest_inner) if span in self.inner else next(rest_outer) for span in self.order]

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

    def each(self, outer: Sequence[Run], visit: Callable[[list[Run]], None]) -> None:
        """Visit every element of the row."""
        e, b = self.e, self.e.b
        *lead, last = self.inner or [(0, 0)]

        def nest(depth: int, runs: list[Run]) -> None:
            if depth < len(lead):
                span = lead[depth]
                total = run_of(e, self.group.domain, *span, b.i(0)).total
                e.loop(b.i(0), total, lambda i, _: self._none(nest, depth + 1, [*runs, self.run(span, i)]))
                return

            def body(j: Value, _: list[Value]) -> list[Value]:
                inner = [*runs, self.run(last, j)]
                self.place(outer, inner)
                visit(self.interleave(outer, inner))
                return []

            total = run_of(e, self.group.domain, *last, b.i(0)).total
            if self.shared:
                e.loop(b.position("thread_id", 0), total, body, step=b.i(self.threads))
            else:
                e.loop(b.i(0), total, body)

        nest(0, [])

    @staticmethod
    def _none(call: Callable[[int, list[Run]], None], depth: int, runs: list[Run]) -> list[Value]:
        call(depth, runs)
        return []

    def run(self, span: tuple[int, int], position: Value) -> Run:
        return run_of(self.e, self.group.domain, *span, position)

    # --- reducing --------------------------------------------------------------------------------------------------

    def reduce(self, ops: Sequence[Operation], outer: Sequence[Run]) -> None:
        """Reduce the row for all of ``ops`` at once and remember the results."""
        kinds = [_kind(op) for op in ops]
        wide = [accumulator(k, tensor(op.result).dtype) for k, op in zip(kinds, ops, strict=True)]
        neutral = [self.e.b.const(identity(k, d), d) for k, d in zip(kinds, wide, strict=True)]

        def elements(inner: list[Run]) -> list[Value]:
            self.place(outer, inner)
            runs = self.interleave(outer, inner)
            found = []
            for op, dtype in zip(ops, wide, strict=True):
                (x,) = op.operands
                found.append(self.e.b.convert(self.e.value(x, member_index(self.e, x, runs)), dtype))
            return found

        def fold(left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
            return [combine(self.e.b, k, x, y) for k, x, y in zip(kinds, left, right, strict=True)]

        if self.shared:
            totals = self.reduce_shared(elements, fold, neutral)
        elif self.length <= SHORT or self.target.has_threads:
            totals = self.reduce_in_order(elements, fold, neutral)
        else:
            totals = self.reduce_in_lanes(elements, fold, neutral)
        for op, total in zip(ops, totals, strict=True):
            self.e.remember(("member", op.result), self.e.b.convert(total, tensor(op.result).dtype))

    def reduce_in_order(
        self,
        elements: Callable[[list[Run]], list[Value]],
        fold: Callable[[Sequence[Value], Sequence[Value]], list[Value]],
        neutral: Sequence[Value],
    ) -> list[Value]:
        bounds = [run_of(self.e, self.group.domain, *span, self.e.b.i(0)).total for span in self.inner]

        def body(at: list[Value], carried: list[Value]) -> list[Value]:
            inner = [self.run(span, i) for span, i in zip(self.inner, at, strict=True)]
            return fold(carried, elements(inner))

        return self.e.loops(bounds, body, neutral)

    def reduce_in_lanes(
        self,
        elements: Callable[[list[Run]], list[Value]],
        fold: Callable[[Sequence[Value], Sequence[Value]], list[Value]],
        neutral: Sequence[Value],
    ) -> list[Value]:
        e, b = self.e, self.e.b
        partial = [b.private(dtype_of(n), LANES) for n in neutral]

        def update(j: Value, values: Sequence[Value]) -> list[Value]:
            for memory, value in zip(partial, values, strict=True):
                b.store(memory, j, value)
            return []

        def current(j: Value) -> list[Value]:
            return [b.load(memory, j) for memory in partial]

        e.loop(b.i(0), b.i(LANES), lambda j, _: update(j, neutral))
        *lead, last = self.inner
        total = run_of(e, self.group.domain, *last, b.i(0)).total

        def stretch(start: Value, _: list[Value], runs: list[Run]) -> list[Value]:
            width = b.min(b.i(LANES), b.sub(total, start))
            e.loop(
                b.i(0),
                width,
                lambda j, _: update(j, fold(current(j), elements([*runs, self.run(last, b.add(start, j))]))),
            )
            return []

        def outer_nest(at: list[Value], _: list[Value]) -> list[Value]:
            runs = [self.run(span, i) for span, i in zip(lead, at, strict=True)]
            e.loop(b.i(0), total, lambda i, c: stretch(i, c, runs), step=b.i(LANES))
            return []

        e.loops([run_of(e, self.group.domain, *span, b.i(0)).total for span in lead], outer_nest, [])

        def halve(k: Value, _: list[Value]) -> list[Value]:
            width = b.emit("shr", (b.i(LANES // 2), k))
            e.loop(b.i(0), width, lambda j, _: update(j, fold(current(j), current(b.add(j, width)))))
            return []

        e.loop(b.i(0), b.i(LANES.bit_length() - 1), halve)
        return current(b.i(0))

    def reduce_shared(
        self,
        elements: Callable[[list[Run]], list[Value]],
        fold: Callable[[Sequence[Value], Sequence[Value]], list[Value]],
        neutral: Sequence[Value],
    ) -> list[Value]:
        e, b = self.e, self.e.b
        thread = b.position("thread_id", 0)
        *lead, last = self.inner
        total = run_of(e, self.group.domain, *last, b.i(0)).total

        def body(at: list[Value], carried: list[Value]) -> list[Value]:
            runs = [self.run(span, i) for span, i in zip(lead, at, strict=True)]
            return e.loop(
                thread,
                total,
                lambda j, c: fold(c, elements([*runs, self.run(last, j)])),
                carried,
                step=b.i(self.threads),
            )

        mine = e.loops([run_of(e, self.group.domain, *span, b.i(0)).total for span in lead], body, neutral)
        memory = [b.local(dtype_of(n), self.threads) for n in neutral]
        b.barrier()  # the previous reduction's results have been read by all
        for slot, value in zip(memory, mine, strict=True):
            b.store(slot, thread, value)
        b.barrier()
        half = self.threads // 2
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

    # --- columns ---------------------------------------------------------------------------------------------------

    def columns(self) -> tuple[int, int, int]:
        """Reductions that keep the last run: LANES neighbouring rows at once, so that memory is read along."""
        e, b = self.e, self.e.b
        *lead, last = self.outer
        width = math.prod(self.group.domain[last[0] : last[1]])
        outer_count = self.count // max(1, width)
        total = run_of(e, self.group.domain, *last, b.i(0)).total
        low = b.mul(b.position("block_id", 0), b.i(LANES))
        span = b.min(b.i(LANES), b.sub(total, low))
        kinds = [_kind(op) for op in self.reductions]
        wide = [accumulator(k, tensor(op.result).dtype) for k, op in zip(kinds, self.reductions, strict=True)]
        per_block = max(1, -(-outer_count // min(256, self.target.limits.max_grid[1])))

        def one(row: Value, _: list[Value]) -> list[Value]:
            lead_runs = walk_runs(e, self.group.domain, lead, row)
            memory = [b.private(d, LANES) for d in wide]

            def start(j: Value, _: list[Value]) -> list[Value]:
                for slot, kind, dtype in zip(memory, kinds, wide, strict=True):
                    b.store(slot, j, b.const(identity(kind, dtype), dtype))
                return []

            def accumulate(at: list[Value], _: list[Value]) -> list[Value]:
                inner = [self.run(s, i) for s, i in zip(self.inner, at, strict=True)]

                def column(j: Value, _: list[Value]) -> list[Value]:
                    outer = [*lead_runs, self.run(last, b.add(low, j))]
                    self.place(outer, inner)
                    runs = self.interleave(outer, inner)
                    for op, slot, kind, dtype in zip(self.reductions, memory, kinds, wide, strict=True):
                        (x,) = op.operands
                        element = b.convert(e.value(x, member_index(e, x, runs)), dtype)
                        b.store(slot, j, combine(b, kind, b.load(slot, j), element))
                    self.store([v for v in self.group.outputs if self.group.is_element(v)], runs)
                    return []

                e.loop(b.i(0), span, column)
                return []

            def finish(j: Value, _: list[Value]) -> list[Value]:
                outer = [*lead_runs, self.run(last, b.add(low, j))]
                self.place(outer, None)
                for op, slot in zip(self.reductions, memory, strict=True):
                    e.remember(("member", op.result), b.convert(b.load(slot, j), tensor(op.result).dtype))
                self.store([v for v in self.group.outputs if not self.group.is_element(v)], outer)
                return []

            e.loop(b.i(0), span, start)
            e.loops([run_of(e, self.group.domain, *s, b.i(0)).total for s in self.inner], accumulate, [])
            e.loop(b.i(0), span, finish)
            return []

        step = e.parameter(per_block, b.index)
        first = b.mul(b.position("block_id", 1), step)
        e.loop(first, b.min(b.add(first, step), e.size(outer_count, "outer")), one)
        return (-(-width // LANES), -(-outer_count // per_block), 1)
