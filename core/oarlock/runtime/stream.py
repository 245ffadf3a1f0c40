"""Streams and events as a user holds them, and which stream is current."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock.config import config
from oarlock.errors import ClosedError, DeviceError, UnsupportedError
from oarlock.hal import Handle
from oarlock.runtime.checks import check_handle, check_kind
from oarlock.runtime.lane import Lane
from oarlock.runtime.retired import Retired

if TYPE_CHECKING:
    from oarlock.runtime.device import Device

__all__ = ["Event", "Stream", "check_stream", "current_stream", "in_callback"]


@dataclass(frozen=True, slots=True)
class _Scope:
    """The current stream of each device, and the scope around this one."""

    streams: dict[Device, Stream]
    outer: _Scope | None


class _Callback(threading.local):
    running = False


scopes: ContextVar[_Scope | None] = ContextVar("oarlock_stream", default=None)
_callback = _Callback()


def in_callback() -> bool:
    """Whether this thread runs a host callback of a stream."""
    return _callback.running


def current_stream(device: Device) -> Stream:
    """The stream that work on ``device`` goes to in this context: the innermost ``with stream:``, else the default."""
    scope = scopes.get()
    return device.default_stream if scope is None else scope.streams.get(device, device.default_stream)


def check_stream(device: Device, stream: Stream | Lane | None) -> Lane:
    """The lane of ``stream``, or of the current one for None; raises for a closed stream or one of another device."""
    if stream is None:
        stream = current_stream(device)
    lane = stream if isinstance(stream, Lane) else stream.lane
    if lane.device is not device:
        raise DeviceError(f"a stream of {lane.device.name} cannot run work of {device.name}")
    if lane.closed:
        raise ClosedError(f"{device.name}: a closed stream is used")
    return lane


class Stream:
    """An in-order lane of work on one device. ``with stream:`` makes it current for this thread or task.

    A new thread starts with the default streams. Dropping a stream with work in flight is allowed.
    """

    __slots__ = ("__weakref__", "device", "lane")

    def __init__(self, device: Device, lane: Lane) -> None:
        self.device = device
        self.lane = lane

    @property
    def handle(self) -> Handle | None:
        """The driver's handle; None for the default stream."""
        return self.lane.handle

    @property
    def id(self) -> int:
        """A number that no other stream of this process has had; errors name it."""
        return self.lane.id

    def __enter__(self) -> Stream:
        outer = scopes.get()
        streams = {} if outer is None else outer.streams
        scopes.set(_Scope({**streams, self.device: self}, outer))
        return self

    def __exit__(self, *exception: object) -> None:
        scope = scopes.get()
        scopes.set(None if scope is None else scope.outer)

    def record(self) -> Event:
        """An event that completes when all work given to this stream so far is done."""
        device = self.device
        lane = check_stream(device, self)
        streams = device.can.streams
        with device.using("record"):
            device.dropped.collect_held()
            handle = None if streams is None else check_handle("record", streams.record(lane.handle))
            device.counts.events += handle is not None
            return Event(lane, handle)

    def wait(self, event: Event) -> None:
        """Work given to this stream from now on starts after ``event``; returns at once."""
        device = self.device
        lane = check_stream(device, self)
        if event.device is not device:
            raise DeviceError(
                f"an event of {event.device.name} cannot order a stream of {device.name}; wait on the host with "
                f"event.synchronize()"
            )
        with device.using("wait"):
            streams = device.can.streams
            if streams is not None and event.lane is not lane and lane.seen.get(event.lane.id, 0) < event.ticket:
                streams.wait(lane.handle, event.handle)
            lane.merge(event.clock)

    def synchronize(self) -> None:
        """Wait for all work given to this stream so far; raises its first failure since the last call, naming it."""
        check_stream(self.device, self).synchronize()

    def query(self) -> bool:
        """Whether all work given to this stream so far is done; a failure is kept for the next wait."""
        lane = check_stream(self.device, self)
        with self.device.using("query"):
            return lane.poll(0.0)

    def call_host(self, function: Callable[[], None]) -> None:
        """Call ``function`` on a host thread, in stream order. It may submit work, but not wait for this stream.

        What it raises becomes the failure of this stream. Capability ``host_callbacks``.
        """
        device = self.device
        lane = check_stream(device, self)
        callbacks = device.can.host_callbacks
        if callbacks is None:
            raise UnsupportedError(f"{device.name} does not call the host from a stream; synchronise, then call it")

        def run() -> None:
            _callback.running = True
            try:
                function()
            except Exception as error:
                failure = DeviceError(f"{device.name}: host callback raised {type(error).__name__}: {error}")
                failure.__cause__ = error
                lane.failure = lane.failure or failure
            finally:
                _callback.running = False
                device.host_calls -= 1

        with device.using("call_host"):
            lane.ticket += 1
            device.host_calls += 1
            try:
                callbacks.call_host(lane.handle, run)
            except BaseException:
                device.host_calls -= 1
                raise

    def close(self) -> None:
        """Wait for its work and destroy it; again does nothing. The default stream closes with its device."""
        lane = self.lane
        if lane.closed or lane.handle is None:
            return
        lane.settle()
        failure, lane.failure = lane.failure, None
        self.device.dropped.items.append(Retired("stream", lane))
        self.device.collect()
        if failure is not None:
            raise failure

    def __del__(self) -> None:
        if self.lane.handle is not None and not self.lane.closed:
            self.device.dropped.items.append(Retired("stream", self.lane))

    def __repr__(self) -> str:
        return f"<Stream {self.device.name} {'default' if self.handle is None else self.id}>"


