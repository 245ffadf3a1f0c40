"""Streams and events. Every method runs with the device's context current in the calling thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pycuda.driver as cuda

from oarlock.errors import DeviceError, DeviceLostError, DeviceTimeoutError, LaunchError, OutOfMemoryError
from oarlock.hal import Handle
from oarlock.target import Target

__all__ = ["Streams"]

_NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING: no hidden order with the legacy default stream, which other libraries may use."""
_BUSY_S = 1e-4

T = TypeVar("T")


class Streams:
    """The stream part of the driver; ``None`` is a stream of its own. A failure spoils the context, thus the device."""

    def __init__(self, device: Any, context: Any, target: Target) -> None:
        self.device, self.context, self.target = device, context, target
        self.lost: str | None = None
        with self.current():
            self.streams: dict[Handle | None, Any] = {None: cuda.Stream(_NON_BLOCKING)}

    @contextmanager
    def current(self) -> Iterator[None]:
        """The device's context, current in this thread while the block runs; what was current comes back."""
        self.context.push()
        try:
            yield
        finally:
            cuda.Context.pop()

    def call(self, what: str, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call the driver, with its errors as the contract's."""
        if self.lost is not None:
            raise DeviceLostError(f"{what}: the device was lost before ({self.lost}); open it again")
        with self.current():
            try:
                return function(*arguments, **options)
            except cuda.MemoryError as error:
                raise OutOfMemoryError(f"{what}: {error}") from error
            except cuda.LaunchError as error:
                self.lost = f"{what}: {error}"
                raise LaunchError(self.lost) from error
            except cuda.Error as error:
                raise DeviceError(f"{what}: {error}") from error

    def stream(self, handle: Handle | None) -> Any:
        """The stream behind a handle."""
        if handle not in self.streams:
            raise DeviceError(f"stream {handle!r} is none of this device's: destroyed, or of another one")
        return self.streams[handle]

    def synchronize(self, stream: Handle | None, timeout_s: float) -> None:
        lane, began = self.stream(stream), time.monotonic()
        while not self.call("synchronize", lane.is_done):
            waited = time.monotonic() - began
            if waited > timeout_s:
                raise DeviceTimeoutError(f"the stream is not done in {timeout_s:g} s")
            time.sleep(min(max(0.0, waited - _BUSY_S) / 8, 1e-3))

    def create_stream(self) -> Handle:
        stream = self.call("create_stream", cuda.Stream, _NON_BLOCKING)
        self.streams[stream] = stream
        return stream

    def destroy_stream(self, stream: Handle) -> None:
        del self.streams[self.stream(stream)]

    def record(self, stream: Handle | None) -> Handle:
        def record() -> Any:
            event = cuda.Event()
            event.record(self.stream(stream))
            return event

        return self.call("record", record)

    def wait(self, stream: Handle | None, event: Handle) -> None:
        self.call("wait", self.stream(stream).wait_for_event, event)

    def query(self, event: Handle) -> bool:
        return bool(self.call("query", event.query))

    def destroy_event(self, event: Handle) -> None:
        return None  # its last reference frees it

    def elapsed(self, start: Handle, end: Handle) -> float:
        """Seconds of device time between two completed events (capability ``elapsed_time``)."""
        return float(self.call("elapsed", end.time_since, start)) * 1e-3

    def close_streams(self) -> None:
        """Drop the streams; the driver finishes their work."""
        self.streams.clear()
