"""Streams and events: order, completion, and the first failure of what was submitted.

Each submission to a stream takes the next ticket. ``completed`` is the last ticket that is known to have ended, and
``seen`` says up to which ticket of other streams this stream's future work is ordered after: a vector clock, so that
a wait that is already implied is not made again.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock.config import config
from oarlock.errors import ClosedError, DeviceError, DeviceTimeoutError, OarlockError, UnsupportedError
from oarlock.hal import Handle
from oarlock.runtime.retired import Retired

if TYPE_CHECKING:
    from oarlock.runtime.device import Device

__all__ = ["Event", "Stream", "check_stream", "current_stream", "in_callback"]

_SLICE_S = 0.005
"""Longest stay inside ``driver.synchronize`` before other threads get a turn at the driver."""

_ids = itertools.count(1)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class _Scope:
    """The current stream of each device, and the scope around this one."""

    streams: dict[Device, Stream]
    outer: _Scope | None


_scope: ContextVar[_Scope | None] = ContextVar("oarlock_stream", default=None)


class _Callback(threading.local):
    running = False


_callback = _Callback()


def in_callback() -> bool:
    """Whether this thread runs a host callback of a stream."""
    return _callback.running


def current_stream(device: Device) -> Stream:
    """The stream that work on ``device`` goes to in this context: the innermost ``with stream:``, else the default."""
    scope = _scope.get()
    return device.default_stream if scope is None else scope.streams.get(device, device.default_stream)


class Stream:
    """An in-order lane of work on one device. ``with stream:`` makes it current for this thread or task.

    A new thread starts with the default streams. Dropping a stream with work in flight is allowed.
    """

    __slots__ = (
        "__weakref__", "_marker", "closed", "completed", "deferred", "device", "failure", "handle", "id", "seen",
        "ticket",
    )  # fmt: skip

    def __init__(self, device: Device, handle: Handle | None) -> None:
        self.device = device
        self.handle = handle
        self.id = next(_ids)
        self.closed = False
        self.ticket = 0
        self.completed = 0
        self.seen: dict[int, int] = {}
        self.failure: OarlockError | None = None
        self.deferred: list[tuple[int, Callable[[], object]]] = []
        self._marker: tuple[Handle, int] | None = None

    def __enter__(self) -> Stream:
        outer = _scope.get()
        streams = {} if outer is None else outer.streams
        _scope.set(_Scope({**streams, self.device: self}, outer))
        return self

    def __exit__(self, *exception: object) -> None:
        scope = _scope.get()
        _scope.set(None if scope is None else scope.outer)

    def record(self) -> Event:
        """An event that completes when all work given to this stream so far is done."""
        device = self.device
        device.collect()
        with device.using("record", self):
            handle = device.can.streams.record(self.handle) if device.can.streams is not None else None
            device.counts.events += handle is not None
            return Event(self, handle, self.ticket, {**self.seen, self.id: self.ticket})

    def wait(self, event: Event) -> None:
        """Work given to this stream from now on starts after ``event``; returns at once."""
        device = self.device
        if event.device is not device:
            raise DeviceError(
                f"an event of {event.device.name} cannot order a stream of {device.name}; wait on the host with "
                f"event.synchronize()"
            )
        with device.using("wait", self):
            if device.can.streams is not None and self.seen.get(event.stream_id, 0) < event.ticket:
                device.can.streams.wait(self.handle, event.handle)
            self._merge(event.clock)

    def synchronize(self) -> None:
        """Wait for all work given to this stream so far; raises its first failure since the last call, naming it."""
        try:
            self.settle()
        finally:
            self.raise_failure()

    def query(self) -> bool:
        """Whether all work given to this stream so far is done; a failure is kept for the next wait."""
        with self.device.using("query", self):
            return self._poll(0.0)

    def call_host(self, function: Callable[[], None]) -> None:
        """Call ``function`` on a host thread, in stream order. It may submit work, but not wait for this stream.

        What it raises becomes the failure of this stream. Capability ``host_callbacks``.
        """
        device = self.device
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
                self.failure = self.failure or failure
            finally:
                _callback.running = False
                device.host_calls -= 1

        with device.using("call_host", self):
            self.ticket += 1
            device.host_calls += 1
            callbacks.call_host(self.handle, run)

    def close(self) -> None:
        """Wait for its work and destroy it; again does nothing. The default stream closes with its device."""
        if self.closed or self.handle is None:
            return
        self.settle()
        self.closed = True
        self._retire()
        self.device.collect()
        self.raise_failure()

    # --- for the runtime; the driver is held where said ---

    def raise_failure(self) -> None:
        """Raise the failure that was kept, once."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def settle(self) -> None:
        """Wait for all work, keeping a failure for ``raise_failure``. Other threads use the driver in between."""
        if self.closed:
            return
        start = time.monotonic()
        deadline = config.watchdog_s
        while True:
            with self.device.using("synchronize", self):
                if self._poll(_SLICE_S):
                    return
                if 0 < deadline < time.monotonic() - start:
                    late = self.device.gate.late("synchronize", deadline)
                    self.device.gate.lose(late)
                    raise late
            time.sleep(0.0001 if self.device.gate.waiters else 0)

    def passed(self, ticket: int) -> bool:
        """Whether the work with ``ticket`` has ended, as far as one look tells. The driver is held."""
        if self.completed >= ticket or self.closed:
            return True
        streams = self.device.can.streams
        if streams is None:
            return False
        if self._marker is None:
            self._marker = (streams.record(self.handle), self.ticket)
        handle, marked = self._marker
        if streams.query(handle):
            streams.destroy_event(handle)
            self._marker = None
            self.completed = max(self.completed, marked)
        return self.completed >= ticket

    def follow(self, other: Stream, ticket: int) -> None:
        """Order the future work of this stream after ``ticket`` of ``other``. The driver is held."""
        streams = self.device.can.streams
        if streams is None or self.seen.get(other.id, 0) >= ticket:
            return
        event = streams.record(other.handle)
        streams.wait(self.handle, event)
        streams.destroy_event(event)
        self._merge({**other.seen, other.id: other.ticket})

    def defer(self, action: Callable[[], object]) -> None:
        """Run ``action`` once what was submitted so far is done and the host can see its copies."""
        self.deferred.append((self.ticket, action))

    def _poll(self, timeout_s: float) -> bool:
        """Synchronise for at most ``timeout_s`` seconds; the driver is held. True: all work is done."""
        ticket = self.ticket
        try:
            self.device.driver.synchronize(self.handle, timeout_s)
        except DeviceTimeoutError:
            return False
        except Exception as error:
            self._keep(error)
        self.completed = max(self.completed, ticket)
        if self.deferred:
            ready, self.deferred = self.deferred, []
            for _, action in ready:
                action()
        return True

    def _keep(self, error: Exception) -> None:
        """Keep the first failure; raise what spoils the device."""
        gate = self.device.gate
        explained = gate.explain("synchronize", error)
        if gate.refusal is not None or not isinstance(explained, OarlockError):
            raise explained from (error if explained is not error else error.__cause__)
        if self.failure is None:
            self._describe(explained)
            self.failure = explained
        self.device.failed(explained)

    def _describe(self, failure: OarlockError) -> None:
        """Add the stream, and what the kernels named in the message compute."""
        text = str(failure)
        origins = self.device.origins
        named = [f"; {word} computes {origins[word]}" for word in dict.fromkeys(_WORD.findall(text)) if word in origins]
        where = "" if self.handle is None else f" (stream {self.id})"
        failure.args = (text + where + "".join(named), *failure.args[1:])

    def _merge(self, clock: dict[int, int]) -> None:
        for stream, ticket in clock.items():
            if self.seen.get(stream, 0) < ticket:
                self.seen[stream] = ticket

    def _retire(self) -> None:
        if self._marker is not None:
            self.device.dropped.items.append(Retired("event", self._marker[0], counted=False))
            self._marker = None
        if self.handle is not None:
            self.device.dropped.items.append(Retired("stream", self.handle))

    def __del__(self) -> None:
        if not self.closed:
            self._retire()

    def __repr__(self) -> str:
        return f"<Stream {self.device.name} {'default' if self.handle is None else self.id}>"


