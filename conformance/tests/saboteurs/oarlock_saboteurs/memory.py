"""Faults of allocation, freeing, filling, and what the device says about its memory."""

from __future__ import annotations

from oarlock.errors import DeviceError, DeviceLostError, OutOfMemoryError
from oarlock.hal import Handle
from oarlock_saboteurs import BrokenDriver, saboteur
from oarlock_sim.memory import Allocation


@saboteur("memory", "free frees nothing")
class FreeLeaks(BrokenDriver):
    def free(self, handle: Handle) -> None:
        self.hit()
        self.find(handle, object, "free")


@saboteur("memory", "every fifth allocation of a size gives the memory of the one before it")
class AllocationsAlias(BrokenDriver):
    last: tuple[int, Handle] = (0, None)
    number = 0

    def allocate(self, nbytes: int) -> Handle:
        self.number += 1
        if self.number % 5 == 0 and self.last[0] == nbytes:
            self.hit()
            return self.last[1]
        self.last = (nbytes, super().allocate(nbytes))
        return self.last[1]


@saboteur("memory", "too large an allocation gives a small one")
class AllocatesLess(BrokenDriver):
    def allocate(self, nbytes: int) -> Handle:
        if nbytes > 1 << 20:
            self.hit()
        return super().allocate(min(nbytes, 1 << 20))


@saboteur("memory", "free does not give the bytes back to the device's account, so that memory runs out")
class FreeKeepsAccount(BrokenDriver):
    def free(self, handle: Handle) -> None:
        used = self.used
        super().free(handle)
        if self.used != used:
            self.hit()
            self.used = used


@saboteur("memory", "out of memory is an error like any other")
class OutOfMemoryUntyped(BrokenDriver):
    def allocate(self, nbytes: int) -> Handle:
        try:
            return super().allocate(nbytes)
        except OutOfMemoryError as error:
            self.hit()
            raise DeviceError(f"cudaErrorUnknown: {error}") from None


@saboteur("memory", "out of memory loses the device")
class OutOfMemoryFatal(BrokenDriver):
    def allocate(self, nbytes: int) -> Handle:
        try:
            return super().allocate(nbytes)
        except OutOfMemoryError as error:
            self.hit()
            raise DeviceLostError(str(error)) from None


@saboteur("memory", "free of an allocation frees the one made after it too")
class FreeTakesNeighbour(BrokenDriver):
    def free(self, handle: Handle) -> None:
        serial, number = handle
        super().free(handle)
        if isinstance(self.objects.get((serial, number + 1)), Allocation):
            self.hit()
            super().free((serial, number + 1))


@saboteur("memory", "an allocation whose size is no multiple of 512 is 64 bytes short")
class AllocatesShort(BrokenDriver):
    def allocate(self, nbytes: int) -> Handle:
        if nbytes % 512 and nbytes > 256:
            self.hit()
            nbytes -= 64
        return super().allocate(nbytes)


@saboteur("fill", "fill sets the whole allocation")
class FillSetsAll(BrokenDriver):
    def fill(self, stream: Handle | None, dst: Handle, dst_offset: int, nbytes: int, byte: int) -> None:
        self.hit()
        super().fill(stream, dst, 0, self.find(dst, Allocation, "fill").nbytes, byte)


@saboteur("fill", "fill ignores its tail: bytes past the last whole word stay")
class FillIgnoresTail(BrokenDriver):
    def fill(self, stream: Handle | None, dst: Handle, dst_offset: int, nbytes: int, byte: int) -> None:
        if nbytes % 4:
            self.hit()
        if nbytes >= 4:
            super().fill(stream, dst, dst_offset, nbytes - nbytes % 4, byte)


@saboteur("fill", "fill takes the byte for a signed one, and clips it to 127")
class FillSigned(BrokenDriver):
    def fill(self, stream: Handle | None, dst: Handle, dst_offset: int, nbytes: int, byte: int) -> None:
        if byte > 127:
            self.hit()
        super().fill(stream, dst, dst_offset, nbytes, min(byte, 127))


@saboteur("fill", "fill begins at the word that its offset lies in")
class FillAlignsDown(BrokenDriver):
    def fill(self, stream: Handle | None, dst: Handle, dst_offset: int, nbytes: int, byte: int) -> None:
        back = dst_offset % 4
        if back:
            self.hit()
        super().fill(stream, dst, dst_offset - back, nbytes + back, byte)


@saboteur("info", "memory_info tells less than no free memory")
class MemoryInfoLies(BrokenDriver):
    def memory_info(self) -> tuple[int, int]:
        self.hit()
        free, total = super().memory_info()
        return -free, total


@saboteur("info", "memory_info tells what was free when it was first asked")
class MemoryInfoFrozen(BrokenDriver):
    frozen: tuple[int, int] | None = None

    def memory_info(self) -> tuple[int, int]:
        self.hit()
        if self.frozen is None:
            self.frozen = super().memory_info()
        return self.frozen


@saboteur("info", "memory_info tells total and free the other way round")
class MemoryInfoSwapped(BrokenDriver):
    def memory_info(self) -> tuple[int, int]:
        self.hit()
        free, total = super().memory_info()
        return total, free
