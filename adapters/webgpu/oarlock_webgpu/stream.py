"""The one in-order stream: commands are encoded, and submitted a batch at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import wgpu

from oarlock.errors import DeviceLostError, DeviceTimeoutError, LaunchError
from oarlock.hal import Handle

_RING = 64 << 10
"""Bytes of scalar blocks that one batch may hold."""
_BATCH = 32
"""Launches of one batch."""
_AHEAD = 8
"""Submissions that nothing waits for: a queue without a bound keeps what all of them use."""
_STAGING = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST

Read: TypeAlias = tuple[Any, memoryview | None]
"""A buffer that the host can map, and where its bytes go."""


@contextmanager
def present() -> Iterator[None]:
    """What wgpu refuses because the device is gone becomes DeviceLostError."""
    try:
        yield
    except wgpu.GPUError as error:
        if "is lost" in str(error):
            raise DeviceLostError(f"the device is gone: {error}") from error
        raise


class Streams:
    """The stream part of the driver: what is encoded, what the host waits for, and the first failure.

    A mapping of a buffer is answered when the submissions that use it are done; so each wait is for one: of a copy out,
    or of a marker that the submission writes a word to.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        usage = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
        self.ring = device.create_buffer(size=_RING, usage=usage)
        self.unit = device.limits["min-uniform-buffer-offset-alignment"]
        self.encoder: Any = None
        self.compute: Any = None
        self.blocks = bytearray()
        self.kernels: list[str] = []
        self.reads: list[Read] = []
        self.waiting: deque[tuple[Any, Read]] = deque()
        self.unmarked = 0
        """Submissions and writes since the last one that something waits for."""
        self.failure: LaunchError | None = None

    @present()
    def commands(self) -> Any:
        """The encoder, for a copy behind what is encoded already."""
        if self.compute is not None:
            self.compute.end()
            self.compute = None
        if self.encoder is None:
            self.encoder = self.device.create_command_encoder()
        return self.encoder

    def dispatch(self, entry: str, pipeline: Any, group: Any, grid: tuple[int, int, int], scalars: bytes) -> None:
        """Encode a launch; its scalar block gets a place in the ring, which the batch is written to as a whole."""
        if len(self.kernels) >= _BATCH or len(self.blocks) + len(scalars) > _RING:
            self.flush()
        if self.compute is None:
            self.compute = self.commands().begin_compute_pass()
        self.compute.set_pipeline(pipeline)
        self.compute.set_bind_group(0, group, [len(self.blocks)] if scalars else [])
        self.compute.dispatch_workgroups(*grid)
        self.blocks += scalars + bytes(-len(scalars) % self.unit)
        self.kernels.append(entry)

    @present()
    def read(self, src: Any, offset: int, nbytes: int, dst: memoryview | None) -> None:
        """Encode a copy out; without ``dst``, to know when it is done."""
        staging = self.device.create_buffer(size=nbytes, usage=_STAGING)
        self.commands().copy_buffer_to_buffer(src, offset, staging, 0, nbytes)
        self.reads.append((staging, dst))

    def flush(self) -> None:
        """Submit what is encoded. A refusal is kept for ``synchronize``: the command at fault may be long past."""
        if self.encoder is None:
            return
        self.unmarked = 0 if self.reads else self.unmarked + 1
        try:
            with present():
                commands = self.commands().finish()
                if self.blocks:
                    self.device.queue.write_buffer(self.ring, 0, self.blocks)
                self.device.queue.submit([commands])
            self.waiting += [(read[0].map_async("READ"), read) for read in self.reads]
        except wgpu.GPUError as error:
            named = ", ".join(dict.fromkeys(self.kernels)) or "a copy"
            self.failure = self.failure or LaunchError(f"{named}: {error}")
        self.encoder, self.compute = None, None
        self.blocks, self.kernels, self.reads = bytearray(), [], []
        if self.unmarked >= _AHEAD:
            self.mark()
            while len(self.waiting) > 2:
                self.settle_first()

    def mark(self) -> None:
        """Submit what is encoded, in such a way that something waits for all that was submitted."""
        if not self.reads and (self.unmarked or self.encoder is not None):
            self.read(self.ring, 0, 4, None)
        self.flush()

    def drain(self, timeout_s: float) -> bool:
        """Submit all, and wait until it is done for at most ``timeout_s``."""
        self.mark()
        began = time.monotonic()
        while self.waiting:
            # wgpu has no public wait with a time-out; this event is what its own sync_wait waits for
            if not self.waiting[0][0]._thread_event.wait(max(0.0, timeout_s - (time.monotonic() - began))):
                return False
            self.settle_first()
        return True

    def settle_first(self) -> None:
        """Wait for the oldest read, and hand its bytes over."""
        promise, (staging, dst) = self.waiting.popleft()
        try:
            promise.sync_wait()
            if dst is not None:
                dst.cast("B")[:] = staging.read_mapped(copy=False)
            staging.destroy()
        except (RuntimeError, wgpu.GPUError) as error:
            raise DeviceLostError(f"the device stopped: {error}") from error

    def synchronize(self, stream: Handle | None, timeout_s: float) -> None:
        if not self.drain(timeout_s):
            raise DeviceTimeoutError(f"{len(self.waiting)} submissions not done in {timeout_s:g} s")
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
