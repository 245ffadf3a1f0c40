"""Faults of events and of the time between them."""

from __future__ import annotations

import time
from typing import Any

from oarlock.hal import Handle
from oarlock_saboteurs import BrokenDriver, saboteur
from oarlock_sim.stream import Event


@saboteur("event", "wait does nothing")
class WaitDoesNothing(BrokenDriver):
    def wait(self, stream: Handle | None, event: Handle) -> None:
        if not event.done:
            self.hit()
        self.lane(stream)


@saboteur("event", "wait holds kernels, and copies go on")
class WaitHoldsKernelsAlone(BrokenDriver):
    def submit(self, stream: Handle | None, name: str, *rest: Any, **more: Any) -> None:
        super().submit(stream, name, *rest, **more)
        if name.startswith("copy"):
            with self.state:
                queue = self.lane(stream).queue
                while len(queue) > 1 and queue[-1].name == name and queue[-2].name == "wait":
                    self.hit()
                    queue[-1], queue[-2] = queue[-2], queue[-1]
                    break


@saboteur("event", "the default stream does not wait for events")
class DefaultDoesNotWait(BrokenDriver):
    def wait(self, stream: Handle | None, event: Handle) -> None:
        if stream is None:
            self.hit()
            return
        super().wait(stream, event)


@saboteur("event", "wait blocks the host until the event is complete")
class WaitBlocks(BrokenDriver):
    def wait(self, stream: Handle | None, event: Handle) -> None:
        if not event.done:
            self.hit()
        while not event.done:
            time.sleep(0.001)
        super().wait(stream, event)


@saboteur("event", "query says that every event is complete")
class EventsCompleteEarly(BrokenDriver):
    def query(self, event: Handle) -> bool:
        if not event.done:
            self.hit()
        return True


@saboteur("event", "an event completes when the last command before it begins")
class EventsCompleteOneEarly(BrokenDriver):
    def record(self, stream: Handle | None) -> Handle:
        with self.state:
            event = super().record(stream)
            lane = self.lane(stream)
            if len(lane.queue) > 1:
                self.hit()
                lane.queue[-1], lane.queue[-2] = lane.queue[-2], lane.queue[-1]
            elif lane.running is not None:
                self.hit()
                event.done, event.time = True, time.perf_counter()
        return event


@saboteur("event", "every hundredth event never completes")
class EventsLost(BrokenDriver):
    number = 0

    def query(self, event: Handle) -> bool:
        if getattr(event, "number", 1) % 100 == 0:
            self.hit()
            return False
        return super().query(event.event)

    def record(self, stream: Handle | None) -> Handle:
        self.number += 1
        return _Numbered(super().record(stream), self.number)

    def wait(self, stream: Handle | None, event: Handle) -> None:
        super().wait(stream, event.event)

    def elapsed(self, start: Handle, end: Handle) -> float:
        return float(super().elapsed(start.event, end.event))


class _Numbered:
    """An event with its number."""

    def __init__(self, event: Event, number: int) -> None:
        self.event = event
        self.number = number

    @property
    def done(self) -> bool:
        return self.event.done


@saboteur("event", "the driver has 64 events: the one after takes the place of the oldest")
class EventsReused(BrokenDriver):
    def record(self, stream: Handle | None) -> Handle:
        ring: list[Event] = self.__dict__.setdefault("ring", [])
        if len(ring) < 64:
            ring.append(super().record(stream))
            return ring[-1]
        event = ring.pop(0)
        ring.append(event)
        self.hit()
        event.done = False
        self.submit(stream, "record", event=event)
        return event


@saboteur("event", "destroying an event ends the waits for it")
class DestroyEndsWaits(BrokenDriver):
    def destroy_event(self, event: Handle) -> None:
        if not event.done:
            self.hit()
            event.done = True


@saboteur("time", "elapsed gives the seconds the other way round")
class ElapsedNegative(BrokenDriver):
    def elapsed(self, start: Handle, end: Handle) -> float:
        self.hit()
        return -super().elapsed(start, end)


@saboteur("time", "elapsed gives milliseconds")
class ElapsedMilliseconds(BrokenDriver):
    def elapsed(self, start: Handle, end: Handle) -> float:
        self.hit()
        return 1000 * super().elapsed(start, end)


@saboteur("time", "an event's time is when the host recorded it")
class ElapsedOnHost(BrokenDriver):
    def record(self, stream: Handle | None) -> Handle:
        event = super().record(stream)
        self.__dict__.setdefault("times", {})[id(event)] = (event, time.perf_counter())
        return event

    def elapsed(self, start: Handle, end: Handle) -> float:
        self.hit()
        times = self.__dict__["times"]
        return float(times[id(end)][1] - times[id(start)][1])


@saboteur("time", "time is counted in steps of 50 ms")
class ElapsedCoarse(BrokenDriver):
    def elapsed(self, start: Handle, end: Handle) -> float:
        self.hit()
        return round(super().elapsed(start, end) / 0.05) * 0.05


@saboteur("time", "elapsed is a quarter short")
class ElapsedShort(BrokenDriver):
    def elapsed(self, start: Handle, end: Handle) -> float:
        self.hit()
        return 0.75 * super().elapsed(start, end)
