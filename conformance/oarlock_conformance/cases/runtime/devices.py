"""Cases on the devices of one adapter side by side: each keeps to its own memory, streams and handles."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from oarlock.errors import DeviceError
from oarlock.runtime import Device, copy_across, from_numpy, open_device, to_numpy, transfer
from oarlock_conformance import kernels
from oarlock_conformance.bench import Bench, expect, expect_equal, raises, together
from oarlock_conformance.registry import runtime_case

MIB = 1 << 20


@contextlib.contextmanager
def _beside(bench: Bench) -> Iterator[tuple[Device, Bench]]:
    """Another device of the adapter, with a bench of its own; closed afterwards."""
    device = bench.device
    other = open_device(f"{device.adapter_name}:{0 if device.index else 1}")
    second = Bench(other.name, bench.options)
    try:
        yield other, second
    finally:
        second.forget()
        other.close()


@runtime_case("devices.open/index", "open(index) opens that device: the driver keeps to its limits", "two_devices")
def index(bench: Bench) -> None:
    adapter = bench.device.adapter
    infos = adapter.devices()
    for number, info in enumerate(infos):
        device = open_device(f"{bench.device.adapter_name}:{number}")
        try:
            expect(device.info == info, f"{device.name} is described as {device.info.name}, devices() says {info.name}")
            own = Bench(device.name, bench.options)
            own.works()
            _probe_limits(device)
            own.forget()
        finally:
            if device is not bench.device:
                device.close()


def _probe_limits(device: Device) -> None:
    """Give the driver one byte more than a single allocation may have, where the other devices allow more."""
    limit = device.target.limits.max_allocation
    infos = device.adapter.devices()
    larger = max(info.target.limits.max_allocation for info in infos)
    if larger <= limit or limit > device.info.memory:
        return
    try:
        handle = device.gate.call("allocate", device.driver.allocate, limit + device.unit)
    except DeviceError:
        return
    device.gate.call("free", device.driver.free, handle)
    text = f"the driver of {device.name} gives an allocation of more than its max_allocation {limit}"
    expect(False, f"{text}: does open({device.index}) open another device?")


@runtime_case(
    "devices.event/foreign",
    "an event of one device cannot order a stream of another: refused, naming both",
    "two_devices",
)
def foreign_event(bench: Bench) -> None:
    device = bench.device
    with _beside(bench) as (other, _):
        for mine, theirs in ((device, other), (other, device)):
            event = theirs.default_stream.record()
            with raises(DeviceError, "a wait for another device's event", mine.name, theirs.name):
                mine.default_stream.wait(event)
            with raises(DeviceError, "a launch on another device's stream", mine.name, theirs.name):
                mine.synchronize(theirs.default_stream)
            event.synchronize()
    bench.works()


@runtime_case("devices.program/foreign", "a program of one device is refused by another, naming both", "two_devices")
def foreign_program(bench: Bench) -> None:
    with _beside(bench) as (other, second):
        program = bench.program(kernels.stamp)
        out = second.filled(4)
        block = program.signatures["stamp"].pack([0, 1, 1, 1])
        with raises(DeviceError, "a launch of another device's program", bench.name, other.name):
            other.launch(program, "stamp", (1, 1, 1), [(out, 0)], block)
        second.works()
        del out
    bench.works()


@runtime_case("devices.current/kept", "work on one device leaves another's current stream as it was", "two_devices")
def current(bench: Bench) -> None:
    device = bench.device
    stream = device.create_stream() if device.can.streams is not None else device.default_stream
    with _beside(bench) as (other, second), stream:
        second.works()
        expect(device.current_stream is stream, f"work on {other.name} changed the current stream of {device.name}")
        expect(other.current_stream is other.default_stream, f"`with stream:` of {device.name} is {other.name}'s too")
        with other.default_stream:
            expect(device.current_stream is stream, "a stream of another device became current here")
        bench.works()
    expect(device.current_stream is device.default_stream, "the default stream is not current again")


@runtime_case("devices.memory/apart", "work on one device takes no memory of another", "two_devices")
def memory(bench: Bench) -> None:
    device = bench.device
    bench.works()
    device.synchronize()
    before, free = device.stats(), device.memory_info()[0]
    with _beside(bench) as (other, second):
        kept = [second.upload(bench.bytes(MIB)) for _ in range(32)]
        second.works()
        after = device.stats()
        expect(after.bytes_in_use == before.bytes_in_use, f"32 MiB on {other.name} count as memory of {device.name}")
        expect(after.launches == before.launches, f"launches on {other.name} count as {device.name}'s")
        if device.can.memory_info is not None and "host_memory" not in device.info.capabilities:
            lost = free - device.memory_info()[0]
            expect(lost < 16 * MIB, f"32 MiB on {other.name} took {lost // MIB} MiB of {device.name}")
        kept.clear()


@runtime_case("devices.close/apart", "closing one device leaves the handles of another alone", "two_devices")
def close(bench: Bench) -> None:
    data = bench.ints(64)
    kept = bench.upload(data)
    bench.program(kernels.increment)
    with _beside(bench) as (other, second):
        second.works()
        other.close()
        second.forget()
        expect_equal(bench.download(kept, 64), data, f"memory after {other.name} was closed")
        bench.works()
        second.works()


@runtime_case("devices.threads/both", "8 threads work on two devices at once, each on its own", "two_devices")
def threads(bench: Bench) -> None:
    with _beside(bench) as (_, second):
        benches = (bench, second)
        for each in benches:
            each.program(kernels.increment)

        def work(number: int) -> None:
            mine = benches[number % 2]
            random = np.random.default_rng(number)
            for _ in range(10 * bench.rounds_factor):
                data = random.integers(-1000, 1000, 777, dtype=np.int32)
                x, y = mine.upload(data), mine.filled(777)
                mine.increment(y, x, 777, number)
                expect_equal(mine.download(y, 777), data + np.int32(number), f"thread {number} on {mine.name}")

        together(8, work)


@runtime_case(
    "memory.peer/order", "a copy between devices comes after the work before it on both, and before the work after it",
    "two_devices",
)  # fmt: skip
def peer_order(bench: Bench) -> None:
    with _beside(bench) as (_, second):
        for number in range(10):
            busy, source, target, seen = second.filled(2), second.filled(64), bench.filled(64), bench.filled(64)
            held = bench.filled(2)
            (second if number % 2 else bench).spin(busy if number % 2 else held, 1, seconds=0.003)
            second.increment(source, second.filled(64, number), 64, 1)
            bench.increment(target, bench.filled(64, -5), 64, 1)
            copy_across(target, 16, source, 32, 128)
            bench.increment(seen, target, 64, 10)
            second.device.fill(source, 0, 256, 0)
            wanted = np.full(64, 6, np.int32)
            wanted[4:36] = number + 11
            expect_equal(bench.download(seen, 64), wanted, f"round {number}: 128 bytes between devices")
            del busy, source


@runtime_case(
    "memory.peer/ranges",
    "copies between devices move exactly their range, at any offset and size",
    "two_devices",
)
def peer_ranges(bench: Bench) -> None:
    with _beside(bench) as (_, second):
        for dst, src, nbytes in ((0, 0, 4096), (4, 8, 12), (1, 2, 3), (1000, 17, 3000), (4095, 0, 1), (0, 4092, 4)):
            source, target = bench.bytes(4096), bench.bytes(4096)
            there, here = second.upload(source), bench.upload(target)
            copy_across(here, dst, there, src, nbytes)
            target[dst : dst + nbytes] = source[src : src + nbytes]
            expect_equal(bench.download(here, 4096, np.uint8), target, f"{nbytes} bytes from {src} to {dst}")
            del there
        large = bench.bytes(3 * MIB + 5)
        there = second.upload(large)
        here = bench.device.allocate(large.size)
        copy_across(here, 0, there, 0, large.size)
        expect_equal(bench.download(here, large.size, np.uint8), large, "3 MiB + 5 bytes between devices")
        del there


@runtime_case("memory.peer/reused", "memory that a copy between devices reads may be dropped at once", "two_devices")
def peer_reused(bench: Bench) -> None:
    device = bench.device
    with _beside(bench) as (other, second):
        second.works()
        for number in range(10):
            array = from_numpy(np.full(5000, number, np.int32), device)
            there = transfer(array, other)
            del array
            again = from_numpy(np.full(5000, -1, np.int32), device)
            expect_equal(to_numpy(there), np.full(5000, number, np.int32), f"round {number}: an array that was sent")
            del again, there
