"""Every fault strikes where its plan says, once, with the right error, and the device behaves as the contract says."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from oarlock.errors import (
    CompileError,
    DeviceError,
    DeviceLostError,
    DeviceTimeoutError,
    LaunchError,
    OutOfMemoryError,
)
from oarlock.hal import LaunchStep
from oarlock_sim import faults

DATA = np.ones(1000, np.float32)


def test_nth_allocation_is_refused_and_the_device_goes_on(roomy: Any) -> None:
    with faults.plan(out_of_memory_at=3):
        kept = [roomy.driver.allocate(64) for _ in range(2)]
        with pytest.raises(OutOfMemoryError, match="injected fault"):
            roomy.driver.allocate(64)
        kept.append(roomy.driver.allocate(64))
    assert len({*kept, roomy.driver.allocate(64)}) == 4


def _calls(device: Any) -> dict[str, Any]:
    driver = device.driver
    x, y = device.put(DATA), device.put(DATA)
    out = memoryview(bytearray(4))
    event, stream, plan = driver.record(None), driver.create_stream(), driver.prepare([])
    driver.synchronize(None, 5)
    return {
        "allocate": (lambda: driver.allocate(4), OutOfMemoryError),
        "free": (lambda: driver.free(driver.allocate(4)), DeviceError),
        "copy_in": (lambda: driver.copy_in(None, x, 0, out), DeviceError),
        "copy_out": (lambda: driver.copy_out(None, out, x, 0), DeviceError),
        "copy": (lambda: driver.copy(None, x, 0, y, 0, 4), DeviceError),
        "copy_peer": (lambda: driver.copy_peer(None, x, 0, driver, y, 0, 4), DeviceError),
        "fill": (lambda: driver.fill(None, x, 0, 4, 0), DeviceError),
        "synchronize": (lambda: driver.synchronize(None, 5), DeviceError),
        "load": (lambda: driver.load(b"", []), CompileError),
        "launch": (lambda: device.scale(x, y, 10), LaunchError),
        "prepare": (lambda: driver.prepare([]), DeviceError),
        "replay": (lambda: driver.replay(None, plan, [], []), LaunchError),
        "create_stream": (lambda: driver.create_stream(), DeviceError),
        "destroy_stream": (lambda: driver.destroy_stream(stream), DeviceError),
        "record": (lambda: driver.record(None), DeviceError),
        "wait": (lambda: driver.wait(None, event), DeviceError),
        "query": (lambda: driver.query(event), DeviceError),
        "destroy_event": (lambda: driver.destroy_event(event), DeviceError),
        "elapsed": (lambda: driver.elapsed(event, event), DeviceError),
        "call_host": (lambda: driver.call_host(None, lambda: None), DeviceError),
        "memory_info": (lambda: driver.memory_info(), DeviceError),
        "reset": (lambda: driver.reset(), DeviceError),
        "devices": (lambda: device.adapter.devices(), DeviceError),
        "open": (lambda: device.adapter.open(0).close(), DeviceError),
        "compile": (lambda: device.adapter.compile(device.info.target, "", []), CompileError),
    }


def test_nth_call_of_every_method_fails_with_the_contracts_error(roomy: Any) -> None:
    for method, (call, error) in _calls(roomy).items():
        with faults.plan(fail_at={method: 2}):
            if method not in ("load", "destroy_stream", "reset"):
                call()
            else:
                for each in faults.active(None):
                    each.called(method)
            with pytest.raises(error, match=f"injected fault: call 2 of {method}"):
                call()


def test_failing_launch_spoils_its_stream_until_it_is_synchronised(roomy: Any) -> None:
    driver, other = roomy.driver, roomy.driver.create_stream()
    x, y = roomy.put(DATA), roomy.put(DATA)
    driver.synchronize(None, 5)
    with faults.plan(launch_fails_at=2):
        roomy.scale(x, y, 1000, 3.0)
        roomy.scale(y, x, 1000, 3.0)
        driver.fill(None, y, 0, 4000, 0)
    event = driver.record(None)
    driver.wait(other, event)
    driver.fill(other, y, 0, 4000, 0)
    with pytest.raises(LaunchError, match="kernel scale: injected fault: launch 2 fails"):
        driver.synchronize(other, 5)
    assert driver.query(event)
    with pytest.raises(LaunchError, match="kernel scale: injected fault: launch 2 fails"):
        driver.synchronize(None, 5)
    np.testing.assert_array_equal(roomy.get(x, 1000), DATA)
    np.testing.assert_array_equal(roomy.get(y, 1000), 3 * DATA)


def test_launches_of_a_plan_count_and_fail(roomy: Any) -> None:
    x, y = roomy.put(DATA), roomy.put(DATA)
    slots = ((0, 0, 4000), (1, 0, 4000))
    step = LaunchStep(roomy.program, "scale", (16, 1, 1), (1, 1, 1), slots, roomy.scalars(0, 0, 1000, 3.0))
    plan = roomy.driver.prepare([step, step])
    with faults.plan(launch_fails_at=4):
        for _ in range(2):
            roomy.driver.replay(None, plan, [x, y], [])
        with pytest.raises(LaunchError, match="kernel scale: injected fault: launch 4 fails"):
            roomy.driver.synchronize(None, 5)
    np.testing.assert_array_equal(roomy.get(y, 1000), 3 * DATA)


def test_hanging_launch_passes_the_deadline_and_can_be_released(roomy: Any) -> None:
    x, y = roomy.put(DATA), roomy.put(DATA)
    with faults.plan(launch_hangs_at=1) as plan:
        roomy.scale(x, y, 1000)
        with pytest.raises(DeviceTimeoutError, match="kernel scale"):
            roomy.driver.synchronize(None, 0.05)
        plan.release()
        np.testing.assert_array_equal(roomy.get(y, 1000), 2 * DATA)


def test_hanging_launch_goes_on_after_its_time(roomy: Any) -> None:
    x, y = roomy.put(DATA), roomy.put(DATA)
    with faults.plan(launch_hangs_at=1, hang_s=0.2):
        start = roomy.driver.record(None)
        roomy.scale(x, y, 1000)
        end = roomy.driver.record(None)
        roomy.driver.synchronize(None, 5)
        assert 0.19 < roomy.driver.elapsed(start, end) < 3


@pytest.mark.parametrize("index", [0, 1])
def test_lost_device_refuses_everything_until_it_is_opened_again(rig: Any, index: int) -> None:
    device = rig(index)
    with faults.plan(lost_at=3):
        x, y = device.put(DATA), device.put(DATA)
        device.scale(x, y, 1000)
        with pytest.raises(DeviceLostError, match="kernel scale"):
            device.driver.synchronize(None, 5)
        for call in (lambda: device.driver.allocate(4), lambda: device.scale(x, y, 10)):
            with pytest.raises(DeviceLostError):
                call()
    device.driver.close()
    again = rig(index)
    np.testing.assert_array_equal(again.get(again.put(DATA), 1000), DATA)


def test_reset_brings_a_lost_device_back(roomy: Any) -> None:
    with faults.plan(lost_at=1):
        roomy.driver.call_host(None, lambda: None)
        with pytest.raises(DeviceLostError):
            roomy.driver.synchronize(None, 5)
    roomy.driver.reset()
    np.testing.assert_array_equal(roomy.get(roomy.put(DATA), 1000), DATA)


def test_poison_shows_in_new_memory(roomy: Any) -> None:
    with faults.plan(poison=True):
        assert (roomy.get(roomy.driver.allocate(64), 64, np.uint8) == 0xDB).all()


def test_poison_shows_to_a_kernel_whose_operand_is_freed_under_it(roomy: Any) -> None:
    x = roomy.put(DATA)
    roomy.driver.synchronize(None, 5)
    memory = roomy.driver.find(x, object, "x")
    with faults.plan(poison=True):
        roomy.driver.free(x)
    assert bytes(memory.view[:4]) == b"\xdb" * 4


def _race(device: Any, seed: int, awaited: bool) -> float:
    """What a reader sees that runs beside, or behind, a writer on another stream."""
    driver = device.driver
    writer, reader = driver.create_stream(), driver.create_stream()
    x, y = device.put(np.zeros(4, np.uint8)), driver.allocate(4)
    driver.synchronize(None, 5)
    with faults.plan(seed=seed):
        driver.fill(writer, x, 0, 4, 1)
        if awaited:
            driver.wait(reader, driver.record(writer))
        driver.copy(reader, y, 0, x, 0, 4)
        seen = device.get(y, 4, np.uint8, reader)[0]
        driver.synchronize(writer, 5)
    return float(seen)


def test_drawn_order_shows_a_missing_dependency_and_depends_on_the_seed_alone(rig: Any) -> None:
    seeds = range(12)
    first = [_race(rig(0), seed, awaited=False) for seed in seeds]
    assert set(first) == {0.0, 1.0}
    assert [_race(rig(0), seed, awaited=False) for seed in seeds] == first
    device = rig(0)
    assert {_race(device, seed, awaited=True) for seed in seeds} == {1.0}


def test_drawn_order_goes_on_while_the_host_queries(roomy: Any) -> None:
    with faults.plan(seed=1):
        roomy.put(DATA)
        event = roomy.driver.record(None)
        assert any(roomy.driver.query(event) or threading.Event().wait(0.01) for _ in range(500))


def test_unordered_copies_overtake_launches_unless_an_event_is_awaited(roomy: Any) -> None:
    driver, other = roomy.driver, roomy.driver.create_stream()
    x, y = roomy.put(DATA), roomy.put(DATA)
    driver.synchronize(None, 5)
    seen = []
    for awaited in (False, True):
        out = np.zeros(1000, np.float32)
        driver.fill(None, y, 0, 4000, 0)
        driver.synchronize(None, 5)
        with faults.plan(unordered_copies=True, launch_hangs_at=1) as plan:
            roomy.scale(x, y, 1000)
            if awaited:
                driver.wait(None, driver.record(other))
            driver.copy_out(None, memoryview(out).cast("B"), y, 0)
            threading.Event().wait(0.05)
            plan.release()
            driver.synchronize(None, 5)
        seen.append(out[0])
    assert seen == [0.0, 2.0]


def test_plan_of_an_adapter_concerns_its_devices_alone(rig: Any) -> None:
    planned, other = rig(0, faults.Plan(out_of_memory_at=1)), rig(0)
    other.driver.allocate(4)
    with pytest.raises(OutOfMemoryError):
        planned.driver.allocate(4)


def test_plan_counts_over_threads_once_each(roomy: Any) -> None:
    refused: list[OutOfMemoryError] = []

    def allocate() -> None:
        for _ in range(50):
            try:
                roomy.driver.allocate(4)
            except OutOfMemoryError as error:
                refused.append(error)

    with faults.plan(out_of_memory_at=120):
        threads = [threading.Thread(target=allocate) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(refused) == 1


def test_child_process_makes_its_own_plan() -> None:
    script = """
from oarlock.errors import OutOfMemoryError
from oarlock_sim import SimAdapter, faults
driver = SimAdapter(plan=faults.Plan(out_of_memory_at=1)).open(1)
try:
    driver.allocate(4)
except OutOfMemoryError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20)
    assert "injected fault" in done.stdout and done.stderr == ""
