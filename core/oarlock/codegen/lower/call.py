"""A kernel with what it is called with: the unit between lowering and plans."""

from __future__ import annotations

from dataclasses import dataclass

from oarlock.ir import Operation, Value

__all__ = ["KernelCall", "LibraryCall"]


@dataclass(frozen=True, slots=True, eq=False)
class KernelCall:
    """One launch of ``function`` (a ``kernel.function``).

    ``buffers`` are array values, operands first, in the order of the kernel's buffers; ``outputs`` of them, at the end,
    are stored. The scalar block is an element offset per buffer, then ``scalars``: numbers, or run-time scalars of the
    program. ``grid`` counts blocks.
    """

    function: Operation
    buffers: tuple[Value, ...]
    outputs: int
    grid: tuple[int, int, int]
    scalars: tuple[int | float | Value, ...]
    label: str
    """The operators it holds, for people."""
    starts: tuple[tuple[int, Value, int], ...] = ()
    """(position in ``scalars``, result of a slice, dimension) of each scalar that is where a slice starts."""


@dataclass(frozen=True, slots=True, eq=False)
class LibraryCall:
    """One run of an adapter's own ``kernel`` (opaque here) on ``buffers``: operands, then ``outputs`` results."""

    kernel: object
    buffers: tuple[Value, ...]
    outputs: int
    label: str
