"""Streams and events: order, reuse across streams, failures, the current stream, host callbacks."""

from __future__ import annotations

import gc
import threading
import time

import pytest

from oarlock.config import config
from oarlock.errors import ClosedError, DeviceError, DeviceLostError, LaunchError, UnsupportedError
from oarlock.runtime import open_device


def read(device, buffer, stream=None):
    out = bytearray(buffer.nbytes)
    device.copy_out(out, buffer, 0, stream)
    device.synchronize(stream)
    return bytes(out)


def test_device_without_streams_refuses_to_create_one(make):
    with pytest.raises(UnsupportedError, match="fake:0 has no streams"):
        make().create_stream()


def test_created_streams_are_distinct(make):
    device = make(threads=True)
    first, second = device.create_stream(), device.create_stream()
    assert len({first.handle, second.handle, None}) == 3
    assert device.stats().streams == 2


def test_current_stream_receives_the_work(make, fake):
    device = make(threads=True)
    stream = device.create_stream()
    release = fake.LIVE[-1].hold(stream.handle)
    buffer = device.allocate(4)
    with stream:
        assert device.current_stream is stream
        device.copy_in(buffer, 0, b"abcd")
    assert device.current_stream is device.default_stream
    assert not stream.query()
    assert device.default_stream.query()
    release.set()
    stream.synchronize()
    assert stream.query()


def test_current_streams_nest_and_are_per_device(make):
    device = make(threads=True, devices=2)
    other = open_device("fake:1")
    first, second, third = device.create_stream(), device.create_stream(), other.create_stream()
    with first, third:
        with second:
            assert (device.current_stream, other.current_stream) == (second, third)
        assert (device.current_stream, other.current_stream) == (first, third)
    assert other.current_stream is other.default_stream


def test_new_thread_starts_with_the_default_stream(make):
    device = make(threads=True)
    seen = []
    with device.create_stream():
        thread = threading.Thread(target=lambda: seen.append(device.current_stream))
        thread.start()
        thread.join()
    assert seen == [device.default_stream]


def test_stream_of_another_device_is_refused(make):
    device = make(threads=True, devices=2)
    stream = open_device("fake:1").create_stream()
    with pytest.raises(DeviceError, match="a stream of fake:1 cannot run work of fake:0"):
        device.copy_in(device.allocate(4), 0, b"abcd", stream)


def test_wait_orders_two_streams(make, fake):
    device = make(threads=True)
    producer, consumer = device.create_stream(), device.create_stream()
    source, target = device.allocate(4), device.allocate(4)
    release = fake.LIVE[-1].hold(producer.handle)
    device.copy_in(source, 0, b"data", producer)
    consumer.wait(producer.record())
    device.copy(target, 0, source, 0, 4, consumer)
    time.sleep(0.02)
    assert not consumer.query()
    release.set()
    assert read(device, target, consumer) == b"data"


def test_event_of_another_device_is_refused(make):
    device = make(threads=True, devices=2)
    event = open_device("fake:1").default_stream.record()
    with pytest.raises(DeviceError, match=r"an event of fake:1.*event\.synchronize\(\)"):
        device.default_stream.wait(event)


@pytest.mark.parametrize("threads", [True, False])
def test_event_is_complete_after_synchronize(make, threads):
    device = make(threads=threads)
    buffer = device.allocate(4)
    for _ in range(100):
        device.copy_in(buffer, 0, b"abcd")
        event = device.default_stream.record()
        event.synchronize()
        assert event.query()


def test_events_of_a_held_stream_are_not_complete(make, fake):
    device = make(threads=True)
    before = device.default_stream.record()
    release = fake.LIVE[-1].hold()
    device.copy_in(device.allocate(4), 0, b"abcd")
    after = device.default_stream.record()
    before.synchronize()
    assert before.query()
    assert not after.query()
    release.set()
    after.synchronize()


def test_dropped_events_and_streams_leave_no_handles(make, fake):
    device = make(threads=True)
    for _ in range(300):
        device.default_stream.wait(device.create_stream().record())
    gc.collect()
    device.synchronize()
    stats = device.stats()
    assert (stats.events, stats.streams) == (0, 0)
    assert len(fake.LIVE[-1].streams) == 1


def test_stream_dropped_with_work_in_flight_finishes_it(make, fake):
    device = make(threads=True)
    buffer = device.allocate(4)
    stream = device.create_stream()
    release = fake.LIVE[-1].hold(stream.handle)
    device.copy_in(buffer, 0, b"late", stream)
    event = stream.record()
    del stream
    device.default_stream.wait(event)
    release.set()
    assert read(device, buffer) == b"late"


def test_closed_stream_raises_and_closing_twice_is_harmless(make):
    device = make(threads=True)
    stream = device.create_stream()
    stream.close()
    stream.close()
    with pytest.raises(ClosedError):
        device.copy_in(device.allocate(4), 0, b"abcd", stream)
    with pytest.raises(ClosedError):
        stream.record()


