"""Memory: a handle is a pyopencl.Buffer, and no copy waits for the device unless much is waiting already."""

from __future__ import annotations

from typing import Any

import pyopencl as cl

from oarlock.errors import DeviceError, OutOfMemoryError
from oarlock.hal import Handle
from oarlock.hal.host import HostMemory
from oarlock.target import Target
from oarlock_opencl.stream import Streams

_STAGED = 64 << 20
"""Bytes of host data that one stream keeps for copies in flight; a copy in past that waits until it is done."""


class Memory(Streams):
    """The memory part of the driver. It counts what it gave out, for some runtimes promise more than there is."""

    def __init__(self, device: Any, target: Target) -> None:
        super().__init__(device, target)
        self.sizes: dict[Handle, tuple[int, HostMemory | None]] = {}

    def allocate(self, nbytes: int) -> Handle:
        total, used = self.device.global_mem_size, sum(size for size, _ in self.sizes.values())
        asked = f"{nbytes} bytes asked, at most {self.target.limits.max_allocation} at once, {used} of {total} in use"
        if used + nbytes > total:
            raise OutOfMemoryError(f"{asked}; free some first")
        own = None if self.target.has_threads else HostMemory.allocate(nbytes)  # a processor's gets huge pages
        held: Any = own and HostMemory.adopt(own.address, nbytes, None).view  # freed with the buffer
        flags = cl.mem_flags.READ_WRITE | (cl.mem_flags.USE_HOST_PTR if own else 0)
        try:
            buffer = cl.Buffer(self.context, flags, nbytes, hostbuf=held)
        except cl.Error as error:
            raise OutOfMemoryError(f"{asked}: {error}") from error
        self.sizes[buffer] = nbytes, own
        return buffer

    def free(self, handle: Handle) -> None:
        if isinstance(handle, cl.Buffer):
            if self.sizes.pop(handle, None) is None:
                raise DeviceError("this memory was freed already, or is another device's")
            handle.release()

    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        lane = self.stream(stream)
        lane.prune()
        blocking = lane.kept + src.nbytes > _STAGED
        data = src if blocking else bytes(src)
        lane.submit("copy in", cl.enqueue_copy, dst, data, kept=src.nbytes, dst_offset=dst_offset, is_blocking=blocking)

    def copy_out(self, stream: Handle | None, dst: memoryview, src: Handle, src_offset: int) -> None:
        self.stream(stream).submit("copy out", cl.enqueue_copy, dst, src, src_offset=src_offset, is_blocking=False)

    def copy(
        self, stream: Handle | None, dst: Handle, dst_offset: int, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        options = {"dst_offset": dst_offset, "src_offset": src_offset, "byte_count": nbytes}
        self.stream(stream).submit("copy", cl.enqueue_copy, dst, src, **options)

    def fill(self, stream: Handle | None, dst: Handle, dst_offset: int, nbytes: int, byte: int) -> None:
        """Set bytes, in stream order (capability ``fill``)."""
        self.stream(stream).submit("fill", cl.enqueue_fill_buffer, dst, bytes((byte,)), dst_offset, nbytes)
