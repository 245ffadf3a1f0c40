"""Whole plans: each launch has a kernel object of its own, whose arguments stay bound from one run to the next.

OpenCL keeps what was bound to a kernel object, and takes it as it is when the launch is enqueued. So a run binds again
only the buffers that are others than in the last run, and the scalars that it replaces. A buffer is known by its
object: the address in the driver may be another's later, and some drivers look behind it when it is bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyopencl as cl

from oarlock.hal import CopyStep, Handle, KernelSignature, LaunchStep
from oarlock_opencl.memory import Memory
from oarlock_opencl.program import Programs

__all__ = ["Plans"]


@dataclass(eq=False, slots=True)
class BoundLaunch:
    """A launch: a kernel object with its scalars bound, and the buffer that each of its arguments was last."""

    kernel: Any
    signature: KernelSignature
    size: tuple[int, ...]
    block: tuple[int, int, int]
    slots: tuple[int, ...]
    scalars: bytes
    bound: list[Handle | None] = field(init=False)
    replaced: bool = False
    """Whether the last run had scalars of its own."""

    def __post_init__(self) -> None:
        self.bound = [None] * len(self.slots)
        self.bind_scalars(self.scalars)

    def bind_scalars(self, block: bytes) -> None:
        """Bind the scalars, which follow the buffers."""
        for position, scalar in enumerate(self.signature.scalars, len(self.slots)):
            self.kernel.set_arg(position, block[scalar.offset : scalar.offset + scalar.dtype.itemsize])

    def bind(self, bindings: Sequence[Handle], patches: Sequence[tuple[int, bytes]]) -> None:
        """Bind what is not what it was in the last run."""
        for position, slot in enumerate(self.slots):
            buffer = bindings[slot]
            if self.bound[position] is not buffer:
                self.kernel.set_arg(position, buffer)
                self.bound[position] = buffer
        if patches or self.replaced:
            block = bytearray(self.scalars)
            for offset, data in patches:
                block[offset : offset + len(data)] = data
            self.bind_scalars(bytes(block))
            self.replaced = bool(patches)

    def enqueue(
        self, queue: Any, bindings: Sequence[Handle], patches: Sequence[tuple[int, bytes]], wait_for: Sequence[Any]
    ) -> Any:
        """Enqueue the launch on ``bindings``, one a slot, with parts of the scalars replaced: (offset, bytes)."""
        self.bind(bindings, patches)
        return cl.enqueue_nd_range_kernel(queue, self.kernel, self.size, self.block, wait_for=wait_for)


@dataclass(frozen=True, eq=False, slots=True)
class Prepared:
    """A plan that was given once."""

    steps: tuple[BoundLaunch | CopyStep, ...]


class Plans(Memory, Programs):
    """The plan part of the driver (capability ``plans``)."""

    def prepare(self, steps: Sequence[LaunchStep | CopyStep]) -> Handle:
        return Prepared(tuple(step if isinstance(step, CopyStep) else _bound(step) for step in steps))

    def replay(
        self, stream: Handle | None, plan: Handle, bindings: Sequence[Handle], scalars: Sequence[tuple[int, int, bytes]]
    ) -> None:
        lane = self.stream(stream)
        patches: dict[int, list[tuple[int, bytes]]] = {}
        for step, offset, data in scalars:
            patches.setdefault(step, []).append((offset, data))
        for position, work in enumerate(plan.steps):
            if isinstance(work, CopyStep):
                dst, src = bindings[work.dst], bindings[work.src]
                self.copy(stream, dst, work.dst_offset, src, work.src_offset, work.nbytes)
            else:
                lane.submit(f"kernel {work.signature.name}", work.enqueue, bindings, patches.get(position, ()))


def _bound(step: LaunchStep) -> BoundLaunch:
    """A kernel object of its own for ``step``."""
    kernel, signature = step.program.kernels[step.entry]
    own = cl.Kernel(kernel.program, step.entry)
    size = tuple(blocks * threads for blocks, threads in zip(step.grid, step.block, strict=True))
    return BoundLaunch(own, signature, size, step.block, tuple(slot for slot, _, _ in step.buffers), step.scalars)
