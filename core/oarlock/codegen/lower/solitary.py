"""Kernels of operators that take no part in fusion: what they share, and merging of sorted runs.

Each works on lanes: a lane is one position in all dimensions but the axis. They are deterministic: what meets at one
element is applied in order by one thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

from oarlock import dtypes
from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.kernel.builder import dtype_of
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.lower.emitter import EmitElement, Emitter
from oarlock.codegen.lower.index import Index, Run, single, split_linear
from oarlock.codegen.lower.network import sort_rows
from oarlock.codegen.lower.radix import radix_pass
from oarlock.codegen.lower.scan import scan
from oarlock.codegen.lower.scatter import scatter
from oarlock.codegen.values import shape_of
from oarlock.dtypes import DType
from oarlock.ir import Operation, Value
from oarlock.target import Target

__all__ = ["SOLITARY_KERNELS", "Solitary"]

THREADS = 64


class Solitary:
    """One operator being lowered by itself: ``e`` with its leaves and outputs, its axis, and the walk over lanes."""

    def __init__(
        self,
        op: Operation,
        leaves: Sequence[Value],
        outputs: Sequence[Value],
        target: Target,
        table: dict[str, EmitElement],
        index: DType,
    ) -> None:
        self.op = op
        self.target = target
        self._given = (op, leaves, outputs, target, table, index)
        self.threads = min(THREADS, target.limits.max_threads) if target.has_threads else 1
        reads_back = op.name == "array.scatter" and op.attributes["kind"] != "set"
        access: Literal["write", "both"] = "both" if reads_back else "write"
        self.e = Emitter("kernel", leaves, outputs, table, (self.threads, 1, 1), index, access, target.has_fma)
        self.outputs = outputs
        axis = op.attributes["axis"]
        assert isinstance(axis, int)
        self.axis = axis

    def anew(self) -> Solitary:
        """The same operator, of which nothing is lowered yet."""
        return Solitary(*self._given)

    def walk(self, count: int, body: Callable[[Value], None], work: int = 1) -> tuple[int, int, int]:
        """Visit 0..count, each in one thread; ``work`` is about the elements that a visit touches."""
        e, b = self.e, self.e.b
        total = e.size(count, "visits")

        def visit(i: Value, _: list[Value]) -> list[Value]:
            body(i)
            return []

        most = self.target.limits.max_grid[0]
        if self.target.has_threads:
            blocks = max(1, min(-(-count // self.threads), most))
            start = b.add(b.mul(b.position("block_id", 0), b.i(self.threads)), b.position("thread_id", 0))
            e.loop(start, total, visit, step=e.parameter(blocks * self.threads, b.index))
            return (blocks, 1, 1)
        per_block = max(1, -(-count // 128), 1024 // max(1, work), -(-count // most))
        step = e.parameter(per_block, b.index)
        start = b.mul(b.position("block_id", 0), step)
        e.loop(start, b.min(b.add(start, step), total), visit)
        return (-(-count // per_block), 1, 1)

    def lane(self, v: Value, linear: Value) -> list[Value]:
        """The position of lane ``linear`` of ``v`` in each dimension, 0 along the axis."""
        b = self.e.b
        shape = [1 if d == self.axis else n for d, n in enumerate(shape_of(v))]
        sizes = [b.i(1) if d == self.axis else s for d, s in enumerate(self.e.sizes_of(v))]
        return split_linear(b, linear, shape, sizes)

    def at(self, v: Value, lane: Sequence[Value], position: Value) -> Index:
        """The index of ``v`` in a lane at ``position`` along the axis."""
        return self.e.index_of_dims(v, [position if d == self.axis else p for d, p in enumerate(lane)])

    def run(self, v: Value, first: int, end: int, position: Value) -> tuple[Run, ...]:
        """The run over dimensions ``first..end`` of ``v`` at ``position``: none where that is no dimension."""
        e, dims = self.e, shape_of(v)[first:end]
        if len(dims) < 2:
            return tuple(single(d, e.size(d, v, first), position) for d in dims)
        total = e.size(math.prod(dims), "run", v, first, end)
        return (Run(dims, total, position, lambda i: e.size(dims[i], v, first + i)),)

    def call(self, grid: tuple[int, int, int], label: str) -> KernelCall:
        return self.e.call(grid, label)


def _merge_pass(s: Solitary) -> KernelCall:
    """Each element finds its place in the merged run by binary search in the neighbouring run."""
    e, b = s.e, s.e.b
    keys, positions = s.op.operands
    out_keys, out_positions = s.op.results
    shape = shape_of(keys)
    width_value = s.op.attributes["width"]
    assert isinstance(width_value, int)
    descending = bool(s.op.attributes.get("descending", False))
    size = e.size(shape[s.axis], keys, s.axis)
    width = e.parameter(width_value, b.index)
    rounds = e.parameter(width_value.bit_length(), b.index)
    total = math.prod(shape)

    def body(i: Value) -> None:
        at = Index.of_dims((total,), (e.size(total, "visits"),), (i,)).reshape(
            b, shape, lambda d: e.size(shape[d], keys, d)
        )
        dims = at.dims(b)
        p = dims[s.axis]
        key = e.value(keys, at)
        double = b.add(width, width)
        start = b.mul(b.quot(p, double), double)
        middle = b.min(b.add(start, width), size)
        end = b.min(b.add(start, double), size)
        left = b.lt(p, middle)
        low, high = b.select(left, middle, start), b.select(left, end, middle)

        def search(_: Value, bounds: list[Value]) -> list[Value]:
            lo, hi = bounds
            mid = b.quot(b.add(lo, hi), b.i(2))
            probe = b.min(mid, b.sub(size, b.i(1)))
            other = e.value(keys, s.at(keys, dims, probe))
            # from the left run: what is strictly before the key stands before it; from the right: what is not after
            before = b.select(left, precedes(b, other, key, descending), b.not_(precedes(b, key, other, descending)))
            before = b.and_(before, b.lt(lo, hi))
            return [b.select(before, b.add(mid, b.i(1)), lo), b.select(b.or_(before, b.le(hi, lo)), hi, mid)]

        found = e.loop(b.i(0), rounds, search, [low, high])[0]
        rank = b.add(b.sub(p, b.select(left, start, middle)), b.sub(found, low))
        place = s.at(keys, dims, b.add(start, rank))
        e.store(out_keys, place, key)
        e.store(out_positions, place, e.value(positions, at))

    return s.call(s.walk(total, body, 1 + width_value.bit_length()), "merge_pass")


def precedes(b: KernelBuilder, x: Value, y: Value, descending: bool) -> Value:
    """Whether x stands strictly before y in a sort; NaN stands last."""
    dtype = dtype_of(x)
    if dtype.kind == "bool":
        x, y = b.convert(x, dtypes.uint8), b.convert(y, dtypes.uint8)
    less = b.lt(y, x) if descending else b.lt(x, y)
    if dtype.is_float:
        less = b.or_(less, b.and_(b.is_nan(y), b.not_(b.is_nan(x))))
    return less


SOLITARY_KERNELS: dict[str, Callable[[Solitary], KernelCall]] = {
    "array.scatter": scatter,
    "array.scan": scan,
    "schedule.scan_pieces": scan,
    "schedule.merge_pass": _merge_pass,
    "schedule.radix_pass": radix_pass,
    "schedule.sort_rows": sort_rows,
}
"""How each solitary operator is lowered."""
