"""Streams: each is a queue of commands and the thread that runs it, so that work overlaps as on a real device."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from oarlock.errors import (
    ClosedError,
    DeviceError,
    DeviceLostError,
    DeviceTimeoutError,
    LaunchError,
    UnsupportedError,
)
from oarlock.hal import DeviceInfo, Handle
from oarlock_sim import faults

__all__ = ["Command", "Event", "Lane", "Streams", "entry"]

_TICK_S = 0.002
_STAGED = 64 << 20
_CLOSE_S = 5.0
_serials = itertools.count()
_Method = TypeVar("_Method", bound=Callable[..., Any])


def entry(capability: str = "") -> Callable[[_Method], _Method]:
    """Mark a driver's method that the core calls: refused when the device is closed, lost or lacks ``capability``."""

    def mark(method: _Method) -> _Method:
        @functools.wraps(method)
        def checked(driver: Streams, *arguments: Any) -> Any:
            driver.check(method.__name__, capability)
            return method(driver, *arguments)

        return checked  # type: ignore[return-value]

    return mark


@dataclass(eq=False, slots=True)
class Event:
    """A point in a stream, with the failure that its stream had there and the time in seconds."""

    done: bool = False
    error: Exception | None = None
    time: float = 0.0


@dataclass(eq=False, slots=True)
class Command:
    """Something to do in stream order: may begin once ``ready()``, and completes ``event``."""

    name: str
    run: Callable[[], None] | None = None
    ready: Callable[[], bool] | None = None
    event: Event | None = None
    staged: int = 0


class Lane:
    """One stream's state. Guarded by the driver's lock."""

    def __init__(self) -> None:
        self.queue: deque[Command] = deque()
        self.running: Command | None = None
        self.failure: Exception | None = None
        self.staged = 0
        self.thread: threading.Thread | None = None
        self.stopped = False

    @property
    def idle(self) -> bool:
        return not self.queue and self.running is None

    def ready(self) -> bool:
        """Whether the next command may begin. A spoiled stream runs through; a test that raises spoils it."""
        if not self.queue:
            return False
        head = self.queue[0]
        try:
            return self.failure is not None or head.ready is None or head.ready()
        except Exception as error:
            self.failure = error
            return True