class Event:
    """A marker in a stream. Made by ``Stream.record``."""

    __slots__ = ("__weakref__", "_done", "clock", "device", "handle", "lane", "ticket")

    def __init__(self, lane: Lane, handle: Handle | None) -> None:
        self.device = lane.device
        self.lane = lane
        self.handle = handle
        self.ticket = lane.ticket
        self.clock = lane.clock()
        self._done = False

    def query(self) -> bool:
        """Whether the work before it is done. Work that failed is done too."""
        if self._done:
            return True
        lane = self.lane
        with self.device.using("query"):
            if self.device.can.streams is None:
                self._done = lane.completed >= self.ticket or lane.poll(0.0)
            else:
                self._done = self.device.can.streams.query(self.handle)
                if self._done is not True and self._done is not False:
                    check_kind("query", self._done, bool, "True or False")
            if self._done:
                lane.completed = max(lane.completed, self.ticket)
        return self._done

    def synchronize(self) -> None:
        """Wait on the host. Copies to the host that were submitted before it are readable afterwards.

        Raises the first failure of its stream, when that has shown itself.
        """
        start = time.monotonic()
        pause = 0.0
        while not self.query():
            if 0 < config.watchdog_s < time.monotonic() - start:
                late = self.device.gate.late("event.synchronize", config.watchdog_s)
                self.device.gate.lose(late)
                raise late
            time.sleep(pause)
            pause = min(0.001, pause + 0.00002)
        lane = self.lane
        if any(ticket <= self.ticket for ticket, _ in lane.deferred):
            lane.settle()
        elif not lane.closed:
            with self.device.using("query"):
                lane.poll(0.0)  # shows a failure, unless later work is still going on
        lane.raise_failure()

    def elapsed(self, end: Event) -> float:
        """Seconds of device time from this event to ``end``; both are waited for first."""
        timer = self.device.can.elapsed_time
        if timer is None:
            raise UnsupportedError(f"{self.device.name} does not measure time between events")
        if end.device is not self.device:
            raise DeviceError(f"events of {self.device.name} and {end.device.name} have no common clock")
        self.synchronize()
        end.synchronize()
        with self.device.using("elapsed"):
            seconds = timer.elapsed(self.handle, end.handle)
            check_kind("elapsed", seconds, (float, int), "seconds, a float")
            return float(seconds)

    def __del__(self) -> None:
        if self.handle is not None:
            self.device.dropped.items.append(Retired("event", self.handle))

    def __repr__(self) -> str:
        return f"<Event {self.device.name} stream {self.lane.id} ticket {self.ticket}>"
