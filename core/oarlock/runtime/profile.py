"""Profiling: when each launch of a plan was given to its device, and when the device worked at it.

While a ``Profile`` is on, plans are submitted launch by launch. The device's time comes from events around each launch
where the device measures time between events; otherwise the host waits after each launch, and its own clock serves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from oarlock.runtime.lane import Lane
from oarlock.runtime.stream import Event, Stream, current_stream

__all__ = ["LaunchSpan", "Profile", "active", "profiled"]


@dataclass(frozen=True, slots=True)
class LaunchSpan:
    """One launch: ``name`` says which operators it computes, ``kernel`` is its entry point.

    Times are seconds of ``time.perf_counter``: the submission in thread ``thread`` of the host, and the work on stream
    ``stream`` of ``device``. ``measured`` says whose clock the work's times are of: ``device`` or ``host``.
    """

    name: str
    kernel: str
    device: str
    stream: int
    thread: int
    submitted_s: float
    submission_s: float
    start_s: float
    seconds: float
    measured: str


@dataclass(frozen=True, slots=True)
class _Pending:
    """A launch whose events have not been looked at."""

    name: str
    kernel: str
    stream: Stream
    thread: int
    submitted_s: float
    submission_s: float
    before: Event
    after: Event


class Profile:
    """What was launched while it was on, by any thread."""

    def __init__(self) -> None:
        self._spans: list[LaunchSpan] = []
        self._pending: list[_Pending] = []
        self._origins: dict[int, tuple[Event, float]] = {}
        """Of each stream an event, and when it was reached."""

    def launch(self, lane: Lane, name: str, kernel: str, submit: Callable[[], None]) -> None:
        """Submit a launch to the current stream, whose lane is ``lane``, and note its times."""
        stream = current_stream(lane.device)
        if stream.device.can.elapsed_time is None:
            self._by_host(stream, name, kernel, submit)
            return
        if stream.id not in self._origins:
            stream.synchronize()
            origin = stream.record()
            origin.synchronize()
            self._origins[stream.id] = (origin, time.perf_counter())
        before = stream.record()
        start = time.perf_counter()
        submit()
        spent = time.perf_counter() - start
        after = stream.record()
        self._pending.append(_Pending(name, kernel, stream, threading.get_ident(), start, spent, before, after))

    def _by_host(self, stream: Stream, name: str, kernel: str, submit: Callable[[], None]) -> None:
        stream.synchronize()
        start = time.perf_counter()
        submit()
        submitted = time.perf_counter()
        stream.synchronize()
        end = time.perf_counter()
        self._spans.append(
            LaunchSpan(
                name, kernel, stream.device.name, stream.id, threading.get_ident(), start, submitted - start, start,
                end - start, "host",
            )
        )  # fmt: skip

    def spans(self) -> list[LaunchSpan]:
        """Every launch so far, in the order of submission; waits for those that have not ended."""
        pending, self._pending = self._pending, []
        for item in pending:
            origin, reached = self._origins[item.stream.id]
            start = reached + origin.elapsed(item.before)
            seconds = item.before.elapsed(item.after)
            self._spans.append(
                LaunchSpan(
                    item.name, item.kernel, item.stream.device.name, item.stream.id, item.thread, item.submitted_s,
                    item.submission_s, start, seconds, "device",
                )
            )  # fmt: skip
        self._spans.sort(key=lambda span: span.submitted_s)
        return list(self._spans)


class _Switch:
    __slots__ = ("profile",)

    def __init__(self) -> None:
        self.profile: Profile | None = None


switch = _Switch()
"""What is on now."""
_guard = threading.Lock()


def active() -> Profile | None:
    """The profile that is on in this process."""
    return switch.profile


@contextmanager
def profiled() -> Iterator[Profile]:
    """Profile what plans launch inside the ``with``, in every thread. One inside another takes over until it ends."""
    with _guard:
        before, profile = switch.profile, Profile()
        switch.profile = profile
    try:
        yield profile
    finally:
        with _guard:
            switch.profile = before
