"""Tiled contractions: matrix products and convolutions, a tile of results in registers at a time.

Two forms share one walk over tiles. *Across*: a tile is some rows by some vectors of neighbouring results; each step of
the reduction loads the vectors once and multiplies them with one number per row. *Along*: both operands are contiguous
along the one reduced dimension; a tile is rows by columns, each a vector of partial sums that are added up at the end.
A finished tile goes to private memory, from where the element-wise consumers in the group are computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from oarlock.codegen.free import is_free
from oarlock.codegen.fuse import Group
from oarlock.codegen.lower.anchors import accumulator, pairs
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.lower.domain import member_index
from oarlock.codegen.lower.emitter import EmitElement, Emitter
from oarlock.codegen.lower.index import Run, single, split_linear
from oarlock.codegen.values import ints, shape_of
from oarlock.dtypes import DType
from oarlock.ir import Operation, Value
from oarlock.ops import tensor
from oarlock.target import Target

__all__ = ["contiguous_along", "lower_tiles", "tiling"]

THREADS = 64


def contiguous_along(value: Value, dim: int) -> bool:
    """Whether neighbours along ``dim`` of ``value`` are neighbours in the memory behind it."""
    op = value.defining_op
    shape = shape_of(value)
    if op is None or not is_free(op):
        return all(d == 1 for d in shape[dim + 1 :])
    if op.name == "array.transpose":
        return contiguous_along(op.operands[0], ints(op, "permutation")[dim])
    if op.name == "array.reshape":
        (x,) = op.operands
        before = shape_of(x)
        if not before or dim != len(shape) - 1 or before[-1] != shape[-1]:
            return False
        return contiguous_along(x, len(before) - 1)
    if op.name == "array.broadcast":
        dims = ints(op, "dims")
        return dim in dims and _same(op, dims, dim) and contiguous_along(op.operands[0], dims.index(dim))
    if op.name == "array.slice":
        return ints(op, "steps")[dim] == 1 and contiguous_along(op.operands[0], dim)
    return False


def _same(op: Operation, dims: Sequence[int], dim: int) -> bool:
    return shape_of(op.operands[0])[dims.index(dim)] == shape_of(op.result)[dim]


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a contraction is cut: result dimensions of rows and of columns (None: one), lanes, rows, and vectors or
    columns of a tile; ``along`` says which form."""

    rows_dim: int | None
    columns_dim: int | None
    lanes: int
    rows: int
    columns: int
    along: bool


def tiling(op: Operation, target: Target) -> Tiling | None:
    """The tiling of a contraction on ``target``; None where tiles do not pay and each element is computed by itself."""
    if op.name == "array.dot_general":
        return _tile_product(op, target)
    if op.name == "schedule.convolution":
        return _tile_convolution(op, target)
    return None


def _width(target: Target, dtype: DType) -> int:
    width = target.limits.vector_width * 32 // max(32, dtype.bits)
    return 1 << (max(1, width).bit_length() - 1)


def _rows_limit(target: Target) -> tuple[int, int]:
    """(rows, vectors) whose sums fit the registers: 16 of them, 32 where vectors have 16 lanes."""
    return (8, 3) if target.limits.vector_width >= 16 else (6, 2)


