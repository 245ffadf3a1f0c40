"""Memory: each allocation is a mapping of its own between guard zones, which the host reaches by copies alone."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

from oarlock.errors import DeviceError, LaunchError, OutOfMemoryError
from oarlock.hal import DeviceInfo, Handle
from oarlock_sim import faults
from oarlock_sim.stream import Streams, entry

__all__ = ["Allocation", "Memory"]

_GUARD = b"\xa7" * 256
_POISON = 0xDB


class Allocation:
    """``nbytes`` of device memory at ``address``. Unmapped when it is free and no command that runs uses it."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._block = mmap.mmap(-1, nbytes + 2 * len(_GUARD))
        self._block[: len(_GUARD)] = self._block[-len(_GUARD) :] = _GUARD
        self.view = memoryview(self._block)[len(_GUARD) : -len(_GUARD)]
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.view))

    def set(self, offset: int, nbytes: int, byte: int) -> None:
        """Set bytes."""
        ctypes.memset(self.address + offset, byte, nbytes)

    def check_guards(self, kernel: str) -> None:
        """Raise LaunchError when something was written just outside."""
        if self._block[: len(_GUARD)] != _GUARD or self._block[-len(_GUARD) :] != _GUARD:
            self._block[: len(_GUARD)] = self._block[-len(_GUARD) :] = _GUARD
            raise LaunchError(f"kernel {kernel} wrote outside an allocation of {self.nbytes} bytes")


