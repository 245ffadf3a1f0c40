"""Faults of streams: what is a stream, its order, waiting for it, and its callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from oarlock.errors import DeviceError, DeviceTimeoutError, OarlockError
from oarlock.hal import Binding, Driver, Handle
from oarlock_saboteurs import BrokenAdapter, BrokenDriver, saboteur
from oarlock_sim.faults import Plan
from oarlock_sim.stream import Lane


@saboteur("stream", "create_stream gives the same stream again")
class StreamsShared(BrokenDriver):
    shared: Handle = None

    def create_stream(self) -> Handle:
        if self.shared is None or self.shared not in self.lanes:
            self.shared = super().create_stream()
        else:
            self.hit()
        return self.shared


@saboteur("stream", "a created stream is the default one in disguise")
class StreamIsDefault(BrokenDriver):
    def create_stream(self) -> Handle:
        self.hit()
        with self.state:
            handle = (self.serial, next(self.numbers))
            self.lanes[handle] = self.lanes[None]
        return handle

    def destroy_stream(self, stream: Handle) -> None:
        with self.state:
            self.lane(stream)
            del self.lanes[stream]


@saboteur("stream", "all created streams are one lane, under different handles")
class StreamsAreOne(BrokenDriver):
    common: Lane | None = None

    def create_stream(self) -> Handle:
        if self.common is None:
            self.common = Lane()
        else:
            self.hit()
        with self.state:
            handle = (self.serial, next(self.numbers))
            self.lanes[handle] = self.common
        return handle

    def destroy_stream(self, stream: Handle) -> None:
        with self.state:
            self.lane(stream)
            del self.lanes[stream]


@saboteur("stream", "the device has 24 streams in its life, for destroyed ones do not come back")
class StreamsRunOut(BrokenDriver):
    made = 0

    def create_stream(self) -> Handle:
        self.made += 1
        if self.made > 24:
            self.hit()
            raise DeviceError("no stream is left")
        return super().create_stream()


@saboteur("stream", "synchronize returns at once")
class SynchronizeReturns(BrokenDriver):
    def synchronize(self, stream: Handle | None, timeout_s: float) -> None:
        if not self.lane(stream).idle:
            self.hit()


@saboteur("stream", "synchronize of a created stream waits for the default one")
class SynchronizeWaitsForDefault(BrokenDriver):
    def synchronize(self, stream: Handle | None, timeout_s: float) -> None:
        if not self.lane(stream).idle and stream is not None:
            self.hit()
        super().synchronize(None, timeout_s)


@saboteur("stream", "a synchronize that runs into its time-out drops the work that waits")
class TimeoutDropsWork(BrokenDriver):
    def synchronize(self, stream: Handle | None, timeout_s: float) -> None:
        try:
            super().synchronize(stream, timeout_s)
        except DeviceTimeoutError:
            with self.state:
                lane = self.lane(stream)
                if lane.queue:
                    self.hit()
                for command in lane.queue:
                    if command.event is not None:
                        command.event.done = True
                lane.queue.clear()
                lane.staged = lane.running.staged if lane.running is not None else 0
            raise


@saboteur("stream", "copies overtake the work before them in their stream")
class CopiesOvertake(BrokenAdapter):
    class Overtaking(BrokenDriver):
        def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
            if self.lane(stream).queue:
                self.hit()
            super().copy_in(stream, dst, dst_offset, src)

    driver = Overtaking

    def open(self, index: int) -> Driver:
        self.plan = Plan(unordered_copies=True)
        return super().open(index)


@saboteur("stream", "launches on a created stream go to the default one")
class LaunchIgnoresStream(BrokenDriver):
    def launch(
        self, stream: Handle | None, program: Handle, entry: str, grid: tuple[int, int, int],
        block: tuple[int, int, int], buffers: Sequence[Binding], scalars: bytes,
    ) -> None:  # fmt: skip
        if stream is not None:
            self.hit()
        super().launch(None, program, entry, grid, block, buffers, scalars)


@saboteur("stream", "copies to the host go through the default stream")
class CopyOutIgnoresStream(BrokenDriver):
    def copy_out(self, stream: Handle | None, dst: memoryview, src: Handle, src_offset: int) -> None:
        if stream is not None:
            self.hit()
        super().copy_out(None, dst, src, src_offset)


@saboteur("stream", "every seventh launch of a stream runs after the next command")
class LaunchesSwap(BrokenDriver):
    number = 0

    def submit(self, stream: Handle | None, name: str, *rest: Any, **more: Any) -> None:
        super().submit(stream, name, *rest, **more)
        if name.startswith("kernel"):
            self.number += 1
            with self.state:
                queue = self.lane(stream).queue
                if self.number % 7 == 0 and len(queue) > 1 and queue[-2].name.startswith("kernel"):
                    self.hit()
                    queue[-1], queue[-2] = queue[-2], queue[-1]


@saboteur("stream", "a host callback is called at once, by whoever gives it")
class CallbackEarly(BrokenDriver):
    def call_host(self, stream: Handle | None, function: Callable[[], None]) -> None:
        self.hit()
        function()


@saboteur("stream", "the second of two host callbacks that wait is not called")
class CallbackLost(BrokenDriver):
    def call_host(self, stream: Handle | None, function: Callable[[], None]) -> None:
        with self.state:
            waiting = [command for command in self.lane(stream).queue if command.name == "host callback"]
        if waiting:
            self.hit()
            function = _nothing
        super().call_host(stream, function)


@saboteur("stream", "the stream goes on while its host callback runs")
class CallbackNotWaitedFor(BrokenDriver):
    def call_host(self, stream: Handle | None, function: Callable[[], None]) -> None:
        import threading

        self.hit()
        super().call_host(stream, threading.Thread(target=function, daemon=True).start)


@saboteur("stream", "a host callback holds the driver, so that it cannot give work to another stream")
class CallbackHoldsDriver(BrokenDriver):
    inside = False

    def call_host(self, stream: Handle | None, function: Callable[[], None]) -> None:
        def run() -> None:
            self.inside = True
            try:
                function()
            finally:
                self.inside = False

        super().call_host(stream, run)

    def submit(self, stream: Handle | None, name: str, *rest: Any, **more: Any) -> None:
        if self.inside:
            self.hit()
            raise DeviceError("the driver is busy with a callback")
        super().submit(stream, name, *rest, **more)


@saboteur("failure", "synchronize swallows the failure of a command")
class FailureSwallowed(BrokenDriver):
    def synchronize(self, stream: Handle | None, timeout_s: float) -> None:
        try:
            super().synchronize(stream, timeout_s)
        except DeviceTimeoutError:
            raise
        except OarlockError:
            self.hit()


@saboteur("failure", "the failure of a created stream is told by the default one")
class FailureAtWrongStream(BrokenDriver):
    def synchronize(self, stream: Handle | None, timeout_s: float) -> None:
        try:
            super().synchronize(stream, timeout_s)
        except DeviceTimeoutError:
            raise
        except OarlockError as error:
            if stream is None:
                raise
            self.hit()
            self.lanes[None].failure = error


@saboteur("failure", "synchronize waits until the work is done, whatever its time-out says")
class TimeoutIgnored(BrokenDriver):
    def synchronize(self, stream: Handle | None, timeout_s: float) -> None:
        if not self.lane(stream).idle:
            self.hit()
        super().synchronize(stream, 3600.0)


def _nothing() -> None:
    time.sleep(0)
