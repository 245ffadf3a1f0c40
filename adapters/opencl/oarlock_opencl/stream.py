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

__all__ = ["Stream", "Streams"]

_BUSY_S = 1e-4
_LONGEST_PAUSE_S = 1e-3
_CLOSE_S = 5.0


class Stream:
    """A queue, the commands that are not known to have succeeded (event, what, bytes kept), and the first failure."""

    def __init__(self, context: Any, device: Any) -> None:
        self.queue = cl.CommandQueue(context, device, cl.command_queue_properties.PROFILING_ENABLE)
        self.pending: deque[tuple[Any, str, int]] = deque()
        self.kept = 0
        self.failure: str | None = None

    def submit(self, what: str, enqueue: Callable[..., Any], *arguments: Any, kept: int = 0, **options: Any) -> None:
        """Give a command to the queue, behind the last; dropped when the stream is spoiled already."""
        event = self.enqueue(what, enqueue, *arguments, **options)
        if event is not None:
            self.pending.append((event, what, kept))
            self.kept += kept

    def enqueue(self, what: str, enqueue: Callable[..., Any], *arguments: Any, after: Any = (), **options: Any) -> Any:
        """The event of a command that runs after the last and the events ``after``; None on a spoiled stream.

        What is pending after ``prune`` has not failed yet: a command that waits for one that has would never run with
        some drivers.
        """
        self.prune()
        if self.failure is not None:
            return None
        wait_for = [*after, *(event for event, _, _ in list(self.pending)[-1:])]
        try:
            return enqueue(self.queue, *arguments, **options, wait_for=wait_for)
        except cl.MemoryError as error:
            raise OutOfMemoryError(f"{what}: {error}") from error
        except cl.Error as error:
            raise LaunchError(f"{what}: {error}") from error

    def prune(self) -> None:
        """Forget commands that are done, from the oldest on, but for the first failure."""
        while self.pending and (status := self.pending[0][0].command_execution_status) <= 0:
            event, what, kept = self.pending.popleft()
            self.kept -= kept
            if status < 0:
                self.failure = self.failure or f"{what} failed with status {status}"
                _keep_for_ever(event)

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


def _keep_for_ever(event: Any) -> None:
    """Leak an event that failed or is stuck: pyopencl's clean-up of a copy would wait for it, or write to stderr."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(event))


class Streams:
    """The stream part of the driver; ``None`` is the default stream, an event is the marker behind a command."""

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
            raise DeviceError(f"stream {handle!r} is none of this device's: destroyed, or of another one") from None

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
        del self.streams[self.stream(stream)]

    def record(self, stream: Handle | None) -> Handle:
        lane = self.stream(stream)
        event = lane.enqueue("record", cl.enqueue_marker)
        lane.queue.flush()
        if event is None:
            event = cl.UserEvent(self.context)
            event.set_status(-1)
        return event

    def wait(self, stream: Handle | None, event: Handle) -> None:
        lane = self.stream(stream)
        if event.command_execution_status < 0:
            lane.failure = lane.failure or "a command of another stream, which this one waits for, failed"
        else:
            lane.submit("wait for another stream", cl.enqueue_barrier, after=[event])
