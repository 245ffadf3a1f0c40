"""Faults of streams, events and time."""

from __future__ import annotations

from oarlock.hal import Driver, Handle
from oarlock_saboteurs import BrokenAdapter, BrokenDriver, saboteur
from oarlock_sim.faults import Plan


@saboteur("event", "wait does nothing")
class WaitDoesNothing(BrokenDriver):
    def wait(self, stream: Handle | None, event: Handle) -> None:
        self.lane(stream)


@saboteur("event", "query says that every event is complete")
class EventsCompleteEarly(BrokenDriver):
    def query(self, event: Handle) -> bool:
        return True


@saboteur("time", "elapsed gives the seconds the other way round")
class ElapsedNegative(BrokenDriver):
    def elapsed(self, start: Handle, end: Handle) -> float:
        return -super().elapsed(start, end)


@saboteur("event", "wait blocks the host until the event is complete")
class WaitBlocks(BrokenDriver):
    def wait(self, stream: Handle | None, event: Handle) -> None:
        import time

        while not event.done:
            time.sleep(0.001)
        super().wait(stream, event)


@saboteur("stream", "create_stream gives the same stream again")
class StreamsShared(BrokenDriver):
    shared: Handle = None

    def create_stream(self) -> Handle:
        if self.shared not in self.lanes or self.shared is None:
            self.shared = super().create_stream()
        return self.shared


@saboteur("stream", "synchronize returns at once")
class SynchronizeReturns(BrokenDriver):
    def synchronize(self, stream: Handle | None, timeout_s: float) -> None:
        self.lane(stream)


@saboteur("stream", "copies overtake the work before them in their stream")
class CopiesOvertake(BrokenAdapter):
    def open(self, index: int) -> Driver:
        self.plan = Plan(unordered_copies=True)
        return super().open(index)