class Streams:
    """The stream part of the driver, and the state that all parts share."""

    def __init__(self, info: DeviceInfo, plan: faults.Plan | None) -> None:
        self.info = info
        self.limits = info.target.limits
        self.plan = plan
        self.state = threading.Condition()
        self.closed = False
        self.lost: str | None = None
        self.serial = next(_serials)
        self.numbers = itertools.count(1)
        self.lanes: dict[Handle | None, Lane] = {None: Lane()}

    def check(self, method: str, capability: str) -> None:
        """Raise when the device cannot be used, lacks ``capability``, or a fault plan says so."""
        if self.closed:
            raise ClosedError(f"{method}: the device is closed")
        if self.lost is not None and method != "reset":
            raise DeviceLostError(self.lost)
        if capability and capability not in self.info.capabilities:
            raise UnsupportedError(f"{method}: {self.info.name} does not declare the capability {capability}")
        faults.called(method, self.plan)

    def lane(self, stream: Handle | None) -> Lane:
        """The stream behind a handle."""
        try:
            return self.lanes[stream]
        except (KeyError, TypeError):
            raise DeviceError(f"stream {stream!r} is no live stream of {self.info.name}") from None

    def submit(
        self,
        stream: Handle | None,
        name: str,
        run: Callable[[], None] | None = None,
        ready: Callable[[], bool] | None = None,
        event: Event | None = None,
        staged: int = 0,
    ) -> None:
        """Queue a command; waits while more host data is staged than a stream may keep."""
        with self.state:
            lane = self.lane(stream)
            if staged and lane.staged:
                with self._pumped():
                    self.state.wait_for(lambda: lane.staged + staged <= _STAGED or lane.idle)
            lane.staged += staged
            command = Command(name, run, ready, event, staged)
            overtakes = name.startswith("copy") and all(waiting.name != "wait" for waiting in lane.queue)
            if overtakes and any(plan.unordered_copies for plan in faults.active(self.plan)):
                lane.queue.appendleft(command)
            else:
                lane.queue.append(command)
            if lane.thread is None:
                lane.thread = threading.Thread(target=self._work, args=(lane,), name="oarlock-sim", daemon=True)
                lane.thread.start()
            self.state.notify_all()

    @contextlib.contextmanager
    def _pumped(self) -> Iterator[None]:
        """While the host waits, streams that run in a drawn order go on."""
        order = faults.interleaving(self, self.plan)
        if order is None:
            yield
            return
        order.waiting += 1
        self.state.notify_all()
        try:
            yield
        finally:
            order.waiting -= 1

    def _work(self, lane: Lane) -> None:
        while self._step(lane):  # a call of its own, which keeps nothing of its command
            pass

    def _step(self, lane: Lane) -> bool:
        """Run the next command when it may begin; False when the stream has stopped."""
        with self.state:
            while not (lane.stopped or self._turn(lane)):
                self.state.wait(_TICK_S if lane.queue else None)
            if lane.stopped:
                return False
            command, spoiled = self._begin(lane)
        error = None if spoiled or command.run is None else _error_of(command.run)
        with self.state:
            self._end(lane, command, error)
        return True

    def _turn(self, lane: Lane) -> bool:
        if not lane.ready():
            return False
        order = faults.interleaving(self, self.plan)
        return order is None or order.may_run(lane, list(self.lanes.values()))

    def _begin(self, lane: Lane) -> tuple[Command, bool]:
        command = lane.running = lane.queue.popleft()
        order = faults.interleaving(self, self.plan)
        if order is not None:
            order.begin(lane)
        if any(plan.loses() for plan in faults.active(self.plan)):
            self.lost = f"injected fault: {self.info.name} was lost at command {command.name}"
        if self.lost is not None:
            lane.failure = lane.failure or DeviceLostError(self.lost)
        return command, lane.failure is not None

    def _end(self, lane: Lane, command: Command, error: Exception | None) -> None:
        lane.failure = lane.failure or error
        lane.running = None
        lane.staged -= command.staged
        if command.event is not None:
            command.event.error = lane.failure
            command.event.time = time.perf_counter()
            command.event.done = True
        order = faults.interleaving(self, self.plan)
        if order is not None:
            order.end()
        self.state.notify_all()

    @entry()
    def synchronize(self, stream: Handle | None, timeout_s: float) -> None:
        with self.state:
            lane = self.lane(stream)
            with self._pumped():
                done = self.state.wait_for(lambda: lane.idle or self.lost is not None, timeout_s)
            if self.lost is not None:
                raise DeviceLostError(self.lost)
            if not done:
                command = lane.running or lane.queue[0]
                raise DeviceTimeoutError(f"{command.name} and {len(lane.queue)} more not done after {timeout_s:g} s")
            failure, lane.failure = lane.failure, None
        if failure is not None:
            raise failure

    @entry("streams")
    def create_stream(self) -> Handle:
        with self.state:
            handle = (self.serial, next(self.numbers))
            self.lanes[handle] = Lane()
        return handle

    @entry("streams")
    def destroy_stream(self, stream: Handle) -> None:
        with self.state:
            if stream is None or not self.lane(stream).idle:
                raise DeviceError(f"stream {stream!r} still has work, or is the default one; synchronise it first")
            self.lanes.pop(stream).stopped = True
            self.state.notify_all()

    @entry("streams")
    def record(self, stream: Handle | None) -> Handle:
        event = Event()
        self.submit(stream, "record", event=event)
        return event

    @entry("streams")
    def wait(self, stream: Handle | None, event: Handle) -> None:
        def check() -> None:
            if event.error is not None:
                raise LaunchError(f"waited for a failed stream: {event.error}") from event.error

        self.submit(stream, "wait", check, lambda: bool(event.done))

    @entry("streams")
    def query(self, event: Handle) -> bool:
        with self.state:
            order = faults.interleaving(self, self.plan)
            if order is not None and not event.done:
                order.steps += 1
                self.state.notify_all()
            return bool(event.done)

    @entry("streams")
    def destroy_event(self, event: Handle) -> None:
        return None  # an event is the host's own object, which dies with its last reference

    @entry("elapsed_time")
    def elapsed(self, start: Handle, end: Handle) -> float:
        if not (start.done and end.done):
            raise DeviceError("elapsed: both events must be complete; synchronise first")
        return float(end.time - start.time)

    @entry("host_callbacks")
    def call_host(self, stream: Handle | None, function: Callable[[], None]) -> None:
        self.submit(stream, "host callback", function)

    def close_streams(self) -> bool:
        """Drop queued work and wait for what runs; False when something still runs, and uses its memory."""
        self.closed = True
        with self.state:
            lanes = list(self.lanes.values())
            for lane in lanes:
                lane.stopped = True
            self.state.notify_all()
        for lane in lanes:
            if lane.thread is not None and lane.thread is not threading.current_thread():
                lane.thread.join(_CLOSE_S)
        return all(lane.thread is None or not lane.thread.is_alive() for lane in lanes)

    def restart_streams(self) -> None:
        """Drop all streams with their work, and begin again with the default one."""
        self.close_streams()
        self.lanes = {None: Lane()}
        self.lost, self.closed = None, False


def _error_of(run: Callable[[], None]) -> Exception | None:
    try:
        run()
    except Exception as error:
        return error
    return None
