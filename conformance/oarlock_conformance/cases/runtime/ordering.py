"""Cases on order across streams with a held or failing producer, and on which stream the driver is given."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np

from oarlock.errors import BoundsError, OarlockError
from oarlock.runtime import Buffer, Stream
from oarlock_conformance import kernels
from oarlock_conformance.bench import Bench, expect, expect_equal, raises
from oarlock_conformance.registry import runtime_case
from oarlock_conformance.witness import witnessed


class _Held:
    """A stream that is held until ``release()``: nothing given to it from now on begins before."""

    def __init__(self, stream: Stream) -> None:
        self._gate = threading.Event()
        stream.call_host(self._wait)

    def _wait(self) -> None:
        self._gate.wait(30.0)

    def release(self) -> None:
        self._gate.set()


@runtime_case("stream.current/driver", "work of `with stream:` reaches the driver on that stream's handle", "streams")
def current_driver(bench: Bench) -> None:
    device = bench.device
    stream = device.create_stream()
    x, y = bench.filled(16, 4), bench.filled(16)
    host = np.zeros(16, np.int32)
    bench.program(kernels.increment)
    device.synchronize()
    with witnessed(device) as witness, stream:
        bench.increment(y, x, 16, 1)
        device.copy_in(x, 0, host)
        device.copy(x, 0, y, 32, 32)
        device.copy_out(host, y, 0)
        stream.synchronize()
    wrong = {name for name, handle in witness.streams if handle is not stream.handle}
    expect(not wrong, f"{', '.join(sorted(wrong))} went to another stream than the current one")
    expect(len(witness.streams) >= 4, "the driver was given less than what was submitted")
    expect_equal(host, np.full(16, 5, np.int32), "a kernel's result read on the current stream")


@runtime_case(
    "event.wait/held_copies", "with its producer held, copies of a waiting stream do nothing; released, they go on",
    "streams", "host_callbacks",
)  # fmt: skip
def held_copies(bench: Bench) -> None:
    device = bench.device
    first, second = device.create_stream(), device.create_stream()
    for number in range(10 * bench.rounds_factor):
        source, target = bench.filled(64, number), bench.filled(64, -1)
        fresh = bench.filled(64, number + 1000)
        device.synchronize()
        held = _Held(first)
        try:
            device.copy(source, 0, fresh, 0, 256, first)
            second.wait(first.record())
            device.copy(target, 0, source, 0, 256, second)
            end = second.record()
            time.sleep(0.003)
            early = end.query()
        finally:
            held.release()
        end.synchronize()
        expect(not early, f"round {number}: a copy went on although its stream waits for one that is held")
        wanted = np.full(64, number + 1000, np.int32)
        expect_equal(bench.download(target, 64, stream=second), wanted, f"round {number}: a copy after a held producer")


@runtime_case(
    "event.wait/held_default", "the default stream waits for a held one, and a created one for the default stream",
    "streams", "host_callbacks",
)  # fmt: skip
def held_default(bench: Bench) -> None:
    device = bench.device
    side, main = device.create_stream(), device.default_stream
    for number in range(10):
        x, between, y = bench.filled(8, number), bench.filled(8), bench.filled(8)
        bench.increment(between, x, 8, 0)
        device.synchronize()
        one, two = (side, main) if number % 2 else (main, side)
        held = _Held(one)
        try:
            bench.increment(between, x, 8, 5, one)
            two.wait(one.record())
            bench.increment(y, between, 8, 1, two)
            end = two.record()
            time.sleep(0.003)
            early = end.query()
        finally:
            held.release()
        device.synchronize()
        expect(not early, f"round {number}: a stream went on although the one that it waits for was held")
        expect_equal(bench.download(y, 8), np.full(8, number + 6, np.int32), f"round {number}: behind a held stream")


@runtime_case(
    "event.query/held", "an event behind held work is not complete, and a stream with such work is not idle",
    "streams", "host_callbacks",
)  # fmt: skip
def held_query(bench: Bench) -> None:
    device = bench.device
    stream = device.create_stream()
    out = bench.filled(2)
    device.synchronize()
    for number in range(10):
        before = stream.record()
        before.synchronize()
        held = _Held(stream)
        try:
            bench.spin(out, number, stream, 0.0002)
            event = stream.record()
            looks = [event.query() or stream.query() for _ in range(5)]
            kept = before.query()
        finally:
            held.release()
        event.synchronize()
        expect(not any(looks), f"round {number}: an event behind held work is complete")
        expect(kept, f"round {number}: a complete event is incomplete while its stream is held")


@runtime_case(
    "stream.call_host/held", "work behind a host callback starts when it has returned; work before it is done by then",
    "streams", "host_callbacks",
)  # fmt: skip
def callback_order(bench: Bench) -> None:
    device = bench.device
    stream, other = device.create_stream(), device.create_stream()
    for number in range(10):
        x, y = bench.filled(16, number), bench.filled(16)
        seen: list[int] = []
        device.synchronize()
        bench.increment(y, x, 16, 1, stream)

        def look(y: Buffer = y, seen: list[int] = seen) -> None:
            host = np.zeros(1, np.int32)
            device.copy_out(host, y, 0, other)
            other.synchronize()
            time.sleep(0.002)
            seen.append(int(host[0]))

        stream.call_host(look)
        bench.increment(y, x, 16, 100, stream)
        stream.synchronize()
        expect(seen == [number + 1], f"round {number}: a callback between two kernels saw {seen}, not {number + 1}")
        expect_equal(bench.download(y, 16, stream=stream), np.full(16, number + 100, np.int32), "after the callback")


@runtime_case(
    "stream.call_host/raises", "what a host callback raises is told by the next wait of its stream, once",
    "host_callbacks",
)  # fmt: skip
def callback_raises(bench: Bench) -> None:
    device = bench.device

    def fail() -> None:
        raise ValueError("the callback's reason")

    device.default_stream.call_host(fail)
    with raises(OarlockError, "the wait after a callback that raises", device.name, "the callback's reason"):
        device.synchronize()
    device.synchronize()
    bench.works()


def _failing(bench: Bench, stream: Stream) -> None:
    """Give ``stream`` a command that fails, straight to the driver: a host function that raises."""

    def fail() -> None:
        raise RuntimeError("failed on purpose")

    device = bench.device
    assert device.can.host_callbacks is not None  # or the case would not apply
    with device.using("call_host"):
        stream.lane.ticket += 1
        device.can.host_callbacks.call_host(stream.handle, fail)


@runtime_case(
    "failure.command/told", "synchronize raises the first failure of a command since the last call, once",
    "host_callbacks",
)  # fmt: skip
def command_told(bench: Bench) -> None:
    device = bench.device
    for _ in range(3):
        _failing(bench, device.default_stream)
        with raises(OarlockError, "the wait after a command that failed", device.name, "failed on purpose"):
            device.synchronize()
        if device.info.failure_scope == "device":
            bench.forget()
            return
        device.synchronize()
        bench.works()


@runtime_case(
    "failure.command/other_streams", "failure_scope stream: the failure is its own stream's, and the others go on",
    "host_callbacks", "streams", "scope stream",
)  # fmt: skip
def command_others(bench: Bench) -> None:
    device = bench.device
    bad, good = device.create_stream(), device.create_stream()
    data = bench.ints(32)
    x, y = bench.upload(data), bench.filled(32)
    device.synchronize()
    _failing(bench, bad)
    bench.increment(y, x, 32, 3, good)
    expect_equal(bench.download(y, 32, stream=good), data + np.int32(3), "a stream beside one that failed")
    device.default_stream.synchronize()
    with raises(OarlockError, "the wait for the stream that failed", "failed on purpose"):
        bad.synchronize()
    bad.synchronize()
    bench.increment(y, x, 32, 4, bad)
    expect_equal(bench.download(y, 32, stream=bad), data + np.int32(4), "a stream that was told of its failure")
    bench.works()


@runtime_case(
    "failure.command/waiters", "a failed command before an event is a failure of the streams that wait for it, at once",
    "host_callbacks", "streams", "scope stream",
)  # fmt: skip
def command_waiters(bench: Bench) -> None:
    device = bench.device
    bad, waiter = device.create_stream(), device.create_stream()
    x, y = bench.filled(8, 1), bench.filled(8)
    device.synchronize()
    _failing(bench, bad)
    event = bad.record()
    waiter.wait(event)
    bench.increment(y, x, 8, 1, waiter)
    start = time.monotonic()
    with raises(OarlockError, "the wait for a stream that waited for a failed one", device.name):
        waiter.synchronize()
    expect(time.monotonic() - start < 5.0, "the failure reached the waiting stream after more than 5 s")
    expect(event.query(), "the event behind a failed command never completes")
    with raises(OarlockError, "the wait for the stream that failed", "failed on purpose"):
        bad.synchronize()
    bench.works()


@runtime_case(
    "failure.command/refused", "a launch that is refused leaves its stream and those that wait for it in order",
    "streams",
)  # fmt: skip
def command_refused(bench: Bench) -> None:
    device = bench.device
    first, second = device.create_stream(), device.create_stream()
    x, y = bench.filled(8, 1), bench.filled(8)
    device.synchronize()
    with raises(BoundsError, "a launch of fewer buffers than its kernel has"):
        device.launch(bench.program(kernels.increment), "increment", (8, 1, 1), [(x, 0)], bytes(12), first)
    second.wait(first.record())
    bench.increment(y, x, 8, 5, second)
    start = time.monotonic()
    expect_equal(bench.download(y, 8, stream=second), np.full(8, 6, np.int32), "a stream behind a refused launch")
    expect(time.monotonic() - start < 5.0, "a stream that waits for one with a refused launch took more than 5 s")


@runtime_case(
    "memory.copy_in/used_at_once", "a copy in is seen by the kernel given right after it: 40 times, without waiting"
)
def used_at_once(bench: Bench) -> None:
    device = bench.device
    outs = []
    x = device.allocate(400)
    for number in range(40):
        out = bench.filled(100)
        device.copy_in(x, 0, np.arange(number, number + 100, dtype=np.int32))
        bench.increment(out, x, 100, 1)
        outs.append(out)
    for number, out in enumerate(outs):
        wanted = np.arange(number + 1, number + 101, dtype=np.int32)
        expect_equal(bench.download(out, 100), wanted, f"round {number}: a kernel right after a copy in")


@runtime_case(
    "memory.reuse/across_streams",
    "memory that is dropped while another stream reads it is not written before that has ended: 20 times",
    "streams",
)
def reuse(bench: Bench) -> None:
    device = bench.device
    main, side = device.default_stream, device.create_stream()
    count = 16_384
    zeros = bench.filled(count)
    for number in range(20 * bench.rounds_factor):
        a, busy, seen = device.allocate(4 * count), bench.filled(2), bench.filled(count)
        bench.increment(a, zeros, count, number + 1, main)
        side.wait(main.record())
        bench.spin(busy, 1, side, 0.002)
        bench.increment(seen, a, count, 0, side)
        del a
        gc.collect(0)
        b = device.allocate(4 * count)
        bench.increment(b, zeros, count, -7, main)
        wanted = np.full(count, number + 1, np.int32)
        expect_equal(bench.download(seen, count, stream=side), wanted, f"round {number}: a reader of dropped memory")
        expect_equal(bench.download(b, count), np.full(count, -7, np.int32), f"round {number}: memory used again")


@runtime_case(
    "memory.reuse/held_reader", "memory that a held stream will read is not used again before: 10 times",
    "streams", "host_callbacks",
)  # fmt: skip
def held_reader(bench: Bench) -> None:
    device = bench.device
    side = device.create_stream()
    count = 1024
    zeros = bench.filled(count)
    for number in range(10):
        a, seen = bench.filled(count, number), bench.filled(count)
        device.synchronize()
        held = _Held(side)
        try:
            bench.increment(seen, a, count, 0, side)
            del a
            others = [device.allocate(4 * count) for _ in range(4)]
            for other in others:
                bench.increment(other, zeros, count, -9)
            end = device.default_stream.record()
            deadline = time.monotonic() + 0.005
            while not end.query() and time.monotonic() < deadline:
                time.sleep(0.0005)
        finally:
            held.release()
        wanted = np.full(count, number, np.int32)
        expect_equal(bench.download(seen, count, stream=side), wanted, f"round {number}: a held reader")


@runtime_case("event.record/outlives", "an event outlives its stream: complete, and to be waited for", "streams")
def outlives(bench: Bench) -> None:
    device = bench.device
    x, y = bench.filled(8, 3), bench.filled(8)
    device.synchronize()
    for number in range(10):
        stream, other = device.create_stream(), device.create_stream()
        bench.increment(y, x, 8, number, stream)
        event = stream.record()
        stream.close()
        other.wait(event)
        expect(event.query(), f"round {number}: an event is incomplete after its stream was closed")
        event.synchronize()
        found = bench.download(y, 8, stream=other)
        expect_equal(found, np.full(8, number + 3, np.int32), f"round {number}: behind an event of a closed stream")


@runtime_case("event.record/bounded", "dropped events are destroyed while more are recorded: few are alive", "streams")
def bounded(bench: Bench) -> None:
    stream = bench.device.create_stream()
    most = 0
    with witnessed(bench.device) as witness:
        for number in range(3000 if bench.options.quick else 100_000):
            stream.record()
            if number % 100 == 99:
                stream.synchronize()
                most = max(most, witness.live.count("event"))
    expect(most <= 300, f"{most} events were alive at once although each was dropped at once")


@runtime_case("event.record/threads", "8 threads record and wait for events of their own and each other's", "streams")
def record_threads(bench: Bench) -> None:
    device = bench.device
    streams = [device.create_stream() for _ in range(4)]
    faults: list[str] = []
    rounds = 100 if bench.options.quick else 1250

    def work(number: int) -> None:
        try:
            for round_ in range(rounds):
                one, two = streams[number % 4], streams[(number + round_) % 4]
                event = one.record()
                two.wait(event)
                if round_ % 10 == 0:
                    two.record().synchronize()
                    event.synchronize()
                    if not event.query():
                        faults.append("an event is incomplete after it was waited for")
        except Exception as error:
            faults.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not faults, faults[0] if faults else "")