def test_memory_freed_on_a_held_stream_is_not_given_to_another_unordered(make, fake):
    device = make(threads=True)
    driver = fake.LIVE[-1]
    slow, fast = device.create_stream(), device.create_stream()
    buffer = device.allocate(1000, stream=slow)
    memory = buffer.allocation.handle
    release = driver.hold(slow.handle)
    device.copy_in(buffer, 0, b"x" * 1000, slow)
    buffer.free()
    with fast:
        other = device.allocate(1000)
        assert other.allocation.handle is not memory
        device.copy_in(other, 0, b"y" * 1000)
        assert read(device, other, fast) == b"y" * 1000
    with slow:
        assert device.allocate(1000).allocation.handle is memory, "its own stream reuses it at once"
    release.set()
    device.synchronize()
    with fast:
        third = device.allocate(1000)
        assert third.allocation.handle is memory, "after its ticket any stream may"


def test_memory_used_first_by_another_stream_than_asked_for_waits_for_its_earlier_life(make, fake):
    device = make(threads=True)
    driver = fake.LIVE[-1]
    slow, fast = device.create_stream(), device.create_stream()
    buffer = device.allocate(1000, stream=slow)
    memory = buffer.allocation.handle
    release = driver.hold(slow.handle)
    device.copy_in(buffer, 0, b"x" * 1000, slow)
    buffer.free()
    reused = device.allocate(1000, stream=slow)
    assert reused.allocation.handle is memory
    device.copy_in(reused, 0, b"y" * 1000, fast)
    time.sleep(0.02)
    assert not fast.query(), "fast must wait for what slow still does to this memory"
    release.set()
    assert read(device, reused, fast) == b"y" * 1000


def test_memory_used_on_two_streams_waits_for_both(make, fake):
    device = make(threads=True)
    driver = fake.LIVE[-1]
    first, second, third = (device.create_stream() for _ in range(3))
    buffer = device.allocate(1000, stream=first)
    memory = buffer.allocation.handle
    releases = [driver.hold(first.handle), driver.hold(second.handle)]
    device.copy_in(buffer, 0, b"1" * 1000, first)
    device.copy_in(buffer, 0, b"2" * 1000, second)
    buffer.free()
    for release in releases:
        assert device.allocate(1000, stream=third).allocation.handle is not memory
        release.set()
        device.synchronize(first if release is releases[0] else second)
    held = device.allocate(1000, stream=third)
    more = device.allocate(1000, stream=third)
    assert memory in (held.allocation.handle, more.allocation.handle)


def test_order_that_is_already_implied_is_not_waited_for_again(make, fake):
    device = make(threads=True)
    driver = fake.LIVE[-1]
    producer, consumer = device.create_stream(), device.create_stream()
    buffer = device.allocate(1000, stream=producer)
    memory = buffer.allocation.handle
    release = driver.hold(producer.handle)
    device.copy_in(buffer, 0, b"x" * 1000, producer)
    consumer.wait(producer.record())
    buffer.free()
    assert device.allocate(1000, stream=consumer).allocation.handle is memory
    assert driver.count("wait") == 1
    release.set()


def test_out_of_memory_waits_for_memory_held_by_streams(make, fake):
    device = make(threads=True, memory=1 << 20)
    slow = device.create_stream()
    buffer = device.allocate(800 << 10, stream=slow)
    release = fake.LIVE[-1].hold(slow.handle)
    device.copy_in(buffer, 0, bytes(800 << 10), slow)
    buffer.free()
    threading.Timer(0.05, release.set).start()
    assert device.allocate(900 << 10).nbytes == 900 << 10


def test_first_failure_is_raised_once_and_names_device_and_kernel(make, fake):
    device = make(threads=True)
    program = fake.load(device, fake.signature("fail"), fake.signature("nothing"))
    device.launch(program, "fail", (1, 1, 1), [])
    device.launch(program, "nothing", (1, 1, 1), [])
    with pytest.raises(LaunchError, match="^fake:0: kernel fail: injected"):
        device.synchronize()
    device.synchronize()
    assert device.usable


def test_failure_says_what_the_kernel_computes_and_on_which_stream(make, fake):
    device = make(threads=True)
    device.origins["fail"] = "softmax, exp (train.py:12)"
    program = fake.load(device, fake.signature("fail"))
    stream = device.create_stream()
    device.launch(program, "fail", (1, 1, 1), [], stream=stream)
    expected = rf"^fake:0: kernel fail: injected \(stream {stream.id}\); fail computes softmax, exp \(train.py:12\)$"
    with pytest.raises(LaunchError, match=expected):
        stream.synchronize()


def test_failure_stays_with_its_stream(make, fake):
    device = make(threads=True)
    program = fake.load(device, fake.signature("fail"))
    bad, good = device.create_stream(), device.create_stream()
    device.launch(program, "fail", (1, 1, 1), [], stream=bad)
    good.synchronize()
    with pytest.raises(LaunchError):
        bad.synchronize()


def test_failure_seen_while_evicting_is_raised_by_the_next_wait(make, fake):
    device = make(threads=True, memory=1 << 20)
    program = fake.load(device, fake.signature("fail"))
    device.allocate(800 << 10).free()
    device.launch(program, "fail", (1, 1, 1), [])
    device.allocate(900 << 10)
    with pytest.raises(LaunchError):
        device.synchronize()


