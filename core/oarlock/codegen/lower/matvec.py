"""A row times a matrix whose rows are contiguous: memory is read along, and the sums of many columns are private.

A tile in registers would read a few neighbouring columns of every row of the matrix, a cache line or two at a time, far
apart. Here a block has so many columns that each row gives it a good stretch, and some rows are added at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from oarlock.codegen.groups import Group
from oarlock.codegen.lower.anchors import accumulator, pairs
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.lower.domain import member_index
from oarlock.codegen.lower.emitter import EmitElement, Emitter
from oarlock.codegen.lower.index import Run, single, split_linear
from oarlock.codegen.lower.tiling import contiguous_along
from oarlock.codegen.lower.vectors import each_element
from oarlock.codegen.schedule import schedule_of
from oarlock.codegen.values import shape_of
from oarlock.dtypes import DType
from oarlock.ir import Operation, Value
from oarlock.ir.extents import Extent
from oarlock.ops import tensor
from oarlock.target import Target

__all__ = ["is_row_times_matrix", "lower_row_times_matrix"]

COLUMNS = 2048
"""Columns of a block, at most: their sums stay in the nearest cache, and each row gives two pages of float32."""
LEAST = 64
"""Columns from which on this pays."""
ROWS = 8
"""Rows of the matrix that are added at once."""


def is_row_times_matrix(op: Operation, target: Target) -> bool:
    """Whether ``op`` multiplies one row by a matrix (or a batch of such) that lies as this schedule reads it."""
    if op.name != "array.dot_general" or target.has_threads or target.limits.vector_width < 2:
        return False
    if schedule_of(op).form not in ("", "row"):
        return False
    x, y = op.operands
    (bx, by), (cx, cy) = pairs(op, "batch"), pairs(op, "contract")
    rows = math.prod(d for i, d in enumerate(shape_of(x)) if i not in bx + cx)
    columns = [i for i in range(len(shape_of(y))) if i not in by + cy]
    last = len(shape_of(y)) - 1
    return (
        rows == 1
        and len(cx) == 1
        and columns == [last]
        and shape_of(y)[last] >= LEAST
        and shape_of(x)[cx[0]] >= ROWS
        and contiguous_along(y, last)
        and accumulator("sum", tensor(op.result).dtype).kind != "bool"
    )


def lower_row_times_matrix(
    group: Group, target: Target, table: dict[str, EmitElement], name: str, label: str, index: DType
) -> KernelCall:
    """The kernel of a group whose anchor ``is_row_times_matrix``; raises NotVectorisable (see Emitter.vector_loop)."""
    work = _RowTimesMatrix(group, target, table, name, index)
    return work.e.call(work.lower(), label)


def columns_of_block(width: int, lanes: int) -> int:
    """How many of ``width`` columns a block takes: an even number of equal blocks, or one where these were short."""
    if isinstance(width, Extent) or width < COLUMNS // 2:
        return COLUMNS // 2
    blocks = 2 * -(-width // (2 * COLUMNS))
    return -(-width // (blocks * lanes)) * lanes


class _RowTimesMatrix:
    def __init__(self, group: Group, target: Target, table: dict[str, EmitElement], name: str, index: DType) -> None:
        assert group.anchor is not None
        self.group, self.target, self.op = group, target, group.anchor
        self.e = Emitter(name, group.leaves, group.outputs, table, (1, 1, 1), index, fused=target.has_fma)
        self.shape = shape_of(self.op.result)
        self.dtype = accumulator("sum", tensor(self.op.result).dtype)
        self.lanes = target.limits.vector_width
        schedule = schedule_of(self.op)
        self.columns = schedule.vectors * self.lanes or columns_of_block(self.shape[-1], self.lanes)
        self.rows_at_once = schedule.rows or ROWS

    def lower(self) -> tuple[int, int, int]:
        e, b = self.e, self.e.b
        outer = self.shape[:-1]
        count = math.prod(outer)
        size = e.size(self.shape[-1], "result", len(self.shape) - 1)
        self.memory = b.private(self.dtype, self.columns)
        first = b.mul(b.position("block_id", 0), b.i(self.columns))
        width = b.min(b.i(self.columns), b.sub(size, first))
        blocks = min(count, self.target.limits.max_grid[1])
        sizes = [e.size(d, "result", i) for i, d in enumerate(outer)]

        def one(position: Value, _: list[Value]) -> list[Value]:
            self.row(split_linear(b, position, outer, sizes), first, width)
            return []

        e.loop(b.position("block_id", 1), e.size(count, "rows"), one, step=e.parameter(blocks, b.index))
        return (-(-self.shape[-1] // self.columns), blocks, 1)

    def row(self, at: Sequence[Value], first: Value, width: Value) -> None:
        """Compute ``width`` columns from ``first`` on of the row at ``at``."""
        e, b, lanes = self.e, self.e.b, self.lanes

        def clear(j: Value, streams: bool) -> None:
            e.keep(self.memory, j, b.const(0, self.dtype))

        each_element(e, b.i(0), width, lanes, clear)
        (contract,) = pairs(self.op, "contract")[0]
        steps = e.size(shape_of(self.op.operands[0])[contract], self.op.operands[0], contract)
        whole = b.mul(b.quot(steps, b.i(self.rows_at_once)), b.i(self.rows_at_once))

        def add(count: int, k: Value) -> list[Value]:
            factors = [self.left(at, b.add(k, b.i(i))) for i in range(count)]

            def column(j: Value, streams: bool) -> None:
                total = e.kept(self.memory, j)
                for i, factor in enumerate(factors):
                    with e.scope():
                        total = b.multiply_add(factor, self.right(at, b.add(k, b.i(i)), b.add(first, j)), total)
                e.keep(self.memory, j, total)

            each_element(e, b.i(0), width, lanes, column)
            return []

        e.loop(b.i(0), whole, lambda k, _: add(self.rows_at_once, k), step=b.i(self.rows_at_once))
        e.loop(whole, steps, lambda k, _: add(1, k), few=True)

        def finish(j: Value, streams: bool) -> None:
            runs = self.runs(at, b.add(first, j))
            for member in self.group.members:
                for value in member.results:
                    e.members[value] = lambda v=value: member_index(e, v, runs)  # type: ignore[misc]
            e.remember(("member", self.op.result), b.convert(e.kept(self.memory, j), tensor(self.op.result).dtype))
            for output in self.group.outputs:
                place = member_index(e, output, runs)
                e.store(output, place, e.value(output, place))

        each_element(e, b.i(0), width, lanes, finish)

    def runs(self, at: Sequence[Value], column: Value) -> list[Run]:
        where = [*at, column]
        return [single(d, self.e.size(d, "result", i), where[i]) for i, d in enumerate(self.shape) if d != 1]

    def left(self, at: Sequence[Value], k: Value) -> Value:
        return self.element(0, at, [self.e.b.i(0)] * len(shape_of(self.op.operands[0])), k)

    def right(self, at: Sequence[Value], k: Value, column: Value) -> Value:
        return self.element(1, at, [column] * len(shape_of(self.op.operands[1])), k)

    def element(self, side: int, at: Sequence[Value], position: list[Value], k: Value) -> Value:
        v = self.op.operands[side]
        for i, d in enumerate(pairs(self.op, "batch")[side]):
            position[d] = at[i]
        position[pairs(self.op, "contract")[side][0]] = k
        return self.e.b.convert(self.e.value(v, self.e.index_of_dims(v, position)), self.dtype)