class Memory(Streams):
    """The memory part of the driver, and the handles of everything that ``free`` frees."""

    def __init__(self, info: DeviceInfo, plan: faults.Plan | None) -> None:
        super().__init__(info, plan)
        self.objects: dict[Handle, Any] = {}
        self.used = 0

    def keep(self, thing: object) -> Handle:
        """A new handle: (device, number), so that a foreign or a freed one is told apart."""
        with self.state:
            handle = (self.serial, next(self.numbers))
            self.objects[handle] = thing
        return handle

    def find(self, handle: Handle, kind: type[Any], what: str, error: type[DeviceError] = DeviceError) -> Any:
        """What is behind ``handle``; raises ``error`` when it is no live handle of a ``kind`` of this device."""
        with self.state:
            found = self.objects.get(handle) if isinstance(handle, tuple) else None
        if found is not None and isinstance(found, kind):
            return found
        mine = isinstance(handle, tuple) and handle[0] == self.serial and found is None
        why = "was freed" if mine else f"is no handle of {kind.__name__} on {self.info.name}"
        raise error(f"{what}: {handle!r} {why}")

    def range_of(self, what: str, handle: Handle, offset: int, nbytes: int) -> None:
        """Raise DeviceError unless a copy of these bytes keeps inside a live allocation and to ``copy_alignment``."""
        allocation = self.find(handle, Allocation, what)
        if offset < 0 or nbytes <= 0 or offset + nbytes > allocation.nbytes:
            raise DeviceError(f"{what}: bytes {offset}..{offset + nbytes} leave an allocation of {allocation.nbytes}")
        alignment = self.limits.copy_alignment
        if offset % alignment or nbytes % alignment:
            raise DeviceError(f"{what}: offset {offset} or size {nbytes} is no multiple of copy_alignment {alignment}")

    @entry()
    def allocate(self, nbytes: int) -> Handle:
        limit, total = self.limits.max_allocation, self.info.memory
        if nbytes <= 0:
            raise DeviceError(f"allocate: {nbytes} bytes; ask for at least one")
        if nbytes > limit:
            raise OutOfMemoryError(f"{nbytes} bytes asked; max_allocation is {limit}")
        with self.state:
            if self.used + nbytes > total:
                raise OutOfMemoryError(f"{nbytes} bytes asked, {self.used} of {total} in use; free some first")
            self.used += nbytes
        try:
            allocation = Allocation(nbytes)
        except (OSError, MemoryError) as error:
            self.used -= nbytes
            raise OutOfMemoryError(f"the host refused {nbytes} bytes: {error}") from error
        if self._poisons():
            allocation.set(0, nbytes, _POISON)
        return self.keep(allocation)

    @entry()
    def free(self, handle: Handle) -> None:
        thing = self.find(handle, object, "free")
        with self.state:
            del self.objects[handle]
        if isinstance(thing, Allocation):
            self.used -= thing.nbytes
            if self._poisons():
                thing.set(0, thing.nbytes, _POISON)

    @entry()
    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        self.range_of("copy_in", dst, dst_offset, src.nbytes)
        data = bytes(src)

        def run() -> None:
            target = self.find(dst, Allocation, "copy_in, when it ran")
            target.view[dst_offset : dst_offset + len(data)] = data

        self.submit(stream, "copy_in", run, staged=len(data))

    @entry()
    def copy_out(self, stream: Handle | None, dst: memoryview, src: Handle, src_offset: int) -> None:
        self.range_of("copy_out", src, src_offset, dst.nbytes)
        host = dst.cast("B")

        def run() -> None:
            source = self.find(src, Allocation, "copy_out, when it ran")
            host[:] = source.view[src_offset : src_offset + host.nbytes]

        self.submit(stream, "copy_out", run)

    @entry()
    def copy(
        self, stream: Handle | None, dst: Handle, dst_offset: int, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        self.check_copy(dst, dst_offset, src, src_offset, nbytes)
        self.submit(stream, "copy", lambda: self.copy_now(dst, dst_offset, src, src_offset, nbytes))

    def check_copy(self, dst: Handle, dst_offset: int, src: Handle, src_offset: int, nbytes: int) -> None:
        """Raise DeviceError unless both ranges are good and apart."""
        self.range_of("copy to", dst, dst_offset, nbytes)
        self.range_of("copy from", src, src_offset, nbytes)
        if dst == src and abs(dst_offset - src_offset) < nbytes:
            raise DeviceError(f"copy: {nbytes} bytes at {src_offset} and at {dst_offset} of one allocation overlap")

    def copy_now(self, dst: Handle, dst_offset: int, src: Handle, src_offset: int, nbytes: int) -> None:
        """Copy at once, in a stream's thread."""
        source = self.find(src, Allocation, "copy, when it ran")
        target = self.find(dst, Allocation, "copy, when it ran")
        target.view[dst_offset : dst_offset + nbytes] = source.view[src_offset : src_offset + nbytes]

    @entry("fill")
    def fill(self, stream: Handle | None, dst: Handle, dst_offset: int, nbytes: int, byte: int) -> None:
        self.range_of("fill", dst, dst_offset, nbytes)
        self.submit(
            stream, "fill", lambda: self.find(dst, Allocation, "fill, when it ran").set(dst_offset, nbytes, byte)
        )

    @entry("peer_copy")
    def copy_peer(
        self,
        stream: Handle | None,
        dst: Handle,
        dst_offset: int,
        peer: Memory,
        src: Handle,
        src_offset: int,
        nbytes: int,
    ) -> None:
        self.range_of("copy_peer to", dst, dst_offset, nbytes)
        peer.range_of("copy_peer from", src, src_offset, nbytes)

        def run() -> None:
            source = peer.find(src, Allocation, "copy_peer, when it ran")
            target = self.find(dst, Allocation, "copy_peer, when it ran")
            target.view[dst_offset : dst_offset + nbytes] = source.view[src_offset : src_offset + nbytes]

        self.submit(stream, "copy_peer", run)

    @entry("memory_info")
    def memory_info(self) -> tuple[int, int]:
        return self.info.memory - self.used, self.info.memory

    def drop_objects(self) -> None:
        """Free everything that is alive."""
        self.objects.clear()
        self.used = 0

    def _poisons(self) -> bool:
        return any(plan.poison for plan in faults.active(self.plan))