class Event:
    """A marker in a stream. Made by ``Stream.record``."""

    __slots__ = ("__weakref__", "_done", "_stream", "clock", "device", "handle", "ticket")

    def __init__(self, stream: Stream, handle: Handle | None, ticket: int, clock: dict[int, int]) -> None:
        self.device = stream.device
        self.handle = handle
        self.ticket = ticket
        self.clock = clock
        self._stream = stream
        self._done = False

    @property
    def stream_id(self) -> int:
        return self._stream.id

    def query(self) -> bool:
        """Whether the work before it is done. Work that failed is done too."""
        if self._done:
            return True
        stream = self._stream
        with self.device.using("query", stream):
            if self.device.can.streams is None:
                self._done = stream.completed >= self.ticket or stream._poll(0.0)
            else:
                self._done = self.device.can.streams.query(self.handle)
            if self._done:
                stream.completed = max(stream.completed, self.ticket)
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
        stream = self._stream
        if any(ticket <= self.ticket for ticket, _ in stream.deferred):
            stream.settle()
        else:
            stream.query()  # shows a failure, unless later work is still going on
        stream.raise_failure()

    def elapsed(self, end: Event) -> float:
        """Seconds of device time from this event to ``end``; both are waited for first."""
        timer = self.device.can.elapsed_time
        if timer is None:
            raise UnsupportedError(f"{self.device.name} does not measure time between events")
        if end.device is not self.device:
            raise DeviceError(f"events of {self.device.name} and {end.device.name} have no common clock")
        self.synchronize()
        end.synchronize()
        return self.device.gate.call("elapsed", timer.elapsed, self.handle, end.handle)

    def __del__(self) -> None:
        if self.handle is not None:
            self.device.dropped.items.append(Retired("event", self.handle))

    def __repr__(self) -> str:
        return f"<Event {self.device.name} stream {self._stream.id} ticket {self.ticket}>"


def check_stream(device: Device, stream: Stream | None) -> Stream:
    """``stream``, or the current one for None; raises for a closed stream or one of another device."""
    if stream is None:
        return current_stream(device)
    if stream.device is not device:
        raise DeviceError(f"a stream of {stream.device.name} cannot run work of {device.name}")
    if stream.closed:
        raise ClosedError(f"a closed stream of {device.name} is used")
    return stream
