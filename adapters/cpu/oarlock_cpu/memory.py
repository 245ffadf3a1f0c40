"""Host memory behind handles: a handle is a HostMemory, and every copy is done when it returns."""

from __future__ import annotations

import ctypes

from oarlock.errors import OutOfMemoryError
from oarlock.hal import Handle, MemoryDriver
from oarlock.hal.host import HostMemory, host_memory_bytes

__all__ = ["CpuMemory"]


class CpuMemory(MemoryDriver):
    """Allocations in all are capped by the memory that the host has; the system itself would promise more."""

    def __init__(self) -> None:
        super().__init__()
        self._total = host_memory_bytes()[1]
        self._used = 0
        self._live: dict[Handle, int] = {}

    def allocate(self, nbytes: int) -> Handle:
        if self._used + nbytes > self._total:
            raise OutOfMemoryError(f"{nbytes} bytes asked, {self._used} in use, {self._total} in all; free some first")
        memory = HostMemory.allocate(nbytes)
        self._used += nbytes
        self._live[memory] = nbytes
        return memory

    def free(self, handle: Handle) -> None:
        self._used -= self._live.pop(handle, 0)
        handle.release()

    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        dst.view[dst_offset : dst_offset + src.nbytes] = src.cast("B")

    def copy_out(self, stream: Handle | None, dst: memoryview, src: Handle, src_offset: int) -> None:
        dst.cast("B")[:] = src.view[src_offset : src_offset + dst.nbytes]

    def copy(
        self, stream: Handle | None, dst: Handle, dst_offset: int, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        dst.view[dst_offset : dst_offset + nbytes] = src.view[src_offset : src_offset + nbytes]

    def fill(self, stream: Handle | None, dst: Handle, dst_offset: int, nbytes: int, byte: int) -> None:
        """Set bytes (capability ``fill``)."""
        ctypes.memset(dst.address + dst_offset, byte, nbytes)

    def address(self, handle: Handle) -> int:
        """The first byte's address, good for the host too (capabilities ``address``, ``host_memory``)."""
        return int(handle.address)

    def adopt(self, address: int, nbytes: int, owner: object) -> Handle:
        """A handle on foreign memory, which keeps ``owner`` until it is freed (capability ``address``)."""
        memory = HostMemory.adopt(address, nbytes, owner)
        self._live[memory] = 0
        return memory

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes (capability ``memory_info``)."""
        return host_memory_bytes()

    def close_memory(self) -> None:
        """Release every live allocation."""
        for handle in list(self._live):
            self.free(handle)
