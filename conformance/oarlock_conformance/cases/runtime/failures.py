"""Cases on what goes wrong: the error is typed and names the device, and the device is usable afterwards."""

from __future__ import annotations

import time

import numpy as np

from oarlock.errors import BoundsError, DeviceError, DeviceTimeoutError, OarlockError, OutOfMemoryError
from oarlock.runtime import from_numpy, open_device
from oarlock_conformance import kernels
from oarlock_conformance.bench import Bench, expect, expect_equal, raises
from oarlock_conformance.registry import runtime_case


@runtime_case("failure.typed/usable", "after every kind of refusal the device is usable, and its memory unchanged")
def usable(bench: Bench) -> None:
    device = bench.device
    data = bench.ints(100)
    kept = bench.upload(data)
    attempts = (
        (OutOfMemoryError, lambda: device.allocate(1 << 61)),
        (BoundsError, lambda: device.copy_in(kept, 399, b"12")),
        (BoundsError, lambda: device.fill(kept, 0, 4, 256)),
        (OarlockError, lambda: bench.launch(bench.program(kernels.stamp), (1, 1, 1), [(kept, 2)], [1, 1, 1])),
        (DeviceError, lambda: device.launch(bench.program(kernels.stamp), "none", (1, 1, 1), [], b"")),
        (BoundsError, lambda: bench.stamp(kept, (device.target.limits.max_grid[0] + 1, 1, 1))),
    )
    for kind, attempt in attempts:
        with raises(kind, "a refusal"):
            attempt()
        bench.works()
        expect_equal(bench.download(kept, 100), data, "memory that no refused call may change")


@runtime_case("failure.text/device", "an error begins with the device's name")
def text(bench: Bench) -> None:
    device = bench.device
    for attempt in (lambda: device.allocate(1 << 61), lambda: device.copy_in(bench.filled(1), 3, b"12")):
        try:
            attempt()
        except OarlockError as error:
            expect(str(error).startswith(device.name), f"the text does not begin with {device.name}: {error}")
        else:
            expect(False, "a call that must be refused was accepted")


@runtime_case(
    "failure.synchronize/timeout", "a deadline that passes in synchronize raises DeviceTimeoutError, and spoils nothing"
)
def timeout(bench: Bench) -> None:
    device = bench.device
    out = bench.filled(2)
    bench.spin(out, 1, seconds=0.001)
    device.synchronize()
    bench.spin(out, 21, seconds=0.5)
    late = 0
    with device.using("synchronize"):
        for wait_s in (0.0, 0.0, 0.02):
            start = time.perf_counter()
            try:
                device.driver.synchronize(None, wait_s)
            except DeviceTimeoutError:
                late += 1
            taken = time.perf_counter() - start
            expect(taken < 0.2, f"synchronize(None, {wait_s}) took {taken:.2f} s; its deadline was {wait_s} s")
    expect(device.usable, "the device is lost after a deadline in synchronize")
    expect_equal(bench.download(out, 1, np.uint32, 4), np.array([21], np.uint32), f"work after {late} deadlines passed")
    bench.works()


@runtime_case("failure.foreign/buffer", "a buffer of another device is refused, naming both", "two_devices")
def foreign(bench: Bench) -> None:
    device = bench.device
    other = open_device(f"{device.adapter_name}:{0 if device.index else 1}")
    try:
        buffer = other.allocate(64)
        with raises(DeviceError, "a copy to another device's buffer", device.name, other.name):
            device.copy_in(buffer, 0, b"1234")
        with raises(DeviceError, "a launch on another device's buffer", device.name, other.name):
            bench.launch(bench.program(kernels.stamp), (1, 1, 1), [(buffer, 0)], [1, 1, 1])
        del buffer
    finally:
        other.close()
    bench.works()


@runtime_case("failure.arrays/refused", "an array that is refused leaves no memory behind")
def refused(bench: Bench) -> None:
    device = bench.device
    before = device.stats().bytes_in_use
    for _ in range(20):
        with raises(OarlockError, "a dtype that Oarlock does not know"):
            from_numpy(np.zeros(4, np.complex64), device)
        with raises(OutOfMemoryError, "too much memory"):
            device.allocate(device.info.memory * 4)
    after = device.stats().bytes_in_use
    expect(after == before, f"{after - before} bytes more are in use after refused requests")
