"""Streams: in-order command queues that keep the event of every command, for only an event tells of a failure.

Each command waits for the one before it: so a failure spoils what follows on its stream, and a recorded event carries
it to other streams. (A queue alone would run the rest on data that was never written, and finish without an error.)
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pyopencl as cl

from oarlock.errors import DeviceError, DeviceTimeoutError, LaunchError, OutOfMemoryError
from oarlock.hal import Handle

__all__ = ["Event", "Streams"]

_PRUNE_EVERY = 64
_BUSY_S = 1e-4
_LONGEST_PAUSE_S = 1e-3
_CLOSE_S = 5.0


class Stream:
    """A queue, the commands that are not known to have succeeded (event, what, bytes kept), and the first failure."""

    def __init__(self, context: Any, device: Any) -> None:
        self.queue = cl.CommandQueue(context, device, cl.command_queue_properties.PROFILING_ENABLE)
        self.pending: deque[tuple[Any, str | Event, int]] = deque()
        self.kept = 0
        self.failure: str | None = None

    def submit(self, what: str, enqueue: Callable[..., Any], *arguments: Any, kept: int = 0, **keywords: Any) -> None:
        """Give a command to the queue, behind the last; dropped when the stream is spoiled already."""
        if len(self.pending) % _PRUNE_EVERY == 0 or self.last_failed():
            self.prune()
        if self.failure is None:
            event = self.enqueue(what, enqueue, *arguments, **keywords, wait_for=self.last())
            self.pending.append((event, what, kept))
            self.kept += kept

    def enqueue(self, what: str, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Call pyopencl; its errors become ours."""
        try:
            return function(self.queue, *arguments, **keywords)
        except cl.MemoryError as error:
            raise OutOfMemoryError(f"{what}: {error}") from error
        except cl.Error as error:
            kind = LaunchError if what.startswith("kernel") else DeviceError
            raise kind(f"{what}: {error}") from error

    def last(self) -> list[Any]:
        return [self.pending[-1][0]] if self.pending else []

    def last_failed(self) -> bool:
        """Whether the newest command failed: a command that waits for it would never run on some drivers."""
        return bool(self.pending) and self.pending[-1][0].command_execution_status < 0

    def drain(self, timeout_s: float) -> bool:
        """Poll until every command is done, for at most ``timeout_s``; pauses grow with the time waited."""
        began = time.monotonic()
        self.queue.flush()
        self.prune()
        while self.pending:
            waited = time.monotonic() - began
            if waited > timeout_s:
                return False
            time.sleep(min(waited / 8, _LONGEST_PAUSE_S) if waited > _BUSY_S else 0)
            self.prune()
        return True

    def prune(self) -> None:
        """Forget commands that succeeded, from the oldest on; note the first failure and forget what it spoilt."""
        while self.pending and (status := self.pending[0][0].command_execution_status) <= 0:
            event, what, kept = self.pending.popleft()
            self.kept -= kept
            if status < 0:
                self.failure = self.failure or f"{what} failed with status {status}"
                _keep_for_ever(event)


class Event:
    """A point in a stream: the marker behind its last command, or the failure that had spoilt the stream."""

    def __init__(self, marker: Any, stream: Stream) -> None:
        self.marker = marker
        self.stream = stream
        self.failure = stream.failure

    def failed(self) -> bool:
        return self.marker is None or self.marker.command_execution_status < 0

    def __str__(self) -> str:
        self.stream.prune()
        failure = self.failure or self.stream.failure
        return f"wait for an event of another stream{f', where {failure},' if failure else ''}"


def _keep_for_ever(event: Any) -> None:
    """Leak the event of a failed command: pyopencl's clean-up of a failed copy would write to stderr."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(event))


class Streams:
    """The stream part of the driver; ``None`` is the default stream."""

    context: Any
    device: Any

    def __init__(self) -> None:
        super().__init__()
        self.streams: dict[Handle | None, Stream] = {None: Stream(self.context, self.device)}

    def stream(self, handle: Handle | None) -> Stream:
        """The stream behind a handle."""
        try:
            return self.streams[handle]
        except KeyError:
            raise DeviceError(
                f"stream {handle!r} is none of this device's; create it on the device it is for"
            ) from None

    def synchronize(self, stream: Handle | None, timeout_s: float) -> None:
        lane = self.stream(stream)
        if not lane.drain(timeout_s):
            what = lane.pending[0][1]
            raise DeviceTimeoutError(f"{what} and {len(lane.pending) - 1} more not done after {timeout_s:g} s")
        failure, lane.failure = lane.failure, None
        if failure is not None:
            raise LaunchError(failure)

    def create_stream(self) -> Handle:
        stream = Stream(self.context, self.device)
        self.streams[stream] = stream
        return stream

    def destroy_stream(self, stream: Handle) -> None:
        self.stream(stream).queue.flush()
        del self.streams[stream]

    def record(self, stream: Handle | None) -> Handle:
        lane = self.stream(stream)
        lane.prune()
        if lane.failure is not None:
            return Event(None, lane)
        event = Event(lane.enqueue("record", cl.enqueue_marker, wait_for=lane.last()), lane)
        lane.queue.flush()
        return event

    def wait(self, stream: Handle | None, event: Handle) -> None:
        lane = self.stream(stream)
        lane.prune()
        if event.failed():
            lane.failure = lane.failure or f"{event} failed"
        elif lane.failure is None:
            barrier = lane.enqueue("wait", cl.enqueue_barrier, wait_for=[event.marker, *lane.last()])
            lane.pending.append((barrier, event, 0))

    def query(self, event: Handle) -> bool:
        return event.marker is None or event.marker.command_execution_status <= 0

    def destroy_event(self, event: Handle) -> None:
        event.marker = None

    def elapsed(self, start: Handle, end: Handle) -> float:
        """Seconds between two completed events (capability ``elapsed_time``)."""
        if start.failed() or end.failed():
            raise DeviceError("an event behind a failed command has no time")
        return float(max(0, end.marker.profile.end - start.marker.profile.end)) * 1e-9

    def close_streams(self) -> None:
        """Let work in flight finish for a while; what is stuck is left alone, for cleaning it up would wait for it."""
        for lane in self.streams.values():
            if not lane.drain(_CLOSE_S):
                for event, _, _ in lane.pending:
                    _keep_for_ever(event)
        self.streams.clear()
