"""Memory: a handle is a pyopencl.Buffer, and no copy waits for the device unless much is waiting already."""

from __future__ import annotations

import pyopencl as cl

from oarlock.errors import DeviceError, OutOfMemoryError
from oarlock.hal import Handle
from oarlock_opencl.stream import Streams

__all__ = ["Memory"]

_STAGED = 64 << 20
"""Bytes of host data that one stream keeps for copies in flight; a copy in past that waits until it is done."""


class Memory(Streams):
    """The memory part of the driver. It counts what it gave out, for some runtimes promise more than there is."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[Handle, int] = {}
        self.used = 0

    def allocate(self, nbytes: int) -> Handle:
        total, largest = self.device.global_mem_size, self.device.max_mem_alloc_size
        asked = f"{nbytes} bytes asked, at most {largest} at once, {self.used} of {total} in use"
        if nbytes > largest or self.used + nbytes > total:
            raise OutOfMemoryError(f"{asked}; free some first")
        try:
            buffer = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, nbytes)
        except cl.Error as error:
            raise OutOfMemoryError(f"{asked}: {error}") from error
        self.sizes[buffer] = nbytes
        self.used += nbytes
        return buffer

    def free(self, handle: Handle) -> None:
        if isinstance(handle, cl.Buffer):
            if handle not in self.sizes:
                raise DeviceError("this memory was freed already, or is another device's")
            self.used -= self.sizes.pop(handle)
            handle.release()

    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        lane = self.stream(stream)
        lane.prune()
        blocking = lane.kept + src.nbytes > _STAGED
        data = src if blocking else bytes(src)
        options = {"dst_offset": dst_offset, "is_blocking": blocking}
        lane.submit("copy to the device", cl.enqueue_copy, dst, data, kept=src.nbytes, **options)

    def copy_out(self, stream: Handle | None, dst: memoryview, src: Handle, src_offset: int) -> None:
        options = {"src_offset": src_offset, "is_blocking": False}
        self.stream(stream).submit("copy from the device", cl.enqueue_copy, dst, src, **options)

    def copy(
        self, stream: Handle | None, dst: Handle, dst_offset: int, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        options = {"dst_offset": dst_offset, "src_offset": src_offset, "byte_count": nbytes}
        self.stream(stream).submit("copy", cl.enqueue_copy, dst, src, **options)

    def fill(self, stream: Handle | None, dst: Handle, dst_offset: int, nbytes: int, byte: int) -> None:
        """Set bytes, in stream order (capability ``fill``)."""
        self.stream(stream).submit("fill", cl.enqueue_fill_buffer, dst, bytes((byte,)), dst_offset, nbytes)

    def close_memory(self) -> None:
        """Release every live allocation; the runtime keeps what work in flight still uses."""
        for buffer in list(self.sizes):
            self.free(buffer)
