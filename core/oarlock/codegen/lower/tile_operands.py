"""What a tile is computed from: numbers for its rows and vectors for its columns, by operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.lower.anchors import pairs
from oarlock.codegen.lower.emitter import Emitter
from oarlock.codegen.lower.index import Index, Run, split_linear
from oarlock.codegen.lower.tiling import Tiling
from oarlock.codegen.values import ints, shape_of
from oarlock.dtypes import DType
from oarlock.ir import Operation, Value

__all__ = ["ACROSS", "Product", "Tiles", "window_starts"]


class Tiles(Protocol):
    """What operands ask of the lowering of a tile."""

    @property
    def e(self) -> Emitter: ...
    @property
    def op(self) -> Operation: ...
    @property
    def plan(self) -> Tiling: ...
    @property
    def dtype(self) -> DType: ...


class Product:
    """Operands of a dot_general: rows come from x, columns from y."""

    vectors_by_row = False
    numbers_by_row = True

    def __init__(self, tiles: Tiles) -> None:
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


class Convolution:
    """Operands of a ``schedule.convolution``: numbers come from the weights, vectors from the padded image."""

    def __init__(self, tiles: Tiles) -> None:
        op = tiles.op
        self.e, self.dtype, self.lanes = tiles.e, tiles.dtype, tiles.plan.lanes
        self.x, self.w = op.operands
        self.strides, self.dilation = ints(op, "strides"), ints(op, "dilation")
        groups = op.attributes["groups"]
        assert isinstance(groups, int)
        self.groups = groups
        self.rank = len(self.strides)
        self.depthwise = tiles.plan.row_dims != range(1, 2)
        self.vectors_by_row = self.depthwise
        self.numbers_by_row = not self.depthwise
        outputs, inputs, *kernel = shape_of(self.w)
        self.per_group = outputs // groups
        self.inputs = inputs
        self.bounds = [self.e.size(inputs, self.w, 1), *(self.e.b.i(k) for k in kernel)]
        self.row_dims = tiles.plan.row_dims

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
        if self.row_dims:
            place[self.row_dims.start] = row
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


class Packed:
    """Operands of a ``schedule.packed_product``: a panel of rows, or rows in place, and a panel of columns; either may
    lack the batch."""

    vectors_by_row = False
    numbers_by_row = True

    def __init__(self, tiles: Tiles) -> None:
        self.e, self.plan = tiles.e, tiles.plan
        self.x, self.y = tiles.op.operands
        self.in_place = bool(tiles.op.attributes["in_place"])
        steps = tiles.op.attributes["steps"]
        assert isinstance(steps, int)
        self.inner = steps + 1
        """Dimensions of one panel."""
        last = len(shape_of(self.y)) - 1
        self.bounds = [self.e.size(shape_of(self.y)[d], self.y, d) for d in range(last - steps, last)]

    def number(self, at: dict[int, Value], row: Value, where: Sequence[Value]) -> Value:
        if self.in_place:
            batch = [at[d] for d in range(len(shape_of(self.x)) - self.inner)]
            return self.e.vector(self.x, self.e.index_of_dims(self.x, [*batch, row, *where]), 1)
        return self.load(self.x, at[self.plan.row_dims.start], at, where, row, 1)

    def vector(self, at: dict[int, Value], row: Value, column: Value, where: Sequence[Value]) -> Value:
        return self.load(self.y, at[self.plan.column_dims.start], at, where, column, self.plan.lanes)

    def load(
        self, x: Value, panel: Value, at: dict[int, Value], where: Sequence[Value], position: Value, lanes: int
    ) -> Value:
        batch = [at[d] for d in range(len(shape_of(x)) - 1 - self.inner)]
        return self.e.vector(x, self.e.index_of_dims(x, [*batch, panel, *where, position]), lanes)


class Windows:
    """Operands of a ``schedule.window_product``: a row is where the window of a pixel starts in the image (see
    ``window_starts``), and its steps lie in stretches from there on."""

    vectors_by_row = False
    numbers_by_row = True

    def __init__(self, tiles: Tiles) -> None:
        e = self.e = tiles.e
        self.x, self.y = tiles.op.operands
        self.column_dim, self.lanes = tiles.plan.column_dims.start, tiles.plan.lanes
        *kernel, last = shape_of(self.y)[1:-1]
        self.bounds = [*(e.b.i(k) for k in kernel), e.size(last, self.y, len(kernel) + 1)]
        self.dilation = ints(tiles.op, "dilation")

    def number(self, at: dict[int, Value], row: Value, where: Sequence[Value]) -> Value:
        e, b = self.e, self.e.b
        sizes, place = e.sizes_of(self.x), row
        *taps, last = where
        for d, tap in enumerate(taps):
            step = b.i(self.dilation[d])
            for size in sizes[d + 2 :]:
                step = b.mul(step, size)
            place = b.add(place, b.mul(tap, step))
        return e.vector(self.x, linear_index(e, self.x, b.add(place, last)), 1)

    def vector(self, at: dict[int, Value], row: Value, column: Value, where: Sequence[Value]) -> Value:
        index = self.e.index_of_dims(self.y, [at[self.column_dim], *where, column])
        return self.e.vector(self.y, index, self.lanes)


def linear_index(e: Emitter, v: Value, place: Value) -> Index:
    """The index of ``v`` at a row-major position."""
    sizes = e.sizes_of(v)
    total = e.b.i(1)
    for size in sizes:
        total = e.b.mul(total, size)
    return Index((Run(shape_of(v), total, place, lambda d: sizes[d]),))


def window_starts(e: Emitter, op: Operation, first: Value, count: int) -> list[Value]:
    """Where the windows of ``count`` pixels from ``first`` on start in the image, row-major.

    Pixels are numbered through all of the result's dimensions but the last; what is past the last stands for it.

    Only the first is found by division: the others are its neighbours.
    """
    b = e.b
    x, strides = op.operands[0], (1, *ints(op, "strides"))
    shape = shape_of(op.result)[:-1]
    counts = [e.size(d, "result", i) for i, d in enumerate(shape)]
    total = e.size(math.prod(shape), "extent", 0, len(shape))
    exact = math.prod(shape) % count == 0
    sizes = e.sizes_of(x)
    place = split_linear(b, first, shape, counts)
    starts = []
    for i in range(count):
        if i:
            more = b.i(1) if exact else b.select(b.lt(b.add(first, b.i(i)), total), b.i(1), b.i(0))
            place = _next(b, place, shape, counts, more)
        start = b.i(0)
        for position, size, stride in zip(place, sizes, strides, strict=False):
            start = b.add(b.mul(start, size), b.mul(position, b.i(stride)))
        starts.append(b.mul(start, sizes[-1]))
    return starts


def _next(
    b: KernelBuilder, place: Sequence[Value], shape: Sequence[int], counts: Sequence[Value], more: Value
) -> list[Value]:
    """The row-major position ``more`` (0 or 1) after ``place``."""
    result: list[Value] = []
    for position, size, count in zip(reversed(place), reversed(shape), reversed(counts), strict=True):
        if size == 1:
            result.append(position)
            continue
        moved = b.add(position, more)
        if len(result) == len(place) - 1:  # nothing is before it that it could carry to
            result.append(moved)
            break
        wraps = b.eq(moved, count)
        result.append(b.select(wraps, b.i(0), moved))
        more = b.select(wraps, b.i(1), b.i(0))
    return [*place[: len(place) - len(result)], *reversed(result)]


ACROSS: dict[str, type[Product] | type[Convolution] | type[Packed] | type[Windows]] = {
    "array.dot_general": Product,
    "schedule.convolution": Convolution,
    "schedule.packed_product": Packed,
    "schedule.window_product": Windows,
}
