"""Faults of launches: blocks, buffers, offsets, scalars."""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from oarlock.abi import KernelSignature
from oarlock.hal import Binding, Handle, LaunchStep
from oarlock_saboteurs import BrokenDriver, saboteur
from oarlock_saboteurs.bases import Tight
from oarlock_sim import faults
from oarlock_sim.program import Program


class Relaunching(BrokenDriver):
    """Changes launches before they run, those of plans too."""

    def signature(self, step: LaunchStep) -> KernelSignature:
        """The signature of the kernel that a step runs."""
        program: Program = self.find(step.program, Program, "launch")
        return program.signatures[step.entry]

    def changed(self, step: LaunchStep) -> LaunchStep | None:
        """What is run in place of ``step``; None for nothing."""
        raise NotImplementedError

    def _run(self, step: LaunchStep) -> None:
        found = self.changed(step)
        if found != step:
            self.hit()
        if found is not None:
            super()._run(found)


@saboteur("launch", "the last block of a row of more than 64 is not run")
class LastBlockSkipped(Relaunching):
    def changed(self, step: LaunchStep) -> LaunchStep:
        x, y, z = step.grid
        return replace(step, grid=(x - 1, y, z)) if x > 64 else step


@saboteur("launch", "the y and z sizes of a grid are exchanged")
class GridAxesSwapped(Relaunching):
    def changed(self, step: LaunchStep) -> LaunchStep:
        return replace(step, grid=(step.grid[0], step.grid[2], step.grid[1]))


@saboteur("launch", "a grid's size is kept in 16 bits")
class GridTruncated(Relaunching):
    def changed(self, step: LaunchStep) -> LaunchStep | None:
        if max(step.grid) < 1 << 16:
            return step
        x, y, z = (size & 0xFFFF for size in step.grid)
        return replace(step, grid=(x, y, z)) if x and y and z else None


@saboteur("launch", "a row of an odd number of blocks above 1 gets one block more")
class GridRoundedUp(Relaunching):
    def changed(self, step: LaunchStep) -> LaunchStep:
        x, y, z = step.grid
        return replace(step, grid=(x + 1, y, z)) if x > 1 and x % 2 else step


@saboteur("launch", "every fiftieth launch is dropped")
class LaunchDropped(Relaunching):
    number = 0

    def changed(self, step: LaunchStep) -> LaunchStep | None:
        self.number += 1
        return step if self.number % 50 else None


@saboteur("launch", "a launch that looks like the one before it is not run again")
class LaunchCached(Relaunching):
    last: LaunchStep | None = None

    def changed(self, step: LaunchStep) -> LaunchStep | None:
        same, self.last = step == self.last, step
        return None if same else step


@saboteur("launch", "scalars of a kernel's first launch are used for ever")
class ScalarsStale(Relaunching):
    def changed(self, step: LaunchStep) -> LaunchStep:
        seen: dict[Any, bytes] = self.__dict__.setdefault("seen", {})
        return replace(step, scalars=seen.setdefault((step.program, step.entry), step.scalars))


@saboteur("launch", "a launch reads its scalars when it runs, when a later launch may have replaced them")
class ScalarsReadLate(BrokenDriver):
    def launch(
        self, stream: Handle | None, program: Handle, entry: str, grid: tuple[int, int, int],
        block: tuple[int, int, int], buffers: Sequence[Binding], scalars: bytes,
    ) -> None:  # fmt: skip
        step = LaunchStep(program, entry, grid, block, tuple(buffers), bytes(scalars))
        self._check_launch(step)
        latest: dict[str, bytes] = self.__dict__.setdefault("latest", {})
        latest[entry] = step.scalars

        def run() -> None:
            if latest[entry] != step.scalars:
                self.hit()
            self._run(replace(step, scalars=latest[entry]))

        self.submit(stream, f"kernel {entry}", run, faults.gates([entry], self.plan))


@saboteur("launch", "64-bit scalars follow their neighbour without the padding of C")
class ScalarsPacked(Relaunching):
    def changed(self, step: LaunchStep) -> LaunchStep:
        block, end = bytearray(step.scalars), 0
        for field in self.signature(step).scalars:
            if field.offset > end:  # there is padding: what should begin after it begins before it
                size = field.dtype.itemsize
                value = bytes(block[field.offset : field.offset + size])
                block[end : field.offset + size] = value + bytes(field.offset - end)
            end = field.offset + field.dtype.itemsize
        return replace(step, scalars=bytes(block))


