"""Matrix products on matrix units: a block computes a tile of results, its subgroups 16 x 16 pieces of it together.

Tiles of both operands are copied to local memory step by step, zeros past the last row, column or term, whatever views
the operands are. The finished tile goes through local memory too, from where the element-wise consumers in the group
are computed, one element a thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from oarlock import dtypes
from oarlock.codegen.groups import Group
from oarlock.codegen.lower.anchors import pairs
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.lower.domain import member_index
from oarlock.codegen.lower.emitter import EmitElement, Emitter
from oarlock.codegen.lower.index import single, split_linear
from oarlock.codegen.schedule import schedule_of
from oarlock.codegen.values import shape_of
from oarlock.dtypes import DType
from oarlock.ir import Operation, Value
from oarlock.ops import tensor
from oarlock.target import Target

__all__ = ["lower_matrix", "matrix_kind"]

PIECE = 16
"""Rows, columns and terms of one step of a matrix unit."""
SUBGROUPS = (2, 2)
"""Subgroups of a block, by rows and columns."""
PIECES = (2, 2)
"""Pieces of a subgroup, by rows and columns, by the rules."""
ROW = 24
"""Elements between rows of a tile in local memory: 16, and 8 that spread the rows over the memory's banks."""


def matrix_kind(op: Operation, target: Target) -> str:
    """The kind of matrix unit that computes a ``dot_general`` on ``target``; empty where none does, or does not pay."""
    x, y = op.operands
    dtype = tensor(x).dtype
    kind = "tf32" if dtype == dtypes.float32 else dtype.name
    fits = tensor(y).dtype == dtype and tensor(op.result).dtype in (dtype, dtypes.float32) and target.subgroup
    if not fits or f"matrix_{kind}" not in target.abilities:
        return ""
    (bx, by), (cx, cy) = pairs(op, "batch"), pairs(op, "contract")
    sides = ((x, bx, cx), (y, by, cy))
    free = [math.prod(n for d, n in enumerate(shape_of(v)) if d not in b + c) for v, b, c in sides]
    steps = math.prod(shape_of(x)[d] for d in cx)
    threads = target.subgroup * math.prod(SUBGROUPS)
    return kind if min(*free, steps) >= PIECE and threads <= target.limits.max_threads else ""


def lower_matrix(
    group: Group, kind: str, target: Target, table: dict[str, EmitElement], name: str, label: str, index: DType
) -> KernelCall:
    """A kernel for a group whose anchor is a ``dot_general`` that matrix units of ``kind`` compute."""
    work = _Matrix(group, kind, target, table, name, index)
    return work.e.call(work.lower(), label)


class _Side:
    """One operand: which of its dimensions are shared with the other, its own, and summed over."""

    def __init__(self, e: Emitter, value: Value, batch: Sequence[int], contract: Sequence[int]) -> None:
        self.value, self.batch, self.contract = value, batch, contract
        self.shape = shape_of(value)
        self.free = [d for d in range(len(self.shape)) if d not in (*batch, *contract)]
        self.count = math.prod(self.shape[d] for d in self.free)
        self.steps = math.prod(self.shape[d] for d in contract)
        self.sizes = e.sizes_of(value)
        self.total = e.size(self.count, value, "free")
        self.terms = e.size(self.steps, value, "terms")

    def split(self, e: Emitter, position: Value, dims: Sequence[int]) -> list[Value]:
        """A position along all of ``dims`` as one along each."""
        return split_linear(e.b, position, [self.shape[d] for d in dims], [self.sizes[d] for d in dims])

    def element(self, e: Emitter, batch: Sequence[Value], own: Value, term: Value) -> Value:
        """An element, or 0 past the last one."""
        b = e.b
        inside = b.and_(b.lt(own, self.total), b.lt(term, self.terms))
        own, term = (b.select(inside, position, b.i(0)) for position in (own, term))
        at = dict(zip(self.batch, batch, strict=True))
        at.update(zip(self.free, self.split(e, own, self.free), strict=True))
        at.update(zip(self.contract, self.split(e, term, self.contract), strict=True))
        found = e.value(self.value, e.index_of_dims(self.value, [at[d] for d in range(len(at))]))
        return b.select(inside, found, b.const(0, tensor(self.value).dtype))


