"""Positions in a tensor while lowering: a position is kept in runs of dimensions and split only where it must be.

A run is some consecutive dimensions with one linear position over them. An element-wise kernel over contiguous
tensors thus needs one number, and pays for division only where an operator really looks at a single dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oarlock.codegen.kernel import KernelBuilder
from oarlock.ir import Value

__all__ = ["Index", "Run", "single", "split_linear"]


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive dimensions: their static sizes, the kernel values of their number of elements and of the position
    over them; ``size_of(i)`` gives the kernel value of size i when someone asks."""

    dims: tuple[int, ...]
    total: Value
    position: Value
    size_of: Callable[[int], Value]

    @property
    def count(self) -> int:
        total = 1
        for dim in self.dims:
            total *= dim
        return total

    def split(self, b: KernelBuilder) -> list[Run]:
        """A run for each dimension."""
        if len(self.dims) == 1:
            return [self]
        sizes = [b.i(1) if d == 1 else self.size_of(i) for i, d in enumerate(self.dims)]
        positions = split_linear(b, self.position, self.dims, sizes)
        return [single(d, s, p) for d, s, p in zip(self.dims, sizes, positions, strict=True)]


def single(dim: int, size: Value, position: Value) -> Run:
    """A run of one dimension."""
    return Run((dim,), size, position, lambda _: size)


@dataclass(frozen=True, slots=True)
class Index:
    """A position in a tensor, as runs that cover its dimensions in order."""

    runs: tuple[Run, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(dim for run in self.runs for dim in run.dims)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal keys mean equal positions."""
        return tuple((run.dims, id(run.position)) for run in self.runs)

    @staticmethod
    def of_dims(dims: Sequence[int], sizes: Sequence[Value], positions: Sequence[Value]) -> Index:
        """A position given dimension by dimension."""
        return Index(tuple(single(d, s, p) for d, s, p in zip(dims, sizes, positions, strict=True)))

    def linear(self, b: KernelBuilder) -> Value:
        """The row-major position in the whole tensor."""
        total = b.i(0)
        for run in self.runs:
            if run.count != 1:
                total = b.add(b.mul(total, run.total), run.position)
        return total

    def split(self, b: KernelBuilder) -> Index:
        """The same position with every dimension in a run of its own."""
        return Index(tuple(part for run in self.runs for part in run.split(b)))

    def dims(self, b: KernelBuilder) -> list[Value]:
        """The position in each dimension."""
        return [run.position for run in self.split(b).runs]

    def reshape(self, b: KernelBuilder, shape: Sequence[int], size_of: Callable[[int], Value]) -> Index:
        """The position at the same row-major place in ``shape``; runs stay apart where boundaries agree.

        ``size_of(i)`` gives the kernel value of ``shape[i]`` where this index does not know it.
        """
        new = tuple(shape)
        result: list[Run] = []
        pending: list[Run] = []
        need, have, start, at = 1, 1, 0, 0
        for run in self.runs:
            pending.append(run)
            need *= run.count
            while at < len(new) and (have < need or (have == need and new[at] == 1)):
                have *= new[at]
                at += 1
            if have == need and at > start:
                result.append(_merge(b, pending, new[start:at], start, size_of))
                pending, need, have, start = [], 1, 1, at
        if at < len(new) or pending:
            result.append(_merge(b, pending, new[start:], start, size_of))
        return Index(tuple(run for run in result if run.dims))

    def broadcast_to_operand(self, b: KernelBuilder, operand: Sequence[int]) -> Index:
        """The operand's position under NumPy broadcasting, this being the result's position."""
        shape = self.shape
        if shape == tuple(operand):
            return self
        lead = len(shape) - len(operand)
        return self.select_dims(b, [lead + i if shape[lead + i] == d else None for i, d in enumerate(operand)], operand)

    def select_dims(self, b: KernelBuilder, sources: Sequence[int | None], dims: Sequence[int]) -> Index:
        """The position whose dimension i is this one's dimension ``sources[i]``, or 0 where that is None."""
        owner: list[tuple[int, int]] = []
        for k, run in enumerate(self.runs):
            first = len(owner)
            owner.extend((k, first) for _ in run.dims)
        result: list[Run] = []
        i = 0
        while i < len(sources):
            source = sources[i]
            if source is None or dims[i] == 1:
                result.append(single(dims[i], b.i(dims[i]), b.i(0)))
                i += 1
                continue
            k, first = owner[source]
            run = self.runs[k]
            width = len(run.dims)
            if list(sources[i : i + width]) == list(range(first, first + width)):
                result.append(run)
                i += width
            else:
                result.append(run.split(b)[source - first])
                i += 1
        return Index(tuple(result))


def _merge(
    b: KernelBuilder, runs: Sequence[Run], dims: tuple[int, ...], start: int, size_of: Callable[[int], Value]
) -> Run:
    """One run over ``dims`` (from dimension ``start`` of the new shape) at the place of ``runs``."""
    total, position = b.i(1), b.i(0)
    for run in runs:
        if run.count != 1:
            total = b.mul(total, run.total)
            position = b.add(b.mul(position, run.total), run.position)
    old = [(run, i) for run in runs for i, d in enumerate(run.dims) if d != 1]
    if [run.dims[i] for run, i in old] == [d for d in dims if d != 1]:
        known: dict[int, tuple[Run, int]] = dict(zip([i for i, d in enumerate(dims) if d != 1], old, strict=True))
        return Run(dims, total, position, lambda i: known[i][0].size_of(known[i][1]))
    return Run(dims, total, position, lambda i: size_of(start + i))


def split_linear(b: KernelBuilder, position: Value, dims: Sequence[int], sizes: Sequence[Value]) -> list[Value]:
    """The positions in each of ``dims`` behind a row-major ``position``."""
    significant = [i for i, d in enumerate(dims) if d != 1]
    result = [b.i(0)] * len(dims)
    rest = position
    for i in reversed(significant):
        if i == significant[0]:
            result[i] = rest
        else:
            result[i] = b.rem(rest, sizes[i])
            rest = b.quot(rest, sizes[i])
    return result
