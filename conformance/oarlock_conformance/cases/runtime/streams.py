"""Cases on streams, events, time and host callbacks, for devices that declare them."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np

from oarlock.errors import ClosedError, UnsupportedError
from oarlock_conformance.bench import SPIN_S, Bench, expect, expect_equal, raises
from oarlock_conformance.registry import runtime_case


@runtime_case(
    "stream.default/none", "without streams there is the one in-order stream; creating one raises UnsupportedError"
)
def default(bench: Bench) -> None:
    device = bench.device
    if device.can.streams is not None:
        stream = device.create_stream()
        stream.close()
    else:
        with raises(UnsupportedError, "create_stream", device.name):
            device.create_stream()
    event = device.current_stream.record()
    event.synchronize()
    expect(event.query(), "an event of the default stream is not complete after synchronize()")
    bench.works()


@runtime_case("stream.synchronize/done", "after synchronize all work given to the stream is done, 50 times")
def synchronize(bench: Bench) -> None:
    stream = bench.device.default_stream
    for number in range(1, 51):
        out = bench.filled(2)
        bench.spin(out, number, seconds=0.001)
        stream.synchronize()
        expect(stream.query(), "the stream is not idle after synchronize()")
        expect_equal(
            bench.download(out, 1, np.uint32, 4), np.array([number], np.uint32), "a kernel's result after waiting"
        )


@runtime_case("stream.create/distinct", "a new stream is distinct from every live one and from None", "streams")
def distinct(bench: Bench) -> None:
    device = bench.device
    streams = [device.create_stream() for _ in range(8)]
    handles = [stream.handle for stream in streams]
    expect(all(handle is not None for handle in handles), "create_stream gave the default stream")
    for i, first in enumerate(handles):
        expect(all(first is not other and first != other for other in handles[:i]), "two live streams have one handle")
    expect(len({stream.id for stream in streams}) == 8, "two live streams have one id")


@runtime_case("stream.create/many", "100 streams created, used and dropped leave nothing behind", "streams")
def many(bench: Bench) -> None:
    device = bench.device
    before = device.stats().streams
    x = bench.filled(8, 1)
    for _ in range(100):
        stream, y = device.create_stream(), bench.filled(8)
        stream.wait(device.current_stream.record())
        bench.increment(y, x, 8, 1, stream)
    device.synchronize()
    del stream
    gc.collect()
    after = device.stats().streams
    expect(after <= before, f"{after - before} streams are alive after 100 were dropped")


@runtime_case("stream.order/within", "a stream is in order: each of four streams runs its own chain", "streams")
def within(bench: Bench) -> None:
    device = bench.device
    streams = [device.create_stream() for _ in range(4)]
    pairs = [(bench.filled(64, number), bench.filled(64)) for number in range(4)]
    device.synchronize()
    for _ in range(40):
        for stream, (x, y) in zip(streams, pairs, strict=True):
            bench.increment(y, x, 64, 1, stream)
            bench.increment(x, y, 64, 1, stream)
    for number, (stream, (x, _)) in enumerate(zip(streams, pairs, strict=True)):
        wanted = np.full(64, number + 80, np.int32)
        expect_equal(bench.download(x, 64, stream=stream), wanted, f"stream {number} of four")


@runtime_case(
    "stream.close/busy", "closing a stream waits for its work; using it afterwards raises ClosedError", "streams"
)
def close_busy(bench: Bench) -> None:
    device = bench.device
    stream, out = device.create_stream(), bench.filled(2)
    device.synchronize()
    bench.spin(out, 77, stream)
    stream.close()
    stream.close()
    expect_equal(bench.download(out, 1, np.uint32, 4), np.array([77], np.uint32), "work of a closed stream")
    with raises(ClosedError, "a launch on a closed stream"):
        bench.spin(out, 1, stream)
    bench.works()


@runtime_case("stream.drop/busy", "a stream may be dropped while it works; its work is done", "streams")
def drop_busy(bench: Bench) -> None:
    device = bench.device
    out = bench.filled(2)
    device.synchronize()
    stream = device.create_stream()
    bench.spin(out, 78, stream)
    event = stream.record()
    del stream
    gc.collect()
    event.synchronize()
    expect_equal(bench.download(out, 1, np.uint32, 4), np.array([78], np.uint32), "work of a dropped stream")


@runtime_case(
    "event.wait/orders_kernels",
    "work given to a stream after wait starts after the event: 50 times, slow producer",
    "streams",
)
def orders_kernels(bench: Bench) -> None:
    device = bench.device
    first, second = device.create_stream(), device.create_stream()
    for number in range(50 * bench.rounds_factor):
        slow, copy = bench.filled(2), bench.filled(1)
        device.synchronize()
        bench.spin(slow, number + 1, first, 0.004)
        second.wait(first.record())
        bench.increment(copy, slow, 1, 0, second, x_at=4)
        found = bench.download(copy, 1, stream=second)
        expect_equal(found, np.array([number + 1], np.int32), f"round {number}: a consumer on another stream read")


@runtime_case("event.wait/orders_copies", "copies after wait start after the event: 50 times, slow producer", "streams")
def orders_copies(bench: Bench) -> None:
    device = bench.device
    first, second = device.create_stream(), device.create_stream()
    for number in range(50 * bench.rounds_factor):
        slow, target = bench.filled(2), bench.filled(1)
        device.synchronize()
        bench.spin(slow, number + 1, first, 0.004)
        second.wait(first.record())
        if number % 2:
            found = bench.download(slow, 1, offset=4, stream=second)
        else:
            device.copy(target, 0, slow, 4, 4, second)
            found = bench.download(target, 1, stream=second)
        expect_equal(found, np.array([number + 1], np.int32), f"round {number}: a copy on another stream read")


@runtime_case(
    "event.wait/orders_writers", "a writer that waits for a reader's event does not disturb it: 50 times", "streams"
)
def orders_writers(bench: Bench) -> None:
    device = bench.device
    first, second = device.create_stream(), device.create_stream()
    for number in range(50):
        busy, shared, seen = bench.filled(2), bench.filled(64, number), bench.filled(64)
        device.synchronize()
        bench.spin(busy, 1, first, 0.003)
        bench.increment(seen, shared, 64, 0, first)
        second.wait(first.record())
        device.copy_in(shared, 0, np.full(64, -5, np.int32), second)
        second.synchronize()
        wanted = np.full(64, number, np.int32)
        expect_equal(bench.download(seen, 64, stream=first), wanted, f"round {number}: a reader that was to come first")


@runtime_case("event.wait/default_stream", "events order the default stream too, both ways", "streams")
def default_stream(bench: Bench) -> None:
    device = bench.device
    side, main = device.create_stream(), device.default_stream
    for number in range(20):
        slow, copy = bench.filled(2), bench.filled(1)
        device.synchronize()
        one, two = (main, side) if number % 2 else (side, main)
        bench.spin(slow, number + 1, one, 0.004)
        two.wait(one.record())
        bench.increment(copy, slow, 1, 0, two, x_at=4)
        expect_equal(bench.download(copy, 1, stream=two), np.array([number + 1], np.int32), f"round {number}")


@runtime_case("event.wait/chain", "order passes through a chain of six streams", "streams")
def chain(bench: Bench) -> None:
    device = bench.device
    streams = [device.create_stream() for _ in range(6)]
    for number in range(10):
        slow = bench.filled(2)
        values = [bench.filled(1) for _ in streams]
        device.synchronize()
        bench.spin(slow, number, streams[0], 0.004)
        bench.increment(values[0], slow, 1, 1, streams[0], x_at=4)
        for k in range(1, 6):
            streams[k].wait(streams[k - 1].record())
            bench.increment(values[k], values[k - 1], 1, 1, streams[k])
        found = bench.download(values[5], 1, stream=streams[5])
        expect_equal(found, np.array([number + 6], np.int32), f"round {number}: the end of a chain of streams")


@runtime_case(
    "event.wait/held_producer",
    "with its producer held, a waiting stream does nothing; released, it goes on: 20 times",
    "streams",
    "host_callbacks",
)
def held_producer(bench: Bench) -> None:
    device = bench.device
    first, second = device.create_stream(), device.create_stream()
    for number in range(20):
        x, between, y = bench.filled(64, number), bench.filled(64), bench.filled(64)
        bench.increment(between, x, 64, 0)
        device.synchronize()
        gate = threading.Event()
        first.call_host(lambda gate=gate: _hold(gate))  # type: ignore[misc]
        bench.increment(between, x, 64, 1, first)
        second.wait(first.record())
        bench.increment(y, between, 64, 1, second)
        end = second.record()
        time.sleep(0.005)
        early = end.query()
        gate.set()
        end.synchronize()
        expect(not early, f"round {number}: a stream went on although the event it waits for was not reached")
        wanted = np.full(64, number + 2, np.int32)
        expect_equal(bench.download(y, 64, stream=second), wanted, f"round {number}: a consumer of a held producer")


def _hold(gate: threading.Event) -> None:
    gate.wait(30.0)


@runtime_case("event.wait/returns", "wait returns at once", "streams")
def wait_returns(bench: Bench) -> None:
    device = bench.device
    first, second = device.create_stream(), device.create_stream()
    out = bench.filled(2)
    bench.spin(out, 1, first, 0.001)
    device.synchronize()
    bench.spin(out, 1, first, 0.4)
    event = first.record()
    start = time.perf_counter()
    second.wait(event)
    taken = time.perf_counter() - start
    device.synchronize()
    expect(taken < 0.2, f"wait() took {taken:.3f} s for an event that was 0.4 s away")


@runtime_case("event.query/after_synchronize", "after event.synchronize() query is true, 2,000 times", "streams")
def query_after(bench: Bench) -> None:
    stream, out = bench.device.create_stream(), bench.filled(2)
    bench.device.synchronize()
    for number in range(2000):
        if number % 10 == 0:
            bench.spin(out, number, stream, 0.0002)
        event = stream.record()
        event.synchronize()
        expect(event.query(), f"event {number} is not complete after synchronize()")


@runtime_case("event.query/means_done", "when query is true the work before the event is done", "streams")
def means_done(bench: Bench) -> None:
    device = bench.device
    first, second = device.create_stream(), device.create_stream()
    for number in range(1, 31):
        out = bench.filled(2)
        device.synchronize()
        bench.spin(out, number, first, 0.003)
        event = first.record()
        while not event.query():
            time.sleep(0)
        found = bench.download(out, 1, np.uint32, 4, second)
        expect_equal(found, np.array([number], np.uint32), "data of a complete event, read on another stream")


@runtime_case("event.query/kept", "a complete event stays complete while its stream goes on", "streams")
def query_kept(bench: Bench) -> None:
    stream, out = bench.device.create_stream(), bench.filled(2)
    bench.device.synchronize()
    event = stream.record()
    event.synchronize()
    bench.spin(out, 1, stream)
    expect(event.query(), "a complete event is incomplete again after more work")
    other = bench.device.create_stream()
    other.wait(event)
    other.synchronize()


@runtime_case("event.record/many", "10,000 events recorded and dropped leave nothing behind", "streams")
def record_many(bench: Bench) -> None:
    stream = bench.device.create_stream()
    before = bench.device.stats().events
    for number in range(10_000):
        stream.record()
        if number % 1000 == 999:
            stream.synchronize()
    gc.collect()
    after = bench.device.stats().events
    expect(after <= before + 16, f"{after - before} events are alive after 10,000 were dropped")


@runtime_case("event.record/out_of_order", "events may be waited for in any order, from several threads", "streams")
def out_of_order(bench: Bench) -> None:
    device = bench.device
    streams = [device.create_stream() for _ in range(3)]
    events = [streams[i % 3].record() for i in range(600)]
    faults: list[str] = []

    def wait(share: int) -> None:
        try:
            for event in events[share::4][::-1]:
                event.synchronize()
                if not event.query():
                    faults.append("an event is incomplete after synchronize()")
        except Exception as error:
            faults.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=wait, args=(share,)) for share in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not faults, faults[0] if faults else "")


@runtime_case("event.destroy/pending", "a pending wait stays valid when its event is dropped", "streams")
def destroy_pending(bench: Bench) -> None:
    device = bench.device
    first, second = device.create_stream(), device.create_stream()
    for number in range(10):
        slow, copy = bench.filled(2), bench.filled(1)
        device.synchronize()
        bench.spin(slow, number + 1, first, 0.004)
        second.wait(first.record())
        gc.collect()
        device.stats()
        bench.increment(copy, slow, 1, 0, second, x_at=4)
        expect_equal(bench.download(copy, 1, stream=second), np.array([number + 1], np.int32), f"round {number}")


@runtime_case(
    "event.elapsed/plausible", "elapsed gives seconds of device time between two events", "streams", "elapsed_time"
)
def elapsed(bench: Bench) -> None:
    stream, out = bench.device.create_stream(), bench.filled(2)
    bench.spin(out, 1, stream, 0.001)
    bench.device.synchronize()
    for _ in range(3):
        began = time.perf_counter()
        start = stream.record()
        bench.spin(out, 1, stream, 2 * SPIN_S)
        end = stream.record()
        end.synchronize()
        wall = time.perf_counter() - began
        seconds = start.elapsed(end)
        expect(0 < seconds <= wall * 1.1 + 0.002, f"elapsed is {seconds:.4f} s, the host saw {wall:.4f} s")
        expect(seconds >= 0.2 * wall, f"elapsed is {seconds:.4f} s for work that took {wall:.4f} s")


@runtime_case(
    "event.elapsed/adjacent", "the time between adjacent events is never negative, 500 times", "streams", "elapsed_time"
)
def adjacent(bench: Bench) -> None:
    stream = bench.device.create_stream()
    events = [stream.record() for _ in range(501)]
    events[-1].synchronize()
    for number, (start, end) in enumerate(zip(events, events[1:], strict=False)):
        seconds = start.elapsed(end)
        expect(0 <= seconds < 60, f"{seconds} s between event {number} and the next")


@runtime_case("stream.call_host/order", "a host callback runs in stream order", "host_callbacks", "streams")
def call_host(bench: Bench) -> None:
    stream, out = bench.device.create_stream(), bench.filled(2)
    bench.device.synchronize()
    seen: list[str] = []
    bench.spin(out, 1, stream, 0.01)
    start = stream.record()
    stream.call_host(lambda: seen.append(f"done {start.query()}"))
    stream.call_host(lambda: seen.append("second"))
    stream.synchronize()
    expect(seen == ["done True", "second"], f"the callbacks saw {seen}")


@runtime_case(
    "stream.call_host/submits", "a host callback may give work to another stream", "host_callbacks", "streams"
)
def call_host_submits(bench: Bench) -> None:
    device = bench.device
    first, second = device.create_stream(), device.create_stream()
    x, y = bench.filled(8, 4), bench.filled(8)
    device.synchronize()
    bench.increment(y, x, 8, 1)
    device.synchronize()
    work = [(x, y, second)]

    def submit() -> None:
        to, source, lane = work.pop()  # an adapter may keep the function for a while, but not what it used
        bench.increment(to, source, 8, 10, lane)

    first.call_host(submit)
    first.synchronize()
    expect_equal(bench.download(x, 8, stream=second), np.full(8, 15, np.int32), "work given by a callback")


@runtime_case(
    "stream.current/context", "`with stream:` makes it current for this thread; a new thread has the default", "streams"
)
def current(bench: Bench) -> None:
    device = bench.device
    stream = device.create_stream()
    seen = []
    with stream:
        expect(device.current_stream is stream, "`with stream:` does not make it current")
        thread = threading.Thread(target=lambda: seen.append(device.current_stream is device.default_stream))
        thread.start()
        thread.join()
    expect(device.current_stream is device.default_stream, "the default stream is not current again")
    expect(seen == [True], "a new thread does not start with the default stream")
