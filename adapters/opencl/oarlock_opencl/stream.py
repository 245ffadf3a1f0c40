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
from oarlock.target import Target

_CLOSE_S = 5.0


class Stream:
    """A queue, the commands that are not known to have succeeded (event, what, bytes kept), and the first failure."""

    def __init__(self, context: Any, device: Any) -> None:
        self.queue = cl.CommandQueue(context, device, cl.command_queue_properties.PROFILING_ENABLE)
        self.pending: deque[tuple[Any, str | Stream, int]] = deque()
        self.kept = 0
        self.failure: str | None = None

    def __str__(self) -> str:
        self.prune()
        return f"wait for another stream ({self.failure or 'a command there failed'})"

    def submit(self, what: str | Stream, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Enqueue a command behind the last one and the events ``after``; its event, or None on a spoiled stream.

        What is pending after ``prune`` has not failed yet: a command that waits for one that has would never run with
        some drivers. ``kept`` is the size of the host data that the command keeps.
        """
        self.prune()
        if self.failure is not None:
            return None
        kept = options.pop("kept", 0)
        wait_for = [*options.pop("after", ()), *([self.pending[-1][0]] if self.pending else [])]
        try:
            event = function(self.queue, *arguments, **options, wait_for=wait_for)
        except cl.MemoryError as error:
            raise OutOfMemoryError(f"{what}: {error}") from error
        except cl.Error as error:
            raise LaunchError(f"{what}: {error}") from error
        self.pending.append((event, what, kept))
        self.kept += kept
        return event

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
            time.sleep(min(max(0.0, waited - 1e-4) / 8, 1e-3))  # at first not at all
            self.prune()
        return True


def _keep_for_ever(thing: object) -> None:
    """Leak an event that failed or is stuck: pyopencl's clean-up of a copy would write to stderr, or wait for it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class Streams:
    """The stream part of the driver; ``None`` is the default stream, an event is a marker and its stream."""

    def __init__(self, device: Any, target: Target) -> None:
        self.device = device
        self.target = target
        self.context = cl.Context([device])
        self.streams: dict[Handle | None, Stream] = {None: Stream(self.context, device)}

    def stream(self, handle: Handle | None) -> Stream:
        """The stream behind a handle."""
        if handle not in self.streams:
            raise DeviceError(f"stream {handle!r} is none of this device's: destroyed, or of another one")
        return self.streams[handle]

    def synchronize(self, stream: Handle | None, timeout_s: float) -> None:
        lane = self.stream(stream)
        if not lane.drain(timeout_s):
            raise DeviceTimeoutError(f"{len(lane.pending)} not done in {timeout_s:g} s, from {lane.pending[0][1]} on")
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
        marker = lane.submit("record", cl.enqueue_marker)
        lane.queue.flush()
        if marker is None:
            marker = cl.UserEvent(self.context)
            marker.set_status(-1)
        return marker, lane

    def wait(self, stream: Handle | None, event: Handle) -> None:
        (marker, producer), lane = event, self.stream(stream)
        if marker.command_execution_status < 0:
            lane.failure = lane.failure or f"{producer} failed"
        else:
            lane.submit(producer, cl.enqueue_barrier, after=[marker])

    def query(self, event: Handle) -> bool:
        return bool(event[0].command_execution_status <= 0)

    def destroy_event(self, event: Handle) -> None:
        return None  # its last reference frees it

    def elapsed(self, start: Handle, end: Handle) -> float:
        """Seconds between two completed events (capability ``elapsed_time``)."""
        return float(max(0, end[0].profile.end - start[0].profile.end)) * 1e-9

    def close_streams(self) -> None:
        """Let work in flight finish for a while, and leave alone what is stuck."""
        for lane in self.streams.values():
            if not lane.drain(_CLOSE_S):
                _keep_for_ever(lane)
        self.streams.clear()
