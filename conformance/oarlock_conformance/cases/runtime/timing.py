"""Cases on time between events. Other work may take the processor away and times grow: the least of many counts."""

from __future__ import annotations

import time

from oarlock.runtime import Event, Stream
from oarlock_conformance.bench import Bench, expect
from oarlock_conformance.case import Failure
from oarlock_conformance.registry import runtime_case

_UNIT_S = 0.001
_TRIES = 40


def _spun(bench: Bench, stream: Stream, factor: float) -> float:
    """Seconds between two events around a kernel of ``factor`` milliseconds, measured once."""
    out = bench.filled(2)
    start = stream.record()
    bench.spin(out, 1, stream, factor * _UNIT_S)
    end = stream.record()
    end.synchronize()
    return start.elapsed(end)


@runtime_case(
    "event.elapsed/ratio", "elapsed is proportional to the work: twice the work takes twice the time", "streams",
    "elapsed_time",
)  # fmt: skip
def ratio(bench: Bench) -> None:
    stream = bench.device.create_stream()
    bench.device.synchronize()
    _spun(bench, stream, 1)
    once = twice = thrice = float("inf")
    for _ in range(_TRIES):
        once = min(once, _spun(bench, stream, 2))
        twice = min(twice, _spun(bench, stream, 4))
        thrice = min(thrice, _spun(bench, stream, 6))
        # what a launch itself costs is in each: the differences are the work
        first, second = twice - once, thrice - twice
        if first > 0 and 0.8 <= second / first <= 1.25:
            return
    raise Failure(f"kernels of 2, 4 and 6 ms took at least {1e3 * once:.2f}, {1e3 * twice:.2f}, {1e3 * thrice:.2f} ms")


@runtime_case(
    "event.elapsed/unit", "elapsed is in seconds: never more than the host saw, and not a small part of it", "streams",
    "elapsed_time",
)  # fmt: skip
def unit(bench: Bench) -> None:
    stream, out = bench.device.create_stream(), bench.filled(2)
    bench.spin(out, 1, stream, _UNIT_S)
    bench.device.synchronize()
    closest = 0.0
    for _ in range(_TRIES):
        began = time.perf_counter()
        start = stream.record()
        for _ in range(4):
            bench.spin(out, 1, stream, 6 * _UNIT_S)
        end = stream.record()
        end.synchronize()
        wall = time.perf_counter() - began
        seconds = start.elapsed(end)
        expect(0 < seconds <= 1.05 * wall + 0.0005, f"elapsed is {seconds:.6f} s, and the host saw {wall:.6f} s")
        closest = max(closest, seconds / wall)
        if closest >= 0.85:
            return
    raise Failure(f"elapsed of work that kept the device busy is at most {closest:.0%} of what the host saw")


@runtime_case(
    "event.elapsed/host_sleep", "what the host does after the events were given is not device time", "streams",
    "elapsed_time",
)  # fmt: skip
def host_sleep(bench: Bench) -> None:
    stream, out = bench.device.create_stream(), bench.filled(2)
    bench.spin(out, 1, stream, _UNIT_S)
    bench.device.synchronize()
    least = float("inf")
    for _ in range(5):
        start = stream.record()
        bench.spin(out, 1, stream, _UNIT_S)
        end = stream.record()
        time.sleep(0.1)
        end.synchronize()
        least = min(least, start.elapsed(end))
    expect(least < 0.08, f"elapsed is {least:.3f} s for a kernel of 1 ms: the host slept 0.1 s after both events")


@runtime_case(
    "event.elapsed/after_end", "elapsed may be asked once the end event was waited for, on its own", "streams",
    "elapsed_time",
)  # fmt: skip
def after_end(bench: Bench) -> None:
    stream, out = bench.device.create_stream(), bench.filled(2)
    bench.device.synchronize()
    for number in range(50):
        start = stream.record()
        if number % 2:
            bench.spin(out, number, stream, 0.0002)
        end = stream.record()
        end.synchronize()
        seconds = start.elapsed(end)
        expect(0 <= seconds < 30, f"round {number}: {seconds} s between two events")
        expect(start.elapsed(start) == 0, f"round {number}: {start.elapsed(start)} s from an event to itself")


@runtime_case(
    "event.elapsed/ordered", "times of one stream's events never go back, and parts add up to the whole", "streams",
    "elapsed_time",
)  # fmt: skip
def ordered(bench: Bench) -> None:
    stream, out = bench.device.create_stream(), bench.filled(2)
    bench.device.synchronize()
    events: list[Event] = []
    for number in range(500 if bench.options.quick else 10_000):
        if number % 50 == 0:
            bench.spin(out, number, stream, 0.0005)
        events.append(stream.record())
    events[-1].synchronize()
    times = [events[0].elapsed(event) for event in events]
    back = [number for number in range(1, len(times)) if times[number] < times[number - 1]]
    expect(not back, f"event {back[0] if back else 0} of {len(times)} comes before the one that was given before it")
    middle = len(events) // 2
    parts = events[0].elapsed(events[middle]) + events[middle].elapsed(events[-1])
    expect(abs(parts - times[-1]) <= 1e-4 + 0.01 * times[-1], f"parts are {parts:.6f} s, the whole {times[-1]:.6f} s")


@runtime_case(
    "event.elapsed/waited", "a stream that waited for an event begins after it, in device time too", "streams",
    "elapsed_time",
)  # fmt: skip
def waited(bench: Bench) -> None:
    device = bench.device
    first, second = device.create_stream(), device.create_stream()
    slow, copy = bench.filled(2), bench.filled(1)
    device.synchronize()
    for number in range(20 if bench.options.quick else 200):
        bench.spin(slow, number, first, 0.002)
        end = first.record()
        second.wait(end)
        device.copy(copy, 0, slow, 4, 4, second)
        after = second.record()
        second.synchronize()
        seconds = end.elapsed(after)
        expect(seconds >= 0, f"round {number}: a stream that waited ended {-seconds:.6f} s before what it waited for")
