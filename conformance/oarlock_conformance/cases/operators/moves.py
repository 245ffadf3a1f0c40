"""Makers of random programs: from a value and a few numbers to an operator that moves, reduces or contracts it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ir import Value
from oarlock.ops import ArrayBuilder, tensor

__all__ = ["MAKERS", "MOST", "Maker", "Turn"]

MOST = 4096
"""Elements of a value."""


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """What a maker works with: the operand, all values so far, four numbers, and what it may do.

    ``sums``: whether sums and products of the operand's elements are exact.
    """

    b: ArrayBuilder
    x: Value
    values: Sequence[Value]
    numbers: tuple[int, ...]
    kinds: Sequence[DType]
    sums: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return tensor(self.x).static_shape

    @property
    def dtype(self) -> DType:
        return tensor(self.x).dtype

    @property
    def axis(self) -> int:
        """One of the operand's axes, which must be there."""
        return self.number(0) % len(self.shape)

    def number(self, place: int) -> int:
        return self.numbers[place % len(self.numbers)]

    def broadcasts(self, values: Sequence[Value]) -> bool:
        """Whether values broadcast to one shape that is not too large."""
        shapes = [tensor(value).static_shape for value in values]
        rank = max(len(shape) for shape in shapes)
        total = 1
        for axis in range(1, rank + 1):
            sizes = {shape[-axis] for shape in shapes if axis <= len(shape)} - {1}
            if len(sizes) > 1:
                return False
            total *= max(sizes, default=1)
        return total <= MOST

    def others(self, dtype: DType, rank: int) -> list[Value]:
        """Values of a dtype and rank, the latest last."""
        return [v for v in self.values if tensor(v).dtype == dtype and tensor(v).rank == rank]


Maker: TypeAlias = "Callable[[Turn], Value | None]"


def _reduce(t: Turn) -> Value | None:
    if not t.shape:
        return None
    kinds = ["reduce_max", "reduce_min"]
    if t.sums and t.dtype.kind != "bool":
        kinds = ["reduce_sum", *kinds, *([] if t.dtype.is_float else ["reduce_prod"])]
    axes = tuple(sorted({t.axis, t.number(2) % len(t.shape)}))
    return t.b(kinds[t.number(1) % len(kinds)], t.x, axes=axes, keepdims=bool(t.number(3) % 2))


def _position(t: Turn) -> Value | None:
    if not t.shape or not t.shape[t.axis]:
        return None
    name = ("argmax", "argmin")[t.number(1) % 2]
    return t.b(name, t.x, axis=t.axis, keepdims=bool(t.number(2) % 2), dtype=dtypes.int32)


def _transpose(t: Turn) -> Value | None:
    order = list(range(len(t.shape)))
    for place in range(len(order)):
        order.append(order.pop(t.number(place) % len(order)))
    return t.b("transpose", t.x, permutation=tuple(order))