@saboteur("launch", "64-bit integer scalars pass through 32 bits")
class ScalarsNarrowed(Relaunching):
    def changed(self, step: LaunchStep) -> LaunchStep:
        block = bytearray(step.scalars)
        for field in self.signature(step).scalars:
            if field.dtype.name in ("int64", "uint64"):
                (value,) = struct.unpack_from("<i", block, field.offset)
                struct.pack_into("<q", block, field.offset, value)
        return replace(step, scalars=bytes(block))


@saboteur("launch", "float scalars lose the low half of their mantissa")
class ScalarsRounded(Relaunching):
    def changed(self, step: LaunchStep) -> LaunchStep:
        block = bytearray(step.scalars)
        for field in self.signature(step).scalars:
            if field.dtype.name == "float32":
                (bits,) = struct.unpack_from("<I", block, field.offset)
                struct.pack_into("<I", block, field.offset, bits & ~0xFFF)
        return replace(step, scalars=bytes(block))


@saboteur("launch", "kernels ignore the element offset of every buffer but the first")
class OffsetsIgnored(Relaunching):
    def changed(self, step: LaunchStep) -> LaunchStep:
        block = bytearray(step.scalars)
        for number, field in enumerate(self.signature(step).scalars[: len(step.buffers)]):
            if number:
                struct.pack_into("<i", block, field.offset, 0)
        return replace(step, scalars=bytes(block))


@saboteur("launch", "a buffer in ninth place or later is bound to the first one's memory")
class NinthBufferLost(Relaunching):
    def changed(self, step: LaunchStep) -> LaunchStep:
        few = (*step.buffers[:8], *(step.buffers[0] for _ in step.buffers[8:]))
        return replace(step, buffers=few)


@saboteur("launch", "a buffer bound a second time in a launch gets a copy of its memory")
class SecondBindingCopied(Relaunching):
    def changed(self, step: LaunchStep) -> LaunchStep:
        handles = [handle for handle, _, _ in step.buffers]
        buffers = list(step.buffers)
        for place, handle in enumerate(handles):
            if handle in handles[:place]:
                nbytes = self.find(handle, object, "launch").nbytes
                copy = self.allocate(nbytes)
                self.copy_now(copy, 0, handle, 0, nbytes)
                buffers[place] = (copy, *buffers[place][1:])
        return replace(step, buffers=tuple(buffers))


@saboteur("stream", "launch waits until its kernel has run, so that a held stream holds the host")
class LaunchBlocks(BrokenDriver):
    def launch(
        self, stream: Handle | None, program: Handle, entry: str, grid: tuple[int, int, int],
        block: tuple[int, int, int], buffers: Sequence[Binding], scalars: bytes,
    ) -> None:  # fmt: skip
        super().launch(stream, program, entry, grid, block, buffers, scalars)
        done = threading.Event()
        self.submit(stream, "block", done.set)
        self.hit()
        done.wait(60.0)


@saboteur("binding", "the base of a binding is ignored", Tight)
class BaseIgnored(Relaunching):
    def changed(self, step: LaunchStep) -> LaunchStep:
        return replace(step, buffers=tuple((handle, 0, extent + base) for handle, base, extent in step.buffers))


@saboteur("binding", "the base of a binding is rounded down to 512 bytes, and the device says 256", Tight)
class BaseRounded(Relaunching):
    def changed(self, step: LaunchStep) -> LaunchStep:
        return replace(
            step,
            buffers=tuple((handle, base - base % 512, extent + base % 512) for handle, base, extent in step.buffers),
        )


@saboteur("binding", "copies lose what is behind the last 16 bytes, and the device says 4", Tight)
class CopiesInSixteens(BrokenDriver):
    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        whole = src.nbytes - src.nbytes % 16
        if whole != src.nbytes:
            self.hit()
        if whole:
            super().copy_in(stream, dst, dst_offset, src[:whole])
