"""Faults of memory and copies."""

from __future__ import annotations

import time

from oarlock.hal import Handle
from oarlock_saboteurs import BrokenDriver, saboteur
from oarlock_sim.memory import Allocation


@saboteur("copies", "copy_out reads from the start of the allocation, whatever src_offset says")
class CopyOutIgnoresOffset(BrokenDriver):
    def copy_out(self, stream: Handle | None, dst: memoryview, src: Handle, src_offset: int) -> None:
        super().copy_out(stream, dst, src, 0)


@saboteur("copies", "copy_in writes to the start of the allocation, whatever dst_offset says")
class CopyInIgnoresOffset(BrokenDriver):
    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        super().copy_in(stream, dst, 0, src)


@saboteur("copies", "copies within the device take src_offset for both offsets")
class CopySwapsOffsets(BrokenDriver):
    def copy(
        self, stream: Handle | None, dst: Handle, dst_offset: int, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        super().copy(stream, dst, src_offset, src, src_offset, nbytes)


@saboteur("copies", "copies of an odd number of bytes lose the last one")
class CopyRoundsDown(BrokenDriver):
    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        even = len(src) - len(src) % 2
        if even:
            super().copy_in(stream, dst, dst_offset, src[:even])


@saboteur("copies", "copy_in keeps a view of the source and copies it later")
class CopyInIsLate(BrokenDriver):
    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        self.find(dst, object, "copy_in")

        def run() -> None:
            target = self.find(dst, Allocation, "copy_in")
            target.view[dst_offset : dst_offset + len(src)] = bytes(src)

        if len(src) > 4096:
            self.submit(stream, "hold", lambda: time.sleep(0.02))
        self.submit(stream, "copy_in", run)


@saboteur("memory", "free frees nothing")
class FreeLeaks(BrokenDriver):
    def free(self, handle: Handle) -> None:
        self.find(handle, object, "free")


@saboteur("memory", "every fifth allocation of a size gives the memory of the one before it")
class AllocationsAlias(BrokenDriver):
    last: tuple[int, Handle] = (0, None)
    number = 0

    def allocate(self, nbytes: int) -> Handle:
        self.number += 1
        if self.number % 5 == 0 and self.last[0] == nbytes:
            return self.last[1]
        self.last = (nbytes, super().allocate(nbytes))
        return self.last[1]


@saboteur("memory", "too large an allocation gives a small one")
class AllocatesLess(BrokenDriver):
    def allocate(self, nbytes: int) -> Handle:
        return super().allocate(min(nbytes, 1 << 20))


@saboteur("fill", "fill sets the whole allocation")
class FillSetsAll(BrokenDriver):
    def fill(self, stream: Handle | None, dst: Handle, dst_offset: int, nbytes: int, byte: int) -> None:
        super().fill(stream, dst, 0, self.find(dst, Allocation, "fill").nbytes, byte)


@saboteur("info", "memory_info tells less than no free memory")
class MemoryInfoLies(BrokenDriver):
    def memory_info(self) -> tuple[int, int]:
        free, total = super().memory_info()
        return -free, total