def _tile_product(op: Operation, target: Target) -> Tiling | None:
    x, y = op.operands
    (bx, by), (cx, cy) = pairs(op, "batch"), pairs(op, "contract")
    fx = [d for d in range(len(shape_of(x))) if d not in bx + cx]
    fy = [d for d in range(len(shape_of(y))) if d not in by + cy]
    acc = accumulator("sum", tensor(op.result).dtype)
    width = _width(target, acc)
    if width < 2 or acc.kind == "bool":
        return None
    rows_dim = len(bx) + len(fx) - 1 if fx else None
    rows = shape_of(x)[fx[-1]] if fx else 1
    most_rows, most_vectors = _rows_limit(target)
    if fy and contiguous_along(y, fy[-1]) and shape_of(y)[fy[-1]] >= 4:
        columns = shape_of(y)[fy[-1]]
        lanes = min(width, 1 << (columns.bit_length() - 1))
        vectors = max(1, min(most_vectors if rows > 1 else 4, columns // lanes))
        return Tiling(rows_dim, len(bx) + len(fx) + len(fy) - 1, lanes, min(rows, most_rows), vectors, False)
    if len(cx) == 1 and contiguous_along(x, cx[0]) and contiguous_along(y, cy[0]) and shape_of(x)[cx[0]] >= 4:
        lanes = min(width, 1 << (shape_of(x)[cx[0]].bit_length() - 1))
        columns_dim = len(bx) + len(fx) + len(fy) - 1 if fy else None
        columns = shape_of(y)[fy[-1]] if fy else 1
        return Tiling(rows_dim, columns_dim, lanes, min(rows, 4), min(columns, 4), True)
    return None


def _tile_convolution(op: Operation, target: Target) -> Tiling | None:
    shape = shape_of(op.result)
    width = _width(target, accumulator("sum", tensor(op.result).dtype))
    columns = shape[-1]
    groups = op.attributes["groups"]
    assert isinstance(groups, int)
    most_rows, most_vectors = _rows_limit(target)
    if width < 2 or columns < 4:
        return None
    lanes = min(width, 1 << (columns.bit_length() - 1))
    vectors = max(1, min(most_vectors, columns // lanes))
    per_group = shape[1] // groups
    if per_group == 1 and len(shape) > 3:
        return Tiling(len(shape) - 2, len(shape) - 1, lanes, min(4, shape[-2]), vectors, False)
    rows = min(most_rows, shape[1]) if groups == 1 else max(r for r in range(1, most_rows + 1) if per_group % r == 0)
    return Tiling(1, len(shape) - 1, lanes, rows, vectors, False)


def lower_tiles(
    group: Group, plan: Tiling, target: Target, table: dict[str, EmitElement], name: str, label: str, index: DType
) -> KernelCall:
    """A kernel for a group whose anchor is a contraction with a tiling."""
    work = _Tiles(group, plan, target, table, name, index)
    return work.e.call(work.lower(), label)


class _Tiles:
    def __init__(
        self, group: Group, plan: Tiling, target: Target, table: dict[str, EmitElement], name: str, index: DType
    ) -> None:
        assert group.anchor is not None
        self.group = group
        self.op = group.anchor
        self.plan = plan
        self.target = target
        self.threads = min(THREADS, target.limits.max_threads) if target.has_threads else 1
        self.e = Emitter(name, group.leaves, group.outputs, table, (self.threads, 1, 1), index)
        self.shape = shape_of(self.op.result)
        self.dtype = accumulator("sum", tensor(self.op.result).dtype)
        self.fused = "fma" in target.abilities and self.dtype.is_float
        self.width = plan.columns if plan.along else plan.columns * plan.lanes

    def size(self, dim: int) -> Value:
        return self.e.size(self.shape[dim], "result", dim)

    # --- the walk over tiles ---------------------------------------------------------------------------------------

    def lower(self) -> tuple[int, int, int]:
        e, b, plan = self.e, self.e.b, self.plan
        rest = [d for d in range(len(self.shape)) if d not in (plan.rows_dim, plan.columns_dim)]
        row_tiles = -(-self.shape[plan.rows_dim] // plan.rows) if plan.rows_dim is not None else 1
        column_tiles = -(-self.shape[plan.columns_dim] // self.width) if plan.columns_dim is not None else 1
        counts = [*(self.shape[d] for d in rest), column_tiles, row_tiles]
        sizes = [*(self.size(d) for d in rest), e.size(column_tiles, "column tiles"), e.size(row_tiles, "row tiles")]
        total = math.prod(counts)
        self.memory = b.private(self.dtype, plan.rows * self.width)

        def tile(t: Value, _: list[Value]) -> list[Value]:
            *outer, column, row = split_linear(b, t, counts, sizes)
            self.tile(dict(zip(rest, outer, strict=True)), row, column)
            return []

        most = self.target.limits.max_grid[0]
        if self.target.has_threads:
            blocks = max(1, min(-(-total // self.threads), most))
            start = b.add(b.mul(b.position("block_id", 0), b.i(self.threads)), b.position("thread_id", 0))
            e.loop(start, e.size(total, "tiles"), tile, step=e.parameter(blocks * self.threads, b.index))
            return (blocks, 1, 1)
        per_block = max(1, -(-total // 256), -(-total // most))
        step = e.parameter(per_block, b.index)
        start = b.mul(b.position("block_id", 0), step)
        e.loop(start, b.min(b.add(start, step), e.size(total, "tiles")), tile)
        return (-(-total // per_block), 1, 1)

    def tile(self, at: dict[int, Value], row: Value, column: Value) -> None:
        """Compute one tile; what lies past the last row or column is computed on clamped operands and not stored."""
        b, plan = self.e.b, self.plan
        first_row = b.mul(row, b.i(plan.rows))
        rows = [b.i(0)]
        if plan.rows_dim is not None:
            last = b.sub(self.size(plan.rows_dim), b.i(1))
            exact = self.shape[plan.rows_dim] % plan.rows == 0
            rows = [b.add(first_row, b.i(i)) for i in range(plan.rows)]
            rows = rows if exact else [b.min(r, last) for r in rows]
        first = b.mul(column, b.i(self.width))
        if plan.along:
            self.reduce_along(at, rows, first)
            base = first
        else:
            base = b.min(first, b.sub(self.size(len(self.shape) - 1), b.i(self.width)))
            self.reduce_across(at, rows, base)
        self.finish(at, first_row, first, base)

    def finish(self, at: dict[int, Value], first_row: Value, first: Value, base: Value) -> None:
        """Compute and store the group's outputs from the tile in private memory."""
        e, b, plan = self.e, self.e.b, self.plan
        high_row = b.i(1)
        if plan.rows_dim is not None:
            high_row = b.min(b.i(plan.rows), b.sub(self.size(plan.rows_dim), first_row))
        low_column, high_column = b.i(0), b.i(1)
        if plan.columns_dim is not None:
            low_column = b.sub(first, base)
            high_column = b.i(self.width)
            if plan.along:
                high_column = b.min(high_column, b.sub(self.size(plan.columns_dim), first))
        result = self.op.result

        def row(i: Value, _: list[Value]) -> list[Value]:
            def column(j: Value, _: list[Value]) -> list[Value]:
                runs = self.runs(at, b.add(first_row, i), b.add(base, j))
                for member in self.group.members:
                    for value in member.results:
                        e.members[value] = lambda v=value: member_index(e, v, runs)  # type: ignore[misc]
                element = b.load(self.memory, b.add(b.mul(i, b.i(self.width)), j))
                e.remember(("member", result), b.convert(element, tensor(result).dtype))
                for output in self.group.outputs:
                    place = member_index(e, output, runs)
                    e.store(output, place, e.value(output, place))
                return []

            e.loop(low_column, high_column, column)
            return []

        e.loop(b.i(0), high_row, row)

    def runs(self, at: dict[int, Value], row: Value, column: Value) -> list[Run]:
        """The runs over the domain's significant dimensions."""
        where = dict(at)
        if self.plan.rows_dim is not None:
            where[self.plan.rows_dim] = row
        if self.plan.columns_dim is not None:
            where[self.plan.columns_dim] = column
        return [single(d, self.size(i), where[i]) for i, d in enumerate(self.shape) if d != 1]

    # --- reducing --------------------------------------------------------------------------------------------------

    def multiply_add(self, x: Value, y: Value, total: Value) -> Value:
        b = self.e.b
        return b.fma(x, y, total) if self.fused else b.multiply_add(x, y, total)

    def reduce_across(self, at: dict[int, Value], rows: Sequence[Value], base: Value) -> None:
        e, b, plan = self.e, self.e.b, self.plan
        columns = [b.add(base, b.i(k * plan.lanes)) for k in range(plan.columns)]
        operands = _Product(self) if self.op.name == "array.dot_general" else _Convolution(self)
        zero = b.const(0, self.dtype, plan.lanes) if plan.lanes > 1 else b.const(0, self.dtype)

        def step(where: list[Value], totals: list[Value]) -> list[Value]:
            result: list[Value] = []
            shared = None if operands.vectors_by_row else [operands.vector(at, rows[0], c, where) for c in columns]
            number = None if operands.numbers_by_row else operands.number(at, rows[0], where)
            for i, r in enumerate(rows):
                factor = b.splat(number if number is not None else operands.number(at, r, where), plan.lanes)
                vectors = shared or [operands.vector(at, r, c, where) for c in columns]
                for k, vector in enumerate(vectors):
                    result.append(self.multiply_add(factor, vector, totals[i * plan.columns + k]))
            return result

        totals = e.loops(operands.bounds, step, [zero] * (len(rows) * plan.columns))
        for i in range(len(rows)):
            for k in range(plan.columns):
                b.store(self.memory, b.i(i * self.width + k * plan.lanes), totals[i * plan.columns + k])

    def reduce_along(self, at: dict[int, Value], rows: Sequence[Value], first: Value) -> None:
        e, b, plan = self.e, self.e.b, self.plan
        columns = [b.i(0)]
        if plan.columns_dim is not None:
            last = b.sub(self.size(plan.columns_dim), b.i(1))
            columns = [b.min(b.add(first, b.i(j)), last) for j in range(plan.columns)]
        operands = _Product(self)
        (extent,) = operands.bounds
        (length,) = (shape_of(self.op.operands[0])[d] for d in operands.contract[0])
        lanes = plan.lanes

        def step(k: Value, totals: list[Value], width: int) -> list[Value]:
            left = [operands.left(at, r, [k], width) for r in rows]
            right = [operands.right(at, c, [k], width) for c in columns]
            pairs_ = [(x, y) for x in left for y in right]
            return [self.multiply_add(x, y, t) for (x, y), t in zip(pairs_, totals, strict=True)]

        count = len(rows) * len(columns)
        whole = b.mul(b.quot(extent, b.i(lanes)), b.i(lanes))
        zero = b.const(0, self.dtype, lanes)
        vectors = e.loop(b.i(0), whole, lambda k, t: step(k, t, lanes), [zero] * count, step=b.i(lanes))
        totals = [self.across_lanes(v) for v in vectors]
        if length % lanes:
            totals = e.loop(whole, extent, lambda k, t: step(k, t, 1), totals)
        for position, value in enumerate(totals):
            i, j = divmod(position, len(columns))
            b.store(self.memory, b.i(i * self.width + j), value)

    def across_lanes(self, vector: Value) -> Value:
        """The sum of a vector's lanes, in pairs."""
        b = self.e.b
        parts = [b.emit("extract", (vector,), {"index": i}) for i in range(self.plan.lanes)]
        while len(parts) > 1:
            parts = [b.add(parts[i], parts[i + len(parts) // 2]) for i in range(len(parts) // 2)]
        return parts[0]


class _Product:
    """Operands of a dot_general: rows come from x, columns from y."""

    vectors_by_row = False
    numbers_by_row = True

    def __init__(self, tiles: _Tiles) -> None:
        self.e, self.dtype, self.lanes = tiles.e, tiles.dtype, tiles.plan.lanes
        self.x, self.y = tiles.op.operands
        self.batch, self.contract = pairs(tiles.op, "batch"), pairs(tiles.op, "contract")
        self.fx = [d for d in range(len(shape_of(self.x))) if d not in self.batch[0] + self.contract[0]]
        self.fy = [d for d in range(len(shape_of(self.y))) if d not in self.batch[1] + self.contract[1]]
        self.bounds = [self.e.size(shape_of(self.x)[d], self.x, d) for d in self.contract[0]]

    def left(self, at: dict[int, Value], row: Value, where: Sequence[Value], lanes: int) -> Value:
        first = len(self.batch[0])
        free = [at.get(first + i, row) for i in range(len(self.fx))]
        return self.load(self.x, 0, at, free, self.fx, where, lanes)

    def right(self, at: dict[int, Value], column: Value, where: Sequence[Value], lanes: int) -> Value:
        first = len(self.batch[0]) + len(self.fx)
        free = [at.get(first + i, column) for i in range(len(self.fy))]
        return self.load(self.y, 1, at, free, self.fy, where, lanes)

    def load(
        self,
        v: Value,
        side: int,
        at: dict[int, Value],
        free: Sequence[Value],
        free_dims: Sequence[int],
        where: Sequence[Value],
        lanes: int,
    ) -> Value:
        place = {d: at[i] for i, d in enumerate(self.batch[side])}
        place.update(zip(free_dims, free, strict=True))
        place.update(zip(self.contract[side], where, strict=True))
        index = self.e.index_of_dims(v, [place[d] for d in range(len(place))])
        return self.e.b.convert(self.e.vector(v, index, lanes), self.dtype)

    def number(self, at: dict[int, Value], row: Value, where: Sequence[Value]) -> Value:
        return self.left(at, row, where, 1)

    def vector(self, at: dict[int, Value], row: Value, column: Value, where: Sequence[Value]) -> Value:
        return self.right(at, column, where, self.lanes)


class _Convolution:
    """Operands of a ``schedule.convolution``: numbers come from the weights, vectors from the padded image."""

    def __init__(self, tiles: _Tiles) -> None:
        op = tiles.op
        self.e, self.dtype, self.lanes = tiles.e, tiles.dtype, tiles.plan.lanes
        self.x, self.w = op.operands
        self.strides, self.dilation = ints(op, "strides"), ints(op, "dilation")
        groups = op.attributes["groups"]
        assert isinstance(groups, int)
        self.groups = groups
        self.rank = len(self.strides)
        self.depthwise = tiles.plan.rows_dim != 1
        self.vectors_by_row = self.depthwise
        self.numbers_by_row = not self.depthwise
        outputs, inputs, *kernel = shape_of(self.w)
        self.per_group = outputs // groups
        self.inputs = inputs
        self.bounds = [self.e.size(inputs, self.w, 1), *(self.e.b.i(k) for k in kernel)]
        self.rows_dim = tiles.plan.rows_dim

    def channel(self, at: dict[int, Value], row: Value) -> Value:
        return at[1] if self.depthwise else row

    def number(self, at: dict[int, Value], row: Value, where: Sequence[Value]) -> Value:
        index = self.e.index_of_dims(self.w, [self.channel(at, row), *where])
        return self.e.b.convert(self.e.vector(self.w, index, 1), self.dtype)

    def vector(self, at: dict[int, Value], row: Value, column: Value, where: Sequence[Value]) -> Value:
        e, b = self.e, self.e.b
        c, *taps = where
        channel = c
        if self.groups > 1:
            group = b.quot(self.channel(at, row), e.size(self.per_group, "per group"))
            channel = b.add(b.mul(group, e.size(self.inputs, self.w, 1)), c)
        place = dict(at)
        if self.rows_dim is not None:
            place[self.rows_dim] = row
        positions = [
            b.add(b.mul(place[2 + i], b.i(self.strides[i])), b.mul(taps[i], b.i(self.dilation[i])))
            for i in range(self.rank - 1)
        ]
        along = b.mul(taps[-1], b.i(self.dilation[-1]))
        stride = self.strides[-1]
        if stride > 1:  # the image's last dimension was split into phases: column c of phase p is element c*stride + p
            positions.append(b.rem(along, b.i(stride)))
            along = b.quot(along, b.i(stride))
        positions.append(b.add(column, along))
        index = e.index_of_dims(self.x, [at[0], channel, *positions])
        return b.convert(e.vector(self.x, index, self.lanes), self.dtype)
