"""Programs: loading compiled kernels, launching them, and whole plans."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from oarlock.abi import KernelSignature
from oarlock.hal.memory import Handle

__all__ = ["Binding", "CopyStep", "LaunchStep", "Plans", "ProgramDriver"]

Binding: TypeAlias = tuple[Handle, int, int]
"""(allocation, base, extent) in bytes: base is a multiple of ``binding_alignment``, or 0 where there is none; an
adapter whose base is always 0 binds the whole allocation. Extents are multiples of 4 and of ``copy_alignment``. What is
left of an offset travels in the scalar block. An empty operand binds 256 bytes of the core's, others for each place
with ``exclusive_binding``."""


class ProgramDriver(ABC):
    """The program part of a driver."""

    @abstractmethod
    def load(self, executable: bytes, signatures: Sequence[KernelSignature]) -> Handle:
        """Load what ``compile`` made, here or in another process; one signature for each kernel.

        ``executable`` is not needed afterwards. The core owns the handle until ``free``. Kernels of two programs may
        have one name. Raises CompileError with the log; nothing is left of a program that was refused.
        """

    @abstractmethod
    def launch(
        self,
        stream: Handle | None,
        program: Handle,
        entry: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        buffers: Sequence[Binding],
        scalars: bytes,
    ) -> None:
        """Give one launch of kernel ``entry`` to ``stream``: ``grid`` blocks of ``block`` threads, none empty.

        Returns at once where the device is asynchronous. ``buffers`` and ``scalars`` are in the order of the kernel's
        signature and within the limits; ``scalars`` may be kept, for bytes never change. The core keeps program and
        memory alive until the launch has ended. A failure that shows at once raises LaunchError, and nothing was
        submitted; one that shows later comes from ``synchronize``.
        """


@dataclass(frozen=True, slots=True)
class LaunchStep:
    """One launch of a plan. A buffer is (slot, base, extent); ``scalars`` holds the block, parts of which
    ``replay`` may replace.

    ``strand`` says what need not wait, to an adapter that makes use of it. A step of strand 0 comes after all before
    it. Steps that follow one another with numbers from 1 on that do not fall, as in 1, 1, 2, 3, 3, are strands: those
    of one number run in order, and those of different numbers may run at the same time. Where the number falls, all
    before has ended."""

    program: Handle
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    buffers: tuple[tuple[int, int, int], ...]
    scalars: bytes
    strand: int = 0


@dataclass(frozen=True, slots=True)
class CopyStep:
    """One copy of a plan between slots; offsets and sizes are bytes."""

    dst: int
    dst_offset: int
    src: int
    src_offset: int
    nbytes: int


class Plans(Protocol):
    """Capability ``plans``: a whole plan given once, replayed by one call."""

    def prepare(self, steps: Sequence[LaunchStep | CopyStep]) -> Handle:
        """Keep a plan; its buffers are slot numbers.

        The core owns the handle until ``free``, and keeps the programs of its steps loaded as long.
        """
        ...

    def replay(
        self, stream: Handle | None, plan: Handle, bindings: Sequence[Handle], scalars: Sequence[tuple[int, int, bytes]]
    ) -> None:
        """Run the plan on the allocations ``bindings`` (one a slot), in stream order, like one command.

        Returns at once where the device is asynchronous. Each (step, offset, bytes) of ``scalars`` replaces bytes of
        that step's scalar block for this run. May be called again before an earlier run has ended. Fails as ``launch``
        does.
        """
        ...
