"""Cases of order: a collective comes after what is in its stream, and the stream's later work sees the result."""

from __future__ import annotations

import gc

import numpy as np

from oarlock import dtypes
from oarlock.runtime import Buffer, Device, DeviceArray, Stream, from_numpy, to_numpy
from oarlock.runtime.communication import ProcessGroup
from oarlock_conformance.bench import expect_equal
from oarlock_conformance.cases.collectives.party import Party
from oarlock_conformance.cases.collectives.register import collective_case

_COUNT = 1000
_SLOW_S = 0.03


def _stream(device: Device, side: bool) -> Stream:
    """A stream of its own where that is wanted and the device has such, else the default one."""
    return device.create_stream() if side and device.can.streams is not None else device.default_stream


def _slow_producer(party: Party, world: int, side: bool) -> None:
    """Behind a slow kernel and the one that writes the operand, on the same stream; a kernel after it on it too."""
    for device in party.devices(world, dtypes.int32):  # compiled and calibrated before the ranks begin
        bench = party.bench(device)
        bench.spin(bench.filled(2), 1, seconds=0.001)
        bench.increment(bench.filled(4), bench.filled(4), 4)
        device.synchronize()

    def work(group: ProcessGroup) -> None:
        device, bench = group.device, party.bench(group.device)
        stream = _stream(device, side)
        for number in range(2 * bench.rounds_factor):
            slow, x, y = bench.filled(2), bench.filled(_COUNT, group.rank), bench.filled(_COUNT, -1)
            out, after = bench.filled(_COUNT, -2), bench.filled(_COUNT, -3)
            device.synchronize()
            bench.spin(slow, number, stream, _SLOW_S)
            bench.increment(y, x, _COUNT, 10 * number, stream)
            group.all_reduce(_array(device, y), _array(device, out), stream=stream)
            bench.increment(after, out, _COUNT, 7, stream)
            total = sum(rank + 10 * number for rank in range(world))
            found = bench.download(after, _COUNT, stream=stream)
            wanted = np.full(_COUNT, total + 7, np.int32)
            expect_equal(found, wanted, f"round {number}: all_reduce after a slow producer, a kernel after it")

    party.ranks(world, work, dtypes.int32)


def _array(device: Device, buffer: Buffer) -> DeviceArray:
    return DeviceArray(device, buffer, 0, dtypes.int32, (_COUNT,))


@collective_case(
    "order.stream/slow_producer", "a collective on a stream of its own comes after a slow producer", "streams"
)
def slow_producer(party: Party) -> None:
    for world in (2, 3):
        _slow_producer(party, world, True)


@collective_case("order.stream/default", "a collective on the default stream comes after a slow producer")
def slow_producer_default(party: Party) -> None:
    _slow_producer(party, 2, False)


@collective_case("order.stream/every_collective", "every collective reads what its stream wrote just before", "streams")
def every_collective(party: Party) -> None:
    for device in party.devices(2, dtypes.int32):
        party.bench(device).increment(party.bench(device).filled(4), party.bench(device).filled(4), 4)

    def work(group: ProcessGroup) -> None:
        device, bench, rank = group.device, party.bench(group.device), group.rank
        stream = _stream(device, True)
        for number in range(3):
            y, x = bench.filled(_COUNT, -1), bench.filled(_COUNT, rank)
            device.synchronize()
            array = _array(device, y)

            def make(by: int, y: Buffer = y, x: Buffer = x) -> None:
                bench.spin(bench.filled(2), 1, stream, 0.01)
                bench.increment(y, x, _COUNT, by, stream)

            def expect_all(out: DeviceArray, wanted: list[int], what: str, number: int = number) -> None:
                found = to_numpy(out, stream).reshape(-1)
                expect_equal(
                    found, np.repeat(np.array(wanted, np.int32), out.size // len(wanted)), f"{what}, round {number}"
                )

            make(10 * number)
            expect_all(group.all_gather(array, stream=stream), [10 * number, 10 * number + 1], "all_gather")
            make(20 * number)
            expect_all(group.reduce_scatter(array, stream=stream), [40 * number + 1], "reduce_scatter")
            make(30 * number)
            expect_all(group.all_to_all(array, stream=stream), [30 * number, 30 * number + 1], "all_to_all")
            make(40 * number)
            expect_all(group.broadcast(array, 1, stream=stream), [40 * number + 1], "broadcast")
            make(50 * number)
            if rank:
                group.recv(array, 0, stream)
            else:
                group.send(array, 1, stream)
            expect_all(array, [50 * number], "send and recv")

    party.ranks(2, work, dtypes.int32)


def _reuse(party: Party, side: bool) -> None:
    """pytorch#188655 on a small scale: what a collective still reads is not given to later work."""
    count = 60_000
    for device in party.devices(2, dtypes.int32):
        party.bench(device).increment(party.bench(device).filled(4), party.bench(device).filled(4), 4)

    def work(group: ProcessGroup) -> None:
        device, bench = group.device, party.bench(group.device)
        main, other = device.default_stream, _stream(device, side)
        zeros = bench.filled(count)
        for number in range(5 * bench.rounds_factor):
            a = device.allocate(4 * count)
            bench.increment(a, zeros, count, 1, main)
            if other is not main:
                other.wait(main.record())
            whole = DeviceArray(device, a, 0, dtypes.int32, (count,))
            total = group.all_reduce(whole, stream=other)
            group.all_reduce(whole, whole, stream=other)
            del a, whole
            gc.collect()
            b = device.allocate(4 * count)
            bench.increment(b, zeros, count, 1, main)
            found = bench.download(b, count, stream=main)
            expect_equal(found, np.ones(count, np.int32), f"round {number}: b = zeros + 1 in memory that was reused")
            wanted = np.full(count, 2, np.int32)
            expect_equal(to_numpy(total, other), wanted, f"round {number}: the sum of ones of two ranks")

    party.ranks(2, work, dtypes.int32)


@collective_case(
    "order.memory/reuse", "memory that a collective on a side stream uses is not reused before it", "streams"
)
def reuse(party: Party) -> None:
    _reuse(party, True)


@collective_case("order.memory/reuse_default", "memory that a collective uses is not reused before it")
def reuse_default(party: Party) -> None:
    _reuse(party, False)


@collective_case("order.memory/drop_operand", "an operand may be dropped as soon as the call returns")
def drop_operand(party: Party) -> None:
    def work(group: ProcessGroup) -> None:
        results = []
        for number in range(30):
            results.append(group.all_reduce(from_numpy(np.full(500, number + group.rank, np.int32), group.device)))
            from_numpy(np.full(500, -1, np.int32), group.device)
        for number, result in enumerate(results):
            expect_equal(result.numpy(), np.full(500, 2 * number + 1, np.int32), f"the sum of call {number}")

    party.ranks(2, work, dtypes.int32)
