"""Memory: a handle is a pycuda allocation. Copies from pageable memory return when the source may be reused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pycuda.driver as cuda

from oarlock.errors import DeviceError
from oarlock.hal import Handle
from oarlock_cuda.stream import Streams

__all__ = ["Memory"]


class Adopted:
    """Foreign device memory at ``address``; ``owner`` is kept while it is used."""

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.address, self.nbytes, self.owner = address, nbytes, owner

    def __int__(self) -> int:
        return self.address


class Memory(Streams):
    """The memory part of the driver."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.live: set[Any] = set()
        self.pinned: list[tuple[int, int]] = []

    def allocate(self, nbytes: int) -> Handle:
        free, total = self.memory_info()
        allocation = self.call(f"{nbytes} bytes asked, {free} of {total} free", cuda.mem_alloc, nbytes)
        self.live.add(allocation)
        return allocation

    def free(self, handle: Handle) -> None:
        if isinstance(handle, (cuda.DeviceAllocation, Adopted)):
            if handle not in self.live:
                raise DeviceError("this memory was freed already, or is another device's")
            self.live.discard(handle)
            if isinstance(handle, cuda.DeviceAllocation):
                self.call("free", handle.free)

    def free_all(self) -> None:
        """Give back what is alive; a lost device keeps nothing anyway."""
        for handle in list(self.live):
            if isinstance(handle, cuda.DeviceAllocation) and self.lost is None:
                handle.free()
        self.live.clear()

    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        lane = self.stream(stream)
        self.call("copy in", cuda.memcpy_htod_async, int(dst) + dst_offset, src, lane)
        if self._is_pinned(src):  # then the copy is still under way
            self.synchronize(stream, float("inf"))

    def copy_out(self, stream: Handle | None, dst: memoryview, src: Handle, src_offset: int) -> None:
        self.call("copy out", cuda.memcpy_dtoh_async, dst, int(src) + src_offset, self.stream(stream))

    def copy(
        self, stream: Handle | None, dst: Handle, dst_offset: int, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        lane = self.stream(stream)
        self.call("copy", cuda.memcpy_dtod_async, int(dst) + dst_offset, int(src) + src_offset, nbytes, lane)

    def copy_peer(
        self, stream: Handle | None, dst: Handle, dst_offset: int, peer: Any, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        """Copy from another CUDA device, in stream order (capability ``peer_copy``)."""
        to, begin, lane = int(dst) + dst_offset, int(src) + src_offset, self.stream(stream)
        self.call("peer copy", cuda.memcpy_peer_async, to, begin, nbytes, self.context, peer.context, lane)

    def fill(self, stream: Handle | None, dst: Handle, dst_offset: int, nbytes: int, byte: int) -> None:
        """Set bytes, in stream order (capability ``fill``)."""
        self.call("fill", cuda.memset_d8_async, int(dst) + dst_offset, byte, nbytes, self.stream(stream))

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes (capability ``memory_info``)."""
        free, total = self.call("memory_info", cuda.mem_get_info)
        return int(free), int(total)

    def address(self, handle: Handle) -> int:
        """The device address of an allocation (capability ``address``)."""
        return int(handle)

    def adopt(self, address: int, nbytes: int, owner: object) -> Handle:
        """A handle on device memory that another library owns."""
        handle = Adopted(address, nbytes, owner)
        self.live.add(handle)
        return handle

    def allocate_pinned(self, nbytes: int) -> memoryview:
        """Page-locked host memory (capability ``pinned``)."""
        array = self.call("allocate_pinned", cuda.pagelocked_empty, nbytes, np.uint8)
        self.pinned.append((array.ctypes.data, nbytes))
        return memoryview(array)

    def _is_pinned(self, view: memoryview) -> bool:
        if not self.pinned:
            return False
        begin = np.frombuffer(view, np.uint8).ctypes.data
        return any(low <= begin < low + size for low, size in self.pinned)