def test_failure_of_a_dropped_stream_is_raised_by_the_device(make, fake):
    device = make(threads=True)
    program = fake.load(device, fake.signature("fail"))
    stream = device.create_stream()
    device.launch(program, "fail", (1, 1, 1), [], stream=stream)
    del stream
    deadline = time.monotonic() + 10
    while device.stats().streams and time.monotonic() < deadline:
        time.sleep(0.001)
    with pytest.raises(LaunchError, match="kernel fail"):
        device.synchronize()
    device.synchronize()


def test_only_the_first_of_two_failures_is_raised(make, fake):
    device = make(threads=True, memory=1 << 20)
    fake.KERNELS["second"] = lambda arrays, scalars: (_ for _ in ()).throw(LaunchError("kernel second: too"))
    program = fake.load(device, fake.signature("fail"), fake.signature("second"))
    device.launch(program, "fail", (1, 1, 1), [])
    device.trim()
    device.launch(program, "second", (1, 1, 1), [])
    with pytest.raises(LaunchError, match="kernel fail"):
        device.synchronize()
    device.synchronize()


def test_closing_a_stream_raises_its_failure_once(make, fake):
    device = make(threads=True)
    program = fake.load(device, fake.signature("fail"))
    stream = device.create_stream()
    device.launch(program, "fail", (1, 1, 1), [], stream=stream)
    with pytest.raises(LaunchError):
        stream.close()
    stream.close()
    device.synchronize()
    assert device.stats().streams == 0


def test_streams_die_though_programs_and_buffers_that_they_used_live(make, fake):
    device = make(threads=True)
    program = fake.load(device, fake.signature("nothing", 1))
    buffer = device.allocate(4)
    for _ in range(50):
        stream = device.create_stream()
        device.launch(program, "nothing", (1, 1, 1), [(buffer, 0)], stream=stream)
        device.default_stream.wait(stream.record())
        del stream
    device.synchronize()
    assert device.stats().streams == 0
    assert len(device.lanes) == 1
    assert len(device.default_lane.seen) == 0
    stream = device.create_stream()
    device.launch(program, "nothing", (1, 1, 1), [(buffer, 0)], stream=stream)  # what is done is dropped now
    assert len(program.uses) <= 2


def test_failure_scope_device_loses_the_device(make, fake):
    device = make(failure_scope="device")
    program = fake.load(device, fake.signature("fail"))
    device.launch(program, "fail", (1, 1, 1), [])
    with pytest.raises(LaunchError, match="kernel fail"):
        device.synchronize()
    with pytest.raises(DeviceLostError, match=r'open_device\("fake:0"\) opens it again'):
        device.allocate(4)
    again = open_device("fake:0")
    assert again is not device
    again.allocate(4)


def test_wait_on_a_failed_stream_returns(make, fake):
    device = make(threads=True)
    program = fake.load(device, fake.signature("fail"))
    first, second = device.create_stream(), device.create_stream()
    device.launch(program, "fail", (1, 1, 1), [], stream=first)
    event = first.record()
    second.wait(event)
    start = time.monotonic()
    second.synchronize()
    with pytest.raises(LaunchError):
        event.synchronize()
    assert time.monotonic() - start < 5


CALLBACKS = frozenset({"host_callbacks", "streams"})


def test_host_callback_may_submit_while_another_thread_waits(make):
    device = make(threads=True, capabilities=CALLBACKS)
    stream = device.create_stream()
    buffer = device.allocate(4)

    def callback() -> None:
        time.sleep(0.02)
        device.copy_in(buffer, 0, b"back", stream)

    device.default_stream.call_host(callback)
    device.synchronize(device.default_stream)
    assert read(device, buffer, stream) == b"back"


def test_copy_behind_a_host_callback_does_not_deadlock(make, fake, monkeypatch):
    monkeypatch.setattr(config, "watchdog_s", 5)
    device = make(threads=True, capabilities=CALLBACKS)
    fake.LIVE[-1].blocking = True
    buffer = device.allocate(4)
    stream = device.create_stream()

    def callback() -> None:
        time.sleep(0.02)
        device.copy_in(device.allocate(4), 0, b"1234", stream)

    device.default_stream.call_host(callback)
    device.copy_in(buffer, 0, b"abcd")
    assert read(device, buffer) == b"abcd"


def test_host_callback_that_raises_is_the_streams_failure(make):
    device = make(threads=True, capabilities=CALLBACKS)

    def callback() -> None:
        raise ZeroDivisionError("oops")

    device.default_stream.call_host(callback)
    with pytest.raises(DeviceError, match="fake:0: host callback raised ZeroDivisionError: oops"):
        device.synchronize()


def test_threads_record_and_wait_out_of_order(make):
    device = make(threads=True)
    streams = [device.create_stream() for _ in range(4)]
    buffers = [device.allocate(64, stream=stream) for stream in streams]
    errors = []

    def work(number: int) -> None:
        try:
            for step in range(100):
                device.copy_in(buffers[number], 0, bytes(64), streams[number])
                streams[(number + step) % 4].wait(streams[number].record())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    device.synchronize()
    assert errors == []
