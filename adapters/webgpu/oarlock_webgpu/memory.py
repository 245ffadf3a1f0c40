"""Memory: a handle is a wgpu buffer; wgpu stages copies in, a buffer that the host can map copies out."""

from __future__ import annotations

from typing import Any

import wgpu

from oarlock.errors import DeviceError, OutOfMemoryError
from oarlock.hal import Binding, Handle
from oarlock_webgpu.stream import Streams, present

_USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
_STAGED = 64 << 20
"""Bytes of host data that wgpu may hold for copies; past that a copy in waits until they are done."""
_WAIT_S = 3600.0


class Memory(Streams):
    """The memory part of the driver. It counts against ``total`` (0: unknown) what it gave out, for a software driver
    promises more than there is; ``groups`` are the bind groups by kernel and bindings."""

    def __init__(self, device: Any, total: int = 0) -> None:
        super().__init__(device)
        self.total = total
        self.staged = 0
        self.sizes: dict[Handle, int] = {}
        self.groups: dict[tuple[Any, tuple[Binding, ...]], Any] = {}

    def allocate(self, nbytes: int) -> Handle:
        used = sum(self.sizes.values())
        if self.total and used + nbytes > self.total:
            raise OutOfMemoryError(f"{nbytes} bytes asked, {used} of {self.total} in use; free some first")
        try:
            with present():
                buffer = self.device.create_buffer(size=nbytes + -nbytes % 4, usage=_USAGE)
        except wgpu.GPUError as error:
            raise OutOfMemoryError(f"{nbytes} bytes asked, {used} in use: {error}") from error
        self.sizes[buffer] = nbytes
        return buffer

    def free(self, handle: Handle) -> None:
        if isinstance(handle, wgpu.GPUBuffer):
            if self.sizes.pop(handle, None) is None:
                raise DeviceError("this memory was freed already, or is another device's")
            for key in [key for key in self.groups if any(handle is buffer for buffer, _, _ in key[1])]:
                del self.groups[key]
            handle.destroy()

    @present()
    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        self.flush()  # what wgpu stages comes before the next submission
        self.device.queue.write_buffer(dst, dst_offset, src)
        self.unmarked += 1
        self.staged += src.nbytes
        if self.staged > _STAGED:
            self.staged = 0
            self.drain(_WAIT_S)

    def copy_out(self, stream: Handle | None, dst: memoryview, src: Handle, src_offset: int) -> None:
        self.read(src, src_offset, dst.nbytes, dst)

    def copy(
        self, stream: Handle | None, dst: Handle, dst_offset: int, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        commands = self.commands()
        if dst is src:  # WebGPU refuses that, even where the ranges are apart
            between = self.device.create_buffer(size=nbytes, usage=_USAGE)
            commands.copy_buffer_to_buffer(src, src_offset, between, 0, nbytes)
            src, src_offset = between, 0
        commands.copy_buffer_to_buffer(src, src_offset, dst, dst_offset, nbytes)