def _reshape(t: Turn) -> Value | None:
    total = math.prod(t.shape)
    factor = next((f for f in (2, 3, 5, 7) if total % f == 0 and f > t.number(0) % 8), 1)
    shapes = [(total,), (factor, total // factor), (total // factor, 1, factor), (1, *t.shape)]
    return t.b("reshape", t.x, shape=shapes[t.number(1) % len(shapes)])


def _slice(t: Turn) -> Value | None:
    starts = tuple(t.number(i) % max(1, size) for i, size in enumerate(t.shape))
    limits = tuple(
        max(start, size - t.number(i + 1) % 3) if size else 0
        for i, (start, size) in enumerate(zip(starts, t.shape, strict=True))
    )
    starts = tuple(min(start, limit) for start, limit in zip(starts, limits, strict=True))
    steps = tuple(1 + t.number(i + 2) % 3 for i in range(len(t.shape)))
    return t.b("slice", t.x, starts=starts, limits=limits, steps=steps)


def _reverse(t: Turn) -> Value | None:
    return t.b("reverse", t.x, axes=(t.axis,)) if t.shape else None


def _broadcast(t: Turn) -> Value | None:
    count = 1 + t.number(0) % 5
    if math.prod(t.shape) * count > MOST:
        return None
    if t.number(1) % 2:
        return t.b("broadcast", t.x, shape=(*t.shape, count), dims=tuple(range(len(t.shape))))
    return t.b("broadcast", t.x, shape=(count, *t.shape), dims=tuple(range(1, len(t.shape) + 1)))


def _pad(t: Turn) -> Value | None:
    low, high, interior = (tuple(t.number(i + k) % 3 for i in range(len(t.shape))) for k in range(3))
    if math.prod(t.shape) > MOST // 64:
        interior = (0,) * len(t.shape)
    if math.prod(s + 4 for s in t.shape) > MOST * 2:
        return None
    return t.b("pad", t.x, t.b.constant(1, t.dtype), low=low, high=high, interior=interior)


def _concat(t: Turn) -> Value | None:
    if not t.shape or math.prod(t.shape) > MOST // 3:
        return None
    same = [
        v
        for v in t.others(t.dtype, len(t.shape))
        if all(a == b or i == t.axis for i, (a, b) in enumerate(zip(tensor(v).static_shape, t.shape, strict=True)))
        and math.prod(tensor(v).static_shape) <= MOST // 3
    ]
    other = same[-1 - t.number(1) % len(same)]
    return t.b("concat", other, t.x, *([t.x] * (t.number(2) % 2)), axis=t.axis)


def _gather(t: Turn) -> Value | None:
    indices = [v for v in t.values if tensor(v).dtype == dtypes.int32 and math.prod(tensor(v).static_shape) <= 64]
    if not t.shape or not indices or not t.shape[t.axis]:
        return None
    index = indices[-1 - t.number(1) % len(indices)]
    rest = math.prod(t.shape) // t.shape[t.axis]
    if rest * math.prod(tensor(index).static_shape) > MOST:
        return None
    return t.b("gather", t.x, index, axis=t.axis)


def _scatter(t: Turn) -> Value | None:
    """Updates are gathered from the operand itself, so that they fit any index."""
    gathered = _gather(t)
    if gathered is None or t.dtype.kind == "bool":
        return None
    indices = [v for v in t.values if tensor(v).dtype == dtypes.int32 and math.prod(tensor(v).static_shape) <= 64]
    kinds = ["set", "maximum", "minimum", *(["add"] if t.sums else [])]
    index = indices[-1 - t.number(1) % len(indices)]
    return t.b("scatter", t.x, index, gathered, axis=t.axis, kind=kinds[t.number(2) % len(kinds)])


def _scan(t: Turn) -> Value | None:
    if not t.shape or t.dtype.kind == "bool":
        return None
    kinds = ["max", "min", *(["sum"] if t.sums else [])]
    flags = {"reverse": bool(t.number(2) % 2), "exclusive": bool(t.number(3) % 2) and not t.dtype.is_float}
    return t.b("scan", t.x, kind=kinds[t.number(1) % len(kinds)], axis=t.axis, **flags)


def _sort(t: Turn) -> Value | None:
    if not t.shape:
        return None
    return t.b.many("sort", t.x, axis=t.axis, descending=bool(t.number(1) % 2))[t.number(2) % 2]


def _matmul(t: Turn) -> Value | None:
    if len(t.shape) != 2 or not t.sums or t.dtype.kind == "bool":
        return None
    fitting = [v for v in t.others(t.dtype, 2) if tensor(v).static_shape[0] == t.shape[1]]
    if fitting:
        return t.b("matmul", t.x, fitting[-1 - t.number(1) % len(fitting)])
    return t.b("matmul", t.x, t.b("transpose", t.x, permutation=(1, 0)))


def _window(t: Turn) -> Value | None:
    if len(t.shape) != 2 or t.dtype.kind == "bool":
        return None
    kinds = ["max", "min", *(["sum"] if t.sums else [])]
    window = tuple(1 + t.number(i + 1) % 3 for i in range(2))
    edges = ((t.number(2) % 2, 1), (1, t.number(3) % 2))
    if any(size + low + high < wide for size, (low, high), wide in zip(t.shape, edges, window, strict=True)):
        return None
    strides = (1 + t.number(3) % 2, 1)
    kind = kinds[t.number(0) % len(kinds)]
    return t.b("window_reduce", t.x, kind=kind, window=window, strides=strides, padding=edges, dilation=(1, 1))


def _count(t: Turn) -> Value | None:
    if not t.shape:
        return None
    count = t.b("iota", shape=t.shape, axis=t.axis, dtype=dtypes.int32)
    return t.b("add", count, t.b.full(t.number(1) % 5 - 2, count))


def _triangle(t: Turn) -> Value | None:
    if len(t.shape) < 2:
        return None
    return t.b(("tril", "triu")[t.number(0) % 2], t.x, k=t.number(1) % 5 - 2)


MAKERS: tuple[Maker, ...] = (
    _reduce, _reverse, _transpose, _slice, _broadcast, _reshape, _concat, _pad, _gather, _reduce, _scan, _window,
    _matmul, _position, _scatter, _sort, _count, _triangle,
)  # fmt: skip
"""What makes them, the simplest first; what matters more comes twice."""
