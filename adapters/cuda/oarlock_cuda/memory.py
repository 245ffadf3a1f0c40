"""Memory: pycuda's allocations, copies in stream order, and page-locked host memory."""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from typing import Any

import numpy as np
import pycuda.driver as cuda

from oarlock.hal import Handle
from oarlock_cuda import bare
from oarlock_cuda.stream import Streams

__all__ = ["Memory"]

_PAGE = 4096


class Adopted(int):
    """The address of foreign device memory, whose owner is kept while it is used."""

    owner: object


class Memory(Streams):
    """The memory part of the driver."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.pinned: dict[int, Any] = {}
        self.unpinned: deque[int] = deque()

    def allocate(self, nbytes: int) -> Handle:
        return self.keep(self.call("allocate", cuda.mem_alloc, nbytes))

    def free(self, handle: Handle) -> None:
        self.drop("free", handle)

    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        """From pageable memory the driver returns when it has staged the bytes; from page-locked memory, at once."""
        self.call("copy in", cuda.memcpy_htod_async, int(self.get(dst)) + dst_offset, src, self.get(stream))
        if self.pinned and self._is_pinned(src):
            self.synchronize(stream, float("inf"))

    def copy_out(self, stream: Handle | None, dst: memoryview, src: Handle, src_offset: int) -> None:
        self.call("copy out", cuda.memcpy_dtoh_async, dst, int(self.get(src)) + src_offset, self.get(stream))

    def copy(
        self, stream: Handle | None, dst: Handle, dst_offset: int, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        to, begin = int(self.get(dst)) + dst_offset, int(self.get(src)) + src_offset
        self.call("copy", cuda.memcpy_dtod_async, to, begin, nbytes, self.get(stream))

    def copy_peer(
        self, stream: Handle | None, dst: Handle, dst_offset: int, peer: Any, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        """Copy from another CUDA device, in stream order (capability ``peer_copy``). pycuda's swaps the contexts."""
        to = ctypes.c_uint64(int(self.get(dst)) + dst_offset), ctypes.c_void_p(self.context.handle)
        begin = ctypes.c_uint64(int(peer.get(src)) + src_offset), ctypes.c_void_p(peer.context.handle)
        lane = ctypes.c_void_p(self.get(stream).handle)
        self.call("peer copy", bare.call, "cuMemcpyPeerAsync", *to, *begin, ctypes.c_size_t(nbytes), lane)

    def fill(self, stream: Handle | None, dst: Handle, dst_offset: int, nbytes: int, byte: int) -> None:
        """Set bytes, in stream order (capability ``fill``)."""
        self.call("fill", cuda.memset_d8_async, int(self.get(dst)) + dst_offset, byte, nbytes, self.get(stream))

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes (capability ``memory_info``)."""
        free, total = self.call("memory_info", cuda.mem_get_info)
        return int(free), int(total)

    def address(self, handle: Handle) -> int:
        """The device address of an allocation (capability ``address``)."""
        return int(self.get(handle))

    def adopt(self, address: int, nbytes: int, owner: object) -> Handle:
        """A handle on device memory that another library owns; raises DeviceError where there is none."""
        self.call(f"{address:#x} is no memory of this device's", cuda.mem_get_address_range, address)
        adopted = Adopted(address)
        adopted.owner = owner
        return self.keep(adopted)

    def allocate_pinned(self, nbytes: int) -> memoryview:
        """Page-locked host memory (capability ``pinned``), unlocked some time after its last view has died.

        It is the process's own memory, so a view that outlives the device still reads what is there.
        """
        while self.unpinned:
            self.unlock(self.unpinned.popleft())
        owner = self.call("allocate_pinned", cuda.aligned_empty, -(-nbytes // _PAGE) * _PAGE, np.uint8)
        at = owner.ctypes.data
        size = ctypes.c_size_t(owner.nbytes)  # pycuda's own binding fails with NumPy 2
        self.call("allocate_pinned", bare.call, "cuMemHostRegister_v2", ctypes.c_void_p(at), size, 0)
        self.pinned[at] = owner
        view = (ctypes.c_ubyte * nbytes).from_address(at)
        view.owner = owner
        weakref.finalize(view, self.unpinned.append, at).atexit = False
        return memoryview(view).cast("B")

    def unlock(self, address: int) -> None:
        """Give page-locked memory back to the process."""
        self.call("allocate_pinned", bare.call, "cuMemHostUnregister", ctypes.c_void_p(address))
        del self.pinned[address]

    def _is_pinned(self, view: memoryview) -> bool:
        at = np.frombuffer(view, np.uint8).ctypes.data
        return any(first <= at < first + owner.nbytes for first, owner in self.pinned.items())
