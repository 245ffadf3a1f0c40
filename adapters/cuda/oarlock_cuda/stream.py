"""Streams and events, and how every call reaches the driver: with the device's context current in the calling thread.

A handle is a plain object, and ``live`` holds what it stands for: pycuda's objects give themselves back when they die,
so they must die here, while their context is current, and not where the core drops a handle.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import pycuda.driver as cuda

from oarlock.errors import DeviceError, DeviceLostError, DeviceTimeoutError, OarlockError, OutOfMemoryError
from oarlock.hal import Handle
from oarlock.target import Target

__all__ = ["Streams"]

_NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING: no hidden order with the legacy default stream, which other libraries may use."""
_BUSY_S = 1e-4
_TOLD = 8
"""Latest kernels that an error names: the driver does not say which one failed."""

T = TypeVar("T")


class Streams:
    """The stream part of the driver; ``None`` is a stream of its own. A failure spoils the context, thus the device."""

    def __init__(self, context: Any, target: Target) -> None:
        self.context, self.target = context, target
        self.lost: str | None = None
        self.latest: deque[str] = deque(maxlen=_TOLD)
        self.live: dict[Handle | None, Any] = {}
        self.live[None] = self.call("open", cuda.Stream, _NON_BLOCKING)

    def call(
        self, what: str, function: Callable[..., T], *arguments: Any, failing: type[OarlockError] = DeviceError
    ) -> T:
        """Call the driver, with its errors as the contract's: ``failing`` where nothing more is known."""
        if self.lost is not None:
            raise DeviceLostError(f"{what}: the device was lost before ({self.lost}); open it again")
        self.context.push()
        try:
            return function(*arguments)
        except cuda.MemoryError as error:
            raise OutOfMemoryError(f"{what}: {error}") from error
        except cuda.Error as error:
            if not self._spoilt():
                raise failing(f"{what}: {error}") from error
            self.lost = f"{what}: {error}; latest kernels: {', '.join(self.latest) or 'none'}"
            raise DeviceLostError(self.lost) from error
        finally:
            cuda.Context.pop()

    def _spoilt(self) -> bool:
        """Whether the context is beyond use: a failed command shows on every stream then, also on an idle one."""
        try:
            if None in self.live:
                self.live[None].is_done()
        except cuda.Error:
            return True
        return False

    def keep(self, thing: Any) -> Handle:
        """A handle for something of pycuda's."""
        handle = object()
        self.live[handle] = thing
        return handle

    def get(self, handle: Handle | None) -> Any:
        """What a handle stands for."""
        return self.live[handle]

    def drop(self, what: str, handle: Handle) -> None:
        """Give back what a handle stands for."""
        self.call(what, self.live.__delitem__, handle)

    def synchronize(self, stream: Handle | None, timeout_s: float) -> None:
        lane, began = self.get(stream), time.monotonic()
        while not self.call("synchronize", lane.is_done):
            waited = time.monotonic() - began
            if waited > timeout_s:
                raise DeviceTimeoutError(f"not done in {timeout_s:g} s; latest kernels: {', '.join(self.latest)}")
            time.sleep(min(max(0.0, waited - _BUSY_S) / 8, 1e-3))

    def create_stream(self) -> Handle:
        return self.keep(self.call("create_stream", cuda.Stream, _NON_BLOCKING))

    def destroy_stream(self, stream: Handle) -> None:
        self.drop("destroy_stream", stream)

    def record(self, stream: Handle | None) -> Handle:
        lane = self.get(stream)
        return self.keep(self.call("record", lambda: cuda.Event().record(lane)))

    def wait(self, stream: Handle | None, event: Handle) -> None:
        self.call("wait", self.get(stream).wait_for_event, self.get(event))

    def query(self, event: Handle) -> bool:
        return bool(self.call("query", self.get(event).query))

    def destroy_event(self, event: Handle) -> None:
        self.drop("destroy_event", event)

    def elapsed(self, start: Handle, end: Handle) -> float:
        """Seconds of device time between two completed events (capability ``elapsed_time``)."""
        return float(self.call("elapsed", self.get(end).time_since, self.get(start))) * 1e-3
