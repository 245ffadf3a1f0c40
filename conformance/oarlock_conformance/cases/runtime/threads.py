"""Cases on threads: everything public is safe from several of them."""

from __future__ import annotations

import threading

import numpy as np

from oarlock.runtime import Buffer, open_device
from oarlock_conformance import kernels
from oarlock_conformance.bench import Bench, Ints, expect, expect_equal, together
from oarlock_conformance.registry import runtime_case


@runtime_case("threads.use/eight", "8 threads allocate, copy and launch at once")
def eight(bench: Bench) -> None:
    device = bench.device
    program = bench.program(kernels.increment)

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        for _ in range(25 * bench.rounds_factor):
            count = int(random.integers(1, 3000))
            data: Ints = random.integers(-1000, 1000, count, dtype=np.int32)
            x, y = device.allocate(4 * count), device.allocate(4 * count)
            device.copy_in(x, 0, data)
            bench.launch(program, (count, 1, 1), [(x, 0), (y, 0)], [number])
            expect_equal(bench.download(y, count), data + np.int32(number), f"thread {number}")

    together(8, work)


@runtime_case("threads.use/shared_buffers", "8 threads write their own parts of one buffer")
def shared(bench: Bench) -> None:
    device = bench.device
    buffer = bench.filled(8 * 100)

    def work(number: int) -> None:
        for round_ in range(20):
            data = np.full(100, number * 100 + round_, np.int32)
            device.copy_in(buffer, 400 * number, data)
            expect_equal(bench.download(buffer, 100, offset=400 * number), data, f"part {number} of a shared buffer")

    together(8, work)


@runtime_case("threads.use/odd_parts", "threads that write neighbouring bytes do not disturb each other")
def odd_parts(bench: Bench) -> None:
    device = bench.device
    buffer = device.allocate(8 * 13)

    def work(number: int) -> None:
        for round_ in range(20):
            data = np.full(13, (number * 20 + round_) % 251, np.uint8)
            device.copy_in(buffer, 13 * number, data)
            expect_equal(bench.download(buffer, 13, np.uint8, 13 * number), data, f"13 bytes of thread {number}")

    together(8, work)


@runtime_case("threads.drop/elsewhere", "what one thread made another may drop")
def elsewhere(bench: Bench) -> None:
    device = bench.device
    made: list[Buffer] = []
    guard = threading.Lock()

    def work(number: int) -> None:
        for _ in range(100):
            with guard:
                if number % 2 and made:
                    made.pop()
                else:
                    made.append(device.allocate(1000))

    together(6, work)
    made.clear()
    bench.works()


@runtime_case("threads.open/at_once", "threads that open a device at once get the same object")
def at_once(bench: Bench) -> None:
    bench.device.close()
    bench.forget()
    found = []

    def work(number: int) -> None:
        device = open_device(bench.name)
        device.allocate(64)
        found.append(device)

    together(6, work)
    expect(len(found) == 6 and len({id(device) for device in found}) == 1, "the threads got different devices")
    found.clear()
    bench.works()


@runtime_case("threads.streams/own", "each thread may work on a stream of its own", "streams")
def own(bench: Bench) -> None:
    device = bench.device
    bench.program(kernels.increment)

    def work(number: int) -> None:
        with device.create_stream() as stream:
            x, y = bench.filled(64, number), bench.filled(64)
            for _ in range(25):
                bench.increment(y, x, 64, 1)
                bench.increment(x, y, 64, 1)
            expect_equal(bench.download(x, 64, stream=stream), np.full(64, number + 50, np.int32), f"thread {number}")

    together(8, work)