class _Matrix:
    def __init__(
        self, group: Group, kind: str, target: Target, table: dict[str, EmitElement], name: str, index: DType
    ) -> None:
        assert group.anchor is not None
        self.group, self.op, self.kind, self.target = group, group.anchor, kind, target
        self.width = target.subgroup
        self.threads = self.width * math.prod(SUBGROUPS)
        self.e = Emitter(name, group.leaves, group.outputs, table, (self.threads, 1, 1), index, fused=target.has_fma)
        batch, contract = pairs(self.op, "batch"), pairs(self.op, "contract")
        self.x, self.y = (_Side(self.e, v, batch[i], contract[i]) for i, v in enumerate(self.op.operands))
        self.shape = shape_of(self.op.result)
        schedule = schedule_of(self.op)
        self.pieces = (schedule.rows or PIECES[0], schedule.vectors or PIECES[1])
        self.rows, self.columns = (s * p * PIECE for s, p in zip(SUBGROUPS, self.pieces, strict=True))

    def lower(self) -> tuple[int, int, int]:
        """A block for each tile, striding where there are more than the grid holds."""
        e, b = self.e, self.e.b
        dtype = tensor(self.x.value).dtype
        self.left, self.right = b.local(dtype, self.rows * ROW), b.local(dtype, self.columns * ROW)
        self.result = b.local(dtypes.float32, self.rows * self.columns)
        self.thread = b.position("thread_id", 0)
        batch = [self.x.shape[d] for d in self.x.batch]
        counts = [*batch, -(-self.x.count // self.rows), -(-self.y.count // self.columns)]
        sizes = [e.size(count, "walk", i) for i, count in enumerate(counts)]
        total = math.prod(counts)
        blocks = min(total, self.target.limits.max_grid[0])

        def tile(t: Value, _: list[Value]) -> list[Value]:
            *at, row, column = split_linear(b, t, counts, sizes)
            self.tile(at, b.mul(row, b.i(self.rows)), b.mul(column, b.i(self.columns)))
            return []

        e.loop(b.position("block_id", 0), e.size(total, "tiles"), tile, step=e.parameter(blocks, b.index))
        return (blocks, 1, 1)

    def tile(self, batch: Sequence[Value], row: Value, column: Value) -> None:
        e, b = self.e, self.e.b
        subgroup = b.quot(self.thread, b.i(self.width))
        rows = self.places(b.quot(subgroup, b.i(SUBGROUPS[1])), self.pieces[0])
        columns = self.places(b.rem(subgroup, b.i(SUBGROUPS[1])), self.pieces[1])

        def step(term: Value, totals: list[Value]) -> list[Value]:
            b.barrier()  # what was copied before has been read by all
            self.copy(self.left, self.x, self.rows, batch, row, term)
            self.copy(self.right, self.y, self.columns, batch, column, term)
            b.barrier()
            places = [(b.mul(r, b.i(ROW)), b.mul(c, b.i(ROW))) for r in rows for c in columns]
            return [
                b.matrix_fma(self.left, r, self.right, c, total, ROW, self.kind, self.width)
                for (r, c), total in zip(places, totals, strict=True)
            ]

        zero = b.const(0, dtypes.float32, PIECE * PIECE // self.width)
        totals = e.loop(b.i(0), self.x.terms, step, [zero] * math.prod(self.pieces), step=b.i(PIECE))
        for total, (r, c) in zip(totals, [(r, c) for r in rows for c in columns], strict=True):
            place = b.add(b.mul(r, b.i(self.columns)), c)
            b.matrix_store(self.result, place, total, self.columns, self.width)
        b.barrier()
        self.each(self.rows * self.columns, lambda t: self.finish(batch, row, column, t))
        b.barrier()  # before the next tile's result comes

    def places(self, number: Value, count: int) -> list[Value]:
        """Where the pieces of subgroup ``number`` begin, along one side of the tile."""
        b = self.e.b
        first = b.mul(number, b.i(count * PIECE))
        return [b.add(first, b.i(k * PIECE)) for k in range(count)]

    def each(self, count: int, visit: Callable[[Value], None]) -> None:
        """``visit(position)`` for each position below ``count``, a multiple of the threads, neighbours side by side."""
        e, b = self.e, self.e.b

        def body(t: Value, _: list[Value]) -> list[Value]:
            visit(b.add(b.mul(t, b.i(self.threads)), self.thread))
            return []

        e.loop(b.i(0), b.i(count // self.threads), body, unroll=count <= 8 * self.threads)

    def copy(self, memory: Value, side: _Side, rows: int, batch: Sequence[Value], first: Value, term: Value) -> None:
        """Copy a tile of an operand: ``rows`` of its own positions, each with the next terms side by side.

        Threads side by side read what lies side by side: terms, or own positions where these are the last dimension.
        """
        b = self.e.b
        along = side.contract[-1] > (side.free[-1] if side.free else -1)

        def element(t: Value) -> None:
            if along:
                own, step = b.quot(t, b.i(PIECE)), b.rem(t, b.i(PIECE))
            else:
                own, step = b.rem(t, b.i(rows)), b.quot(t, b.i(rows))
            found = side.element(self.e, batch, b.add(first, own), b.add(term, step))
            b.store(memory, b.add(b.mul(own, b.i(ROW)), step), found)

        self.each(rows * PIECE, element)

    def finish(self, batch: Sequence[Value], row: Value, column: Value, t: Value) -> None:
        """Compute and store the group's outputs at one element of the tile."""
        e, b = self.e, self.e.b
        own = b.add(row, b.quot(t, b.i(self.columns)))
        other = b.add(column, b.rem(t, b.i(self.columns)))

        def write() -> list[Value]:
            where = [*batch, *self.x.split(e, own, self.x.free), *self.y.split(e, other, self.y.free)]
            sizes = [e.size(n, "result", d) for d, n in enumerate(self.shape)]
            runs = [single(n, sizes[d], where[d]) for d, n in enumerate(self.shape) if n != 1]
            for member in self.group.members:
                for value in member.results:
                    e.members[value] = lambda v=value: member_index(e, v, runs)  # type: ignore[misc]
            result = self.op.result
            e.remember(("member", result), b.convert(b.load(self.result, t), tensor(result).dtype))
            for output in self.group.outputs:
                place = member_index(e, output, runs)
                e.store(output, place, e.value(output, place))
            return []

        e.branch(b.and_(b.lt(own, self.x.total), b.lt(other, self.y.total)), write)
