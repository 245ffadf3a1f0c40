"""Tiled contractions: matrix products and convolutions, a tile of results in registers at a time.

Two forms share one walk over tiles. *Across*: a tile is some rows by some vectors of neighbouring results; each step of
the reduction loads the vectors once and multiplies them with one number per row. *Along*: both operands are contiguous
along the one reduced dimension; a tile is rows by columns, each a vector of partial sums that are added up at the end.
A finished tile goes to private memory, from where the element-wise consumers in the group are computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from oarlock import dtypes
from oarlock.codegen.groups import Group
from oarlock.codegen.lower.anchors import accumulator
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.lower.domain import member_index
from oarlock.codegen.lower.emitter import EmitElement, Emitter
from oarlock.codegen.lower.index import Run, single, split_linear
from oarlock.codegen.lower.tile_operands import ACROSS, Product, window_starts
from oarlock.codegen.lower.tiling import Tiling
from oarlock.codegen.lower.vectors import across_lanes, each_element, widest
from oarlock.codegen.math import FUNCTIONS
from oarlock.codegen.schedule import schedule_of
from oarlock.codegen.values import shape_of
from oarlock.dtypes import DType
from oarlock.ir import Value
from oarlock.ops import tensor
from oarlock.target import Target

__all__ = ["lower_tiles"]

THREADS = 64
BLOCKS = 256
"""Blocks to aim at where a block is a function."""
CACHE_BYTES = 256 << 10
"""What panels of columns may take of the cache that a core has to itself."""
SHORT = 6
"""Operators of a group up to which a tile is finished without a loop."""
PACKED = ("schedule.packed_product", "schedule.window_product")
"""Products whose columns are in panels."""


def lower_tiles(
    group: Group, plan: Tiling, target: Target, table: dict[str, EmitElement], name: str, label: str, index: DType
) -> KernelCall:
    """A kernel for a group whose anchor is a contraction with a tiling."""

    def lower(lanes: int) -> KernelCall:
        work = _Tiles(group, plan, target, table, name, index, lanes)
        return work.e.call(work.lower(), label)

    return widest(lower, 1 if target.has_threads or plan.along else plan.lanes)


class _Tiles:
    def __init__(
        self,
        group: Group,
        plan: Tiling,
        target: Target,
        table: dict[str, EmitElement],
        name: str,
        index: DType,
        lanes: int,
    ) -> None:
        assert group.anchor is not None
        self.lanes = lanes
        """How many elements of a finished tile are computed at once."""
        self.group = group
        self.op = group.anchor
        self.schedule = schedule_of(self.op)
        self.plan = plan
        self.target = target
        self.threads = min(THREADS, target.limits.max_threads) if target.has_threads else 1
        self.e = Emitter(
            name, group.leaves, group.stored, table, (self.threads, 1, 1), index, fused=target.has_fma,
            placed=group.placed,
        )  # fmt: skip
        self.shape = shape_of(self.op.result)
        self.dtype = accumulator("sum", tensor(self.op.result).dtype)
        self.width = plan.columns if plan.along else plan.columns * plan.lanes

    def size(self, dim: int) -> Value:
        return self.e.size(self.shape[dim], "result", dim)

    def count(self, dims: range) -> int:
        return math.prod(self.shape[d] for d in dims)

    def extent(self, dims: range) -> Value:
        """The kernel value of how many elements ``dims`` of the result have together."""
        if len(dims) == 1:
            return self.size(dims.start)
        return self.e.size(self.count(dims), "extent", dims.start, dims.stop)

    # --- the walk over tiles ---------------------------------------------------------------------------------------

    def lower(self) -> tuple[int, int, int]:
        e, b, plan = self.e, self.e.b, self.plan
        rest = [d for d in range(len(self.shape)) if d not in plan.row_dims and d not in plan.column_dims]
        row_tiles = -(-self.count(plan.row_dims) // plan.rows)
        column_tiles = -(-self.count(plan.column_dims) // self.width)
        outer_count = math.prod(self.shape[d] for d in rest)
        together, stretch = self.together(column_tiles, outer_count * row_tiles)
        counts = [*(self.shape[d] for d in rest), -(-column_tiles // together), row_tiles, -(-together // stretch)]
        sizes = [e.size(count, "walk", i) for i, count in enumerate(counts)]
        total = math.prod(counts)
        exact = all(type(n) is int for n in (column_tiles, together))
        wide, long = e.size(together, "together"), e.size(stretch, "stretch")
        self.memory = b.private(self.dtype, plan.rows * self.width)

        def tiles(t: Value, _: list[Value]) -> list[Value]:
            *outer, group, row, place = split_linear(b, t, counts, sizes)
            start = b.mul(place, long)
            first, count = b.add(b.mul(group, wide), start), long
            if not exact or together % stretch:
                count = b.min(count, b.sub(wide, start))
            if not exact or column_tiles % together:
                count = b.min(count, b.sub(e.size(column_tiles, "columns"), first))
            self.tiles(dict(zip(rest, outer, strict=True)), row, first, count)
            return []

        most = self.target.limits.max_grid[0]
        if self.target.has_threads:
            blocks = max(1, min(-(-total // self.threads), most))
            start = b.add(b.mul(b.position("block_id", 0), b.i(self.threads)), b.position("thread_id", 0))
            e.loop(start, e.size(total, "tiles"), tiles, step=e.parameter(blocks * self.threads, b.index))
            return (blocks, 1, 1)
        per_block = max(1, -(-total // (self.schedule.blocks or BLOCKS)), -(-total // most))
        step = e.parameter(per_block, b.index)
        start = b.mul(b.position("block_id", 0), step)
        e.loop(start, b.min(b.add(start, step), e.size(total, "tiles")), tiles)
        return (-(-total // per_block), 1, 1)

    def together(self, column_tiles: int, row_tiles: int) -> tuple[int, int]:
        """How many tiles of columns are walked for each row of tiles, so many that their operand stays in a cache; and
        how many of these one after the other, which still leaves enough for all blocks."""
        if self.op.name not in PACKED:
            return 1, 1
        steps = self.op.attributes.get("steps", len(shape_of(self.op.operands[1])) - 2)
        assert isinstance(steps, int)
        panel = math.prod(shape_of(self.op.operands[1])[-1 - steps :]) * self.dtype.itemsize
        most = max(1, (self.schedule.cache_kib << 10 or CACHE_BYTES) // max(1, panel))
        together = _even(column_tiles, most)
        if type(row_tiles) is not int:  # that of one example of many sizes, which a choice would tell apart
            return together, 1
        return together, _even(together, max(1, row_tiles * column_tiles // BLOCKS))

    def tiles(self, at: dict[int, Value], row: Value, first: Value, count: Value) -> None:
        """Compute ``count`` tiles of one row of tiles, from the ``first`` tile of columns on."""
        e, b, plan = self.e, self.e.b, self.plan
        first_row = b.mul(row, b.i(plan.rows))
        if self.op.name == "schedule.packed_product" and not self.op.attributes["in_place"]:
            rows = [b.i(i) for i in range(plan.rows)]  # told by the panel, and by the position in it
        elif self.op.name == "schedule.window_product":
            rows = window_starts(e, self.op, first_row, plan.rows)
        else:
            rows = self.rows(first_row)

        def tile(i: Value, _: list[Value]) -> list[Value]:
            self.tile(at, row, rows, b.add(first, i))
            return []

        if b.constant_value(count) == 1:
            self.tile(at, row, rows, first)
        else:
            e.loop(b.i(0), count, tile)

    def tile(self, at: dict[int, Value], row: Value, rows: Sequence[Value], column: Value) -> None:
        """Compute one tile; what lies past the last row or column is computed on clamped operands and not stored."""
        e, b, plan = self.e, self.e.b, self.plan
        first = base = b.mul(column, b.i(self.width))
        if self.op.name in PACKED:
            panels = {plan.column_dims.start: column}
            if plan.row_dims:
                panels[plan.row_dims.start] = row
            sums = self.reduce_across(at | panels, rows, b.i(0))
        elif plan.along:
            sums = self.reduce_along(at, rows, first)
        else:
            base = b.min(first, b.sub(self.extent(plan.column_dims), b.i(self.width)))
            sums = self.reduce_across(at, rows, base)
        first_row = b.mul(row, b.i(plan.rows))

        def through_memory() -> list[Value]:
            for i, total in enumerate(sums):
                b.store(self.memory, b.i(i * (1 if plan.along else plan.lanes)), total)
            self.finish(at, first_row, first, base)
            return []

        def from_registers() -> list[Value]:
            self.finish_whole(at, first_row, first, sums)
            return []

        if self.op.name in PACKED and self.lanes == plan.lanes and _is_short(self.group):
            e.branch(self.is_whole(first_row, first), from_registers, through_memory)
        else:
            through_memory()

    def rows(self, first: Value) -> list[Value]:
        b, plan = self.e.b, self.plan
        if not plan.row_dims:
            return [b.i(0)]
        rows = [b.add(first, b.i(i)) for i in range(plan.rows)]
        last = b.sub(self.extent(plan.row_dims), b.i(1))
        exact = self.count(plan.row_dims) % plan.rows == 0
        return rows if exact else [b.min(r, last) for r in rows]

    def finish(self, at: dict[int, Value], first_row: Value, first: Value, base: Value) -> None:
        """Compute and store the group's outputs from the tile in private memory."""
        e, b, plan = self.e, self.e.b, self.plan
        high_row = b.i(1)
        if plan.row_dims:
            high_row = b.min(b.i(plan.rows), b.sub(self.extent(plan.row_dims), first_row))
        low_column, high_column = b.i(0), b.i(1)
        if plan.column_dims:
            low_column = b.sub(first, base)
            high_column = b.i(self.width)
            if base is first:
                high_column = b.min(high_column, b.sub(self.extent(plan.column_dims), first))

        def row(i: Value, _: list[Value]) -> list[Value]:
            def column(j: Value, streams: bool) -> None:
                element = e.kept(self.memory, b.add(b.mul(i, b.i(self.width)), j))
                self.store(self.runs(at, b.add(first_row, i), b.add(base, j)), element)

            each_element(e, low_column, high_column, self.lanes, column)
            return []

        e.loop(b.i(0), high_row, row)

    def is_whole(self, first_row: Value, first: Value) -> Value:
        """Whether all of a tile is in the result."""
        b, plan = self.e.b, self.plan
        whole = b.const(True, dtypes.bool_)
        for dims, start, size in ((plan.row_dims, first_row, plan.rows), (plan.column_dims, first, self.width)):
            if dims and self.count(dims) % size:
                whole = b.and_(whole, b.le(b.add(start, b.i(size)), self.extent(dims)))
        return whole

    def finish_whole(self, at: dict[int, Value], first_row: Value, first: Value, sums: Sequence[Value]) -> None:
        """Compute and store the group's outputs from all of a tile, vector by vector, which never leaves registers."""
        b, plan = self.e.b, self.plan
        for number, vector in enumerate(sums):
            i, k = divmod(number, plan.columns)
            row, low = b.add(first_row, b.i(i)), b.add(first, b.i(k * plan.lanes))

            def one(j: Value, _: list[Value], row: Value = row, vector: Value = vector) -> list[Value]:
                self.store(self.runs(at, row, j), vector)
                return []

            self.e.vector_loop(low, b.add(low, b.i(plan.lanes)), plan.lanes, one)

    def store(self, runs: list[Run], element: Value) -> None:
        """Compute and store the group's outputs where the contraction gives ``element``."""
        e, result = self.e, self.op.result
        for member in self.group.members:
            for value in member.results:
                e.members[value] = lambda v=value: member_index(e, v, runs)  # type: ignore[misc]
        e.remember(("member", result), e.b.convert(element, tensor(result).dtype))
        for output in self.group.outputs:
            place = member_index(e, output, runs)
            e.store(output, place, e.value(output, place))

    def runs(self, at: dict[int, Value], row: Value, column: Value) -> list[Run]:
        """The runs over the domain's significant dimensions."""
        runs: list[Run] = []
        i = 0
        while i < len(self.shape):
            for dims, position in ((self.plan.row_dims, row), (self.plan.column_dims, column)):
                if i == dims.start and dims:
                    runs += self.run(dims, position)
                    i = dims.stop
                    break
            else:
                if self.shape[i] != 1:
                    runs.append(single(self.shape[i], self.size(i), at[i]))
                i += 1
        return runs

    def run(self, dims: range, position: Value) -> list[Run]:
        """The run over the significant ones of ``dims``, if any."""
        kept = [d for d in dims if self.shape[d] != 1]
        if not kept:
            return []
        return [Run(tuple(self.shape[d] for d in kept), self.extent(dims), position, lambda k: self.size(kept[k]))]

    # --- reducing --------------------------------------------------------------------------------------------------

    def reduce_across(self, at: dict[int, Value], rows: Sequence[Value], base: Value) -> list[Value]:
        """The vectors of a tile, row by row."""
        e, b, plan = self.e, self.e.b, self.plan
        columns = [b.add(base, b.i(k * plan.lanes)) for k in range(plan.columns)]
        operands = ACROSS[self.op.name](self)
        zero = b.const(0, self.dtype, plan.lanes) if plan.lanes > 1 else b.const(0, self.dtype)

        def step(where: list[Value], totals: list[Value]) -> list[Value]:
            result: list[Value] = []
            shared = None if operands.vectors_by_row else [operands.vector(at, rows[0], c, where) for c in columns]
            number = None if operands.numbers_by_row else operands.number(at, rows[0], where)
            for i, r in enumerate(rows):
                factor = b.splat(number if number is not None else operands.number(at, r, where), plan.lanes)
                vectors = shared or [operands.vector(at, r, c, where) for c in columns]
                for k, vector in enumerate(vectors):
                    result.append(b.multiply_add(factor, vector, totals[i * plan.columns + k]))
            return result

        return e.loops(operands.bounds, step, [zero] * (len(rows) * plan.columns))

    def reduce_along(self, at: dict[int, Value], rows: Sequence[Value], first: Value) -> list[Value]:
        """The elements of a tile, row by row."""
        e, b, plan = self.e, self.e.b, self.plan
        columns = [b.i(0)]
        if plan.column_dims:
            last = b.sub(self.extent(plan.column_dims), b.i(1))
            columns = [b.min(b.add(first, b.i(j)), last) for j in range(plan.columns)]
        operands = Product(self)
        (extent,) = operands.bounds
        (length,) = (shape_of(self.op.operands[0])[d] for d in operands.contract[0])
        lanes = plan.lanes

        def step(k: Value, totals: list[Value], width: int) -> list[Value]:
            left = [operands.left(at, r, [k], width) for r in rows]
            right = [operands.right(at, c, [k], width) for c in columns]
            pairs_ = [(x, y) for x in left for y in right]
            return [b.multiply_add(x, y, t) for (x, y), t in zip(pairs_, totals, strict=True)]

        count = len(rows) * len(columns)
        whole = b.mul(b.quot(extent, b.i(lanes)), b.i(lanes))
        zero = b.const(0, self.dtype, lanes)
        vectors = e.loop(b.i(0), whole, lambda k, t: step(k, t, lanes), [zero] * count, step=b.i(lanes))
        totals = [across_lanes(e, v, b.add) for v in vectors]
        if length % lanes:
            totals = e.loop(whole, extent, lambda k, t: step(k, t, 1), totals)
        return totals


def _is_short(group: Group) -> bool:
    """Whether what follows a contraction is so little that it may stand there for each vector of a tile."""
    names = [member.name.removeprefix("array.") for member in group.members]
    return len(names) <= SHORT and not any(name in FUNCTIONS for name in names)


def _even(count: int, most: int) -> int:
    """Into parts of how many ``count`` things are cut, all but the last alike and at most ``most``; 1 for nothing."""
    parts = max(1, -(-count // most))
    return max(1, -(-count // parts))
