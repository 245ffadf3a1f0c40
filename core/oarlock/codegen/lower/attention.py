"""Attention in one kernel: a few rows of queries at a time, over stretches of keys, the scores in private memory.

For each stretch: the scores as a tile product of packed queries and keys; row by row what stands between (a scale, a
mask), the largest so far, and the exponentials less it; then their product with the packed values is added to the rows'
sums, which are scaled where the largest has grown. What the sums are divided by is added up on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from oarlock.codegen import math as functions
from oarlock.codegen.groups import Group
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.lower.domain import member_index
from oarlock.codegen.lower.elementwise import combine, identity
from oarlock.codegen.lower.emitter import EmitElement, Emitter
from oarlock.codegen.lower.index import Run, single, split_linear
from oarlock.codegen.lower.tiles import THREADS
from oarlock.codegen.lower.tiling import vector_lanes
from oarlock.codegen.lower.vectors import across_lanes, each_element, has_vectors, multiple, widest
from oarlock.codegen.values import shape_of
from oarlock.dtypes import DType
from oarlock.ir import Value
from oarlock.ir.extents import known
from oarlock.ops import tensor
from oarlock.target import Target

__all__ = ["lower_attention"]

KEYS, KEYS_OF_THREAD = 256, 32
"""Keys of a stretch: scores of a tile's rows stay in the first cache, or in a thread's own memory."""


def lower_attention(
    group: Group, target: Target, table: dict[str, EmitElement], name: str, label: str, index: DType
) -> KernelCall:
    """A kernel for a group whose anchor is a ``schedule.attend``."""
    assert group.anchor is not None

    def lower(lanes: int) -> KernelCall:
        work = _Attention(group, target, table, name, index, lanes)
        return work.e.call(work.lower(), label)

    return widest(lower, vector_lanes(target, tensor(group.anchor.operands[1]).dtype))


class _Attention:
    def __init__(
        self, group: Group, target: Target, table: dict[str, EmitElement], name: str, index: DType, lanes: int
    ) -> None:
        assert group.anchor is not None
        self.group, self.target, self.attend = group, target, group.anchor
        self.element_lanes = lanes
        """How many elements of what stands between the products, and behind them, are computed at once."""
        self.threads = min(THREADS, target.limits.max_threads) if target.has_threads else 1
        self.e = Emitter(name, group.leaves, group.outputs, table, (self.threads, 1, 1), index, fused=target.has_fma)
        self.steps = group.members[: group.members.index(self.attend)]
        (self.scores,) = (op for op in self.steps if op.name == "schedule.scores")
        (self.logits,) = (op.operands[0] for op in self.steps if op.name == "array.reduce_max")
        self.q, self.k = self.scores.operands
        self.v = self.attend.operands[1]
        self.shape = shape_of(self.attend.result)
        batch, rows, tile = (self.attend.attributes[name] for name in ("batch", "rows", "tile"))
        assert isinstance(batch, int) and isinstance(rows, int) and isinstance(tile, int)
        self.batch = batch
        self.row_dims, self.column_dims = range(batch, batch + rows), range(batch + rows, len(self.shape))
        self.dtype = tensor(self.v).dtype
        self.lanes = vector_lanes(target, self.dtype)
        self.rows, self.width = tile, known(shape_of(self.v)[-1])
        self.stretch = max(KEYS_OF_THREAD if target.has_threads else KEYS, self.width)
        self.panels = known(shape_of(self.v)[-3])
        b = self.e.b
        self.weights = b.private(self.dtype, self.rows * self.stretch)
        """The scores of a stretch, then their exponentials."""
        self.sums = b.private(self.dtype, self.rows * self.panels * self.width)
        """The weighted sums of values so far."""
        self.most, self.total = b.private(self.dtype, self.rows), b.private(self.dtype, self.rows)
        """The largest score, and the sum of the exponentials, of each row so far."""

    def extent(self, dims: range) -> Value:
        """The kernel value of how many elements ``dims`` of the result have together."""
        if len(dims) == 1:
            return self.e.size(self.shape[dims.start], "result", dims.start)
        return self.e.size(math.prod(self.shape[d] for d in dims), "extent", dims.start, dims.stop)

    @property
    def keys(self) -> Value:
        return self.e.size(shape_of(self.v)[-2], "extent", "keys")

    # --- the walk over tiles ---------------------------------------------------------------------------------------

    def lower(self) -> tuple[int, int, int]:
        e, b = self.e, self.e.b
        tiles = -(-math.prod(self.shape[d] for d in self.row_dims) // self.rows)
        counts = [*self.shape[: self.batch], tiles]
        sizes = [*(e.size(d, "result", i) for i, d in enumerate(self.shape[: self.batch])), e.size(tiles, "tiles")]
        total = math.prod(counts)

        def tile(t: Value, _: list[Value]) -> list[Value]:
            *at, row = split_linear(b, t, counts, sizes)
            self.tile(at, row)
            return []

        most = self.target.limits.max_grid[0]
        if self.target.has_threads:
            blocks = max(1, min(-(-total // self.threads), most))
            start = b.add(b.mul(b.position("block_id", 0), b.i(self.threads)), b.position("thread_id", 0))
            e.loop(start, e.size(total, "all"), tile, step=e.parameter(blocks * self.threads, b.index))
            return (blocks, 1, 1)
        per_block = max(1, -(-total // 256), -(-total // most))
        step = e.parameter(per_block, b.index)
        start = b.mul(b.position("block_id", 0), step)
        e.loop(start, b.min(b.add(start, step), e.size(total, "all")), tile)
        return (-(-total // per_block), 1, 1)

    def tile(self, at: Sequence[Value], row: Value) -> None:
        """Compute the rows of one panel of queries."""
        e, b = self.e, self.e.b
        first = b.mul(row, b.i(self.rows))
        rows = b.min(b.i(self.rows), b.sub(self.extent(self.row_dims), first))
        zero, lowest = b.const(0, self.dtype), b.const(identity("max", self.dtype), self.dtype)

        def clear(j: Value, streams: bool) -> None:
            e.keep(self.sums, j, zero)

        each_element(e, b.i(0), b.i(self.rows * self.panels * self.width), self.lanes, clear)
        for i in range(self.rows):
            b.store(self.most, b.i(i), lowest)
            b.store(self.total, b.i(i), zero)

        def stretch(start: Value, _: list[Value]) -> list[Value]:
            count = b.min(b.i(self.stretch), b.sub(self.keys, start))
            self.score(at, row, first, start, count)
            e.loop(b.i(0), rows, lambda i, _: self.weigh(at, first, i, start, count))
            e.loop(b.i(0), e.size(self.panels, "panels"), lambda c, _: self.add_values(at, c, start, count))
            return []

        e.loop(b.i(0), self.keys, stretch, step=b.i(self.stretch))
        e.loop(b.i(0), rows, lambda i, _: self.finish(at, first, i))

    # --- a stretch of keys -----------------------------------------------------------------------------------------

    def score(self, at: Sequence[Value], row: Value, first: Value, start: Value, count: Value) -> None:
        """The scores of ``count`` keys from ``start`` on, of a whole last panel at least, into ``weights``."""
        e, b = self.e, self.e.b
        panels = b.quot(b.add(count, b.i(self.width - 1)), b.i(self.width))
        panels_before = b.quot(start, b.i(self.width))
        depth = e.size(shape_of(self.k)[-2], "depth")
        last = b.sub(self.extent(self.row_dims), b.i(1))
        rows = [b.min(b.add(first, b.i(i)), last) for i in range(self.rows)]
        in_place = self.scores.attributes["in_place"]
        vectors = [b.i(k * self.lanes) for k in range(self.width // self.lanes)]
        zero = b.const(0, self.dtype, self.lanes)

        def panel(p: Value, _: list[Value]) -> list[Value]:
            def step(d: Value, totals: list[Value]) -> list[Value]:
                keys = [self.load(self.k, [*at, b.add(panels_before, p), d, v], self.lanes) for v in vectors]
                places = [[r, d] if in_place else [row, d, b.i(i)] for i, r in enumerate(rows)]
                queries = [self.load(self.q, [*at, *place], 1) for place in places]
                products = [(query, key) for query in queries for key in keys]
                return [b.multiply_add(x, y, t) for (x, y), t in zip(products, totals, strict=True)]

            totals = e.loop(b.i(0), depth, step, [zero] * (self.rows * len(vectors)))
            self.store_tile(self.weights, self.stretch, b.mul(p, b.i(self.width)), totals)
            return []

        e.loop(b.i(0), panels, panel)

    def weigh(self, at: Sequence[Value], first: Value, i: Value, start: Value, count: Value) -> list[Value]:
        """Turn the scores of row ``i`` into exponentials less the largest so far, and account for it."""
        e, b = self.e, self.e.b
        base = b.mul(i, b.i(self.stretch))

        def logit(j: Value) -> Value:
            runs = [*self.leading(at, b.add(first, i)), *self.run("keys", shape_of(self.v)[-2:-1], b.add(start, j))]
            for op in self.steps:
                e.members[op.result] = lambda v=op.result: member_index(e, v, runs)  # type: ignore[misc]
            score = b.convert(e.kept(self.weights, b.add(base, j)), tensor(self.scores.result).dtype)
            e.remember(("member", self.scores.result), score)
            x = b.convert(e.value(self.logits, member_index(e, self.logits, runs)), self.dtype)
            e.keep(self.weights, b.add(base, j), x)
            return x

        old = b.load(self.most, i)
        lanes = [self.element_lanes] if self.element_lanes > 1 else []
        new = combine(b, "max", old, self.fold("max", count, lanes, logit))
        lowest = b.const(identity("max", self.dtype), self.dtype)
        shift = b.select(b.eq(new, lowest), b.const(0, self.dtype), new)  # a row of -inf so far has weights of 0
        scale = functions.emit(b, "exp", b.sub(old, shift))

        def weight(j: Value) -> Value:
            x = functions.emit(b, "exp", b.sub(e.kept(self.weights, b.add(base, j)), shift))
            e.keep(self.weights, b.add(base, j), x)
            return x

        several = [n * self.lanes for n in (4, 2) if has_vectors(self.target, n * self.lanes) and self.dtype.bits <= 32]
        total = self.fold("sum", count, [*several[:1], self.lanes] if self.lanes > 1 else [], weight)
        b.store(self.most, i, new)
        b.store(self.total, i, b.add(b.mul(b.load(self.total, i), scale), total))
        width = self.panels * self.width

        def rescale(j: Value, streams: bool) -> None:
            place = b.add(b.mul(i, b.i(width)), j)
            e.keep(self.sums, place, b.mul(e.kept(self.sums, place), scale))

        each_element(e, b.i(0), b.i(width), self.lanes, rescale)
        return []

    def fold(self, kind: str, count: Value, vectors: Sequence[int], element: Callable[[Value], Value]) -> Value:
        """``element`` of each position below ``count``, combined: in vectors of so many while there are enough, each
        time, then one by one."""
        e, b = self.e, self.e.b
        neutral = b.const(identity(kind, self.dtype), self.dtype)

        def step(j: Value, held: list[Value]) -> list[Value]:
            return [combine(b, kind, held[0], element(j))]

        start, held = b.i(0), neutral
        for lanes in vectors:
            whole = multiple(e, count, lanes)
            (vector,) = e.vector_loop(start, whole, lanes, step, [b.splat(neutral, lanes)])
            held = combine(b, kind, held, across_lanes(e, vector, lambda x, y: combine(b, kind, x, y)))
            start = whole
        return e.loop(start, count, step, [held], few=bool(vectors))[0]

    def add_values(self, at: Sequence[Value], c: Value, start: Value, count: Value) -> list[Value]:
        """Add the weighted values of panel ``c``'s columns to the rows' sums."""
        e, b = self.e, self.e.b
        vectors = [b.i(k * self.lanes) for k in range(self.width // self.lanes)]
        stride, first = self.panels * self.width, b.mul(c, b.i(self.width))
        places = [b.add(b.add(first, b.i(i * stride)), v) for i in range(self.rows) for v in vectors]

        def step(j: Value, totals: list[Value]) -> list[Value]:
            values = [self.load(self.v, [*at, c, b.add(start, j), v], self.lanes) for v in vectors]
            weights = [b.load(self.weights, b.add(j, b.i(i * self.stretch))) for i in range(self.rows)]
            products = [(weight, value) for weight in weights for value in values]
            return [b.multiply_add(x, y, t) for (x, y), t in zip(products, totals, strict=True)]

        totals = e.loop(b.i(0), count, step, [b.load(self.sums, place, self.lanes) for place in places])
        self.store_tile(self.sums, stride, first, totals)
        return []

    def load(self, panels: Value, where: Sequence[Value], lanes: int) -> Value:
        element = self.e.vector(panels, self.e.index_of_dims(panels, where), lanes)
        return self.e.b.splat(element, self.lanes) if lanes == 1 else element

    def store_tile(self, memory: Value, stride: int, first: Value, totals: Sequence[Value]) -> None:
        """Store vectors of a tile, row by row, to private memory."""
        b, vectors = self.e.b, self.width // self.lanes
        for position, total in enumerate(totals):
            i, k = divmod(position, vectors)
            b.store(memory, b.add(first, b.i(i * stride + k * self.lanes)), total)

    # --- the result ------------------------------------------------------------------------------------------------

    def finish(self, at: Sequence[Value], first: Value, i: Value) -> list[Value]:
        """Divide row ``i``, and compute and store what the group makes of it."""
        e, b = self.e, self.e.b
        total = b.load(self.total, i)
        sizes = [self.shape[d] for d in self.column_dims]

        def column(j: Value, streams: bool) -> None:
            runs = [*self.leading(at, b.add(first, i)), *self.run("columns", sizes, j)]
            for member in self.group.members:
                for value in member.results:
                    e.members[value] = lambda v=value: member_index(e, v, runs)  # type: ignore[misc]
            place = b.add(b.mul(i, b.i(self.panels * self.width)), j)
            quotient = b.emit("div", (e.kept(self.sums, place), total))
            e.remember(("member", self.attend.result), b.convert(quotient, tensor(self.attend.result).dtype))
            for output in self.group.outputs:
                index = member_index(e, output, runs)
                e.store(output, index, e.value(output, index))

        each_element(e, b.i(0), self.extent(self.column_dims), self.element_lanes, column)
        return []

    def leading(self, at: Sequence[Value], row: Value) -> list[Run]:
        """The runs over the batch and the rows."""
        e = self.e
        batch = [single(d, e.size(d, "result", i), at[i]) for i, d in enumerate(self.shape[: self.batch]) if d != 1]
        return [*batch, *self.run("rows", [self.shape[d] for d in self.row_dims], row)]

    def run(self, key: str, sizes: Sequence[int], position: Value) -> list[Run]:
        """The run over the significant ones of neighbouring ``sizes``, if any."""
        kept = tuple(d for d in sizes if d != 1)
        if not kept:
            return []
        total = self.e.size(math.prod(kept), "extent", key)
        return [Run(kept, total, position, lambda k: self.e.size(kept[k], "size", key, k))]
