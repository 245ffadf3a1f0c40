"""Cases on two devices of one adapter: copies between them, programs on both, and each by itself."""

from __future__ import annotations

import gc
import threading

import numpy as np

import oarlock as ol
from oarlock import dtypes
from oarlock.errors import DeviceError
from oarlock.runtime import Device, from_numpy, open_device, to_numpy, transfer
from oarlock_conformance.bench import raises
from oarlock_conformance.case import Failure
from oarlock_conformance.cases.programs.register import Stage, chain, chained, expect_array, program_case


def _other(stage: Stage) -> Device:
    """The next device of the same adapter."""
    adapter, _, index = stage.device.name.partition(":")
    count = len(stage.device.adapter.devices())
    return open_device(f"{adapter}:{(int(index) + 1) % count}")


@program_case(
    "devices.copies/dtypes", "arrays of every dtype that two devices store are copied there and back", "two_devices"
)
def copies(stage: Stage) -> None:
    other = _other(stage)
    for dtype in dtypes.ALL:
        if not (stage.device.target.stores(dtype) and other.target.stores(dtype)):
            continue
        for shape in ((), (0,), (1,), (3,), (65, 33)):
            host = np.resize(np.arange(7), shape).astype(dtype.numpy)
            there = transfer(from_numpy(host, stage.device), other)
            back = transfer(there, stage.device)
            for what, array in (("there", there), ("and back", back)):
                got = to_numpy(array).astype(np.float64)
                expect_array(f"{dtype} {shape} {what}", got, host.astype(np.float64))


@program_case(
    "devices.copies/pending",
    "what is copied to another device is first computed, and later changes do not reach it",
    "two_devices",
)
def pending(stage: Stage) -> None:
    other = _other(stage)
    host = stage.whole(50, 50)
    x = ol.asarray(host, device=stage.device)
    y = ol.matmul(x, x) + 1
    there = y.to(other.name)
    y[0] = 7
    expect_array("the copy on the other device", np.asarray(there * 2), (host @ host + 1) * 2)
    expect_array("the first row of the original", np.asarray(y[0]), np.full(50, 7))


@program_case("devices.programs/both", "one program runs on two devices in turn, each on its own memory", "two_devices")
def both(stage: Stage) -> None:
    other = _other(stage)
    x, y = stage.whole(12, 30), stage.whole(30, 9)
    plans = {device.name: stage.plan([x, y], chain, device) for device in (stage.device, other)}
    held = []
    for turn in range(6):
        for device in (stage.device, other):
            a = stage.whole(12, 30, seed=turn)
            held.append((device.name, chained(a, y), plans[device.name].run(stage.put(a, y, device=device))))
    for name, want, found in held:
        for got, exact in zip(found, want, strict=True):
            expect_array(f"a program on {name}", to_numpy(got), exact)


@program_case("devices.programs/mixed", "operands of two devices are refused, naming both", "two_devices")
def mixed(stage: Stage) -> None:
    other = _other(stage)
    x = stage.whole(4, 4)
    plan = stage.plan([x, x], chain)
    with raises(DeviceError, "a program on operands of two devices", stage.device.name, other.name):
        plan.run([*stage.put(x), *stage.put(x, device=other)])
    here, there = (ol.asarray(x, device=device) for device in (stage.device, other))
    with raises(DeviceError, "an operator on arrays of two devices", stage.device.name, other.name):
        np.asarray(here + there)
    expect_array("after moving one", np.asarray(here + there.to(stage.device.name)), x + x)


@program_case("devices.alone/memory", "work on one device does not touch the memory of another", "two_devices")
def alone(stage: Stage) -> None:
    other = _other(stage)
    gc.collect()
    stage.device.synchronize()
    stage.device.collect()
    before = stage.device.stats()
    x, y = stage.whole(64, 64), stage.whole(64, 64, seed=1)
    plan = stage.plan([x, y], chain, other)
    for _ in range(5):
        stage.run(plan, x, y)
    after = stage.device.stats()
    for name in ("buffers", "bytes_in_use", "launches", "bytes_in", "bytes_out", "programs"):
        if getattr(after, name) > getattr(before, name):
            text = f"{name} of {stage.device.name} went from {getattr(before, name):,} to {getattr(after, name):,}"
            raise Failure(f"{text} while only {other.name} was used")


@program_case("devices.programs/threads", "eight threads use two devices at once", "two_devices")
def threads(stage: Stage) -> None:
    devices = (stage.device, _other(stage))
    x, y = stage.whole(20, 30), stage.whole(30, 10)
    plans = [stage.plan([x, y], chain, device) for device in devices]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(6):
                which = (number + turn) % 2
                a = stage.whole(20, 30, seed=10 * number + turn)
                found = plans[which].run(stage.put(a, y, device=devices[which]))
                for got, want in zip(found, chained(a, y), strict=True):
                    expect_array(f"thread {number} on {devices[which].name}", to_numpy(got), want)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(stage.options.deadline_s / 2)
        if worker.is_alive():
            raise Failure(f"a thread did not end within {stage.options.deadline_s / 2:g} s")
    if failures:
        raise failures[0]
