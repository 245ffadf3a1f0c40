"""The simulator against the contract: mandatory and optional methods, order, failures, lifetimes."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.abi import BufferArgument, KernelSignature
from oarlock.errors import (
    ClosedError,
    CompileError,
    DeviceError,
    DeviceNotFoundError,
    DeviceTimeoutError,
    LaunchError,
    UnsupportedError,
)
from oarlock.hal import CopyStep, LaunchStep
from oarlock_sim import SimAdapter, faults, oarlock_adapter

ONES = np.ones(1000, np.float32)
RAMP = np.arange(1000, dtype=np.float32)


def test_devices_are_one_roomy_and_one_tight() -> None:
    first, second = oarlock_adapter().devices()
    assert first.memory == 4 << 30 and second.memory == 1 << 30
    assert {"streams", "plans", "reset"} <= first.capabilities and second.capabilities == {"communication"}
    assert first.target.stores(dtypes.bfloat16) and not first.is_accelerator
    assert not any(second.target.stores(dtype) for dtype in (dtypes.float16, dtypes.float64, dtypes.int64))
    assert second.target.storage_of(dtypes.bool_) == dtypes.int32
    with pytest.raises(DeviceNotFoundError, match="sim:0"):
        SimAdapter().open(2)


@pytest.mark.parametrize("index", [0, 1])
def test_kernel_between_copies_gives_the_product(rig: Any, index: int) -> None:
    device = rig(index)
    x, y = device.put(RAMP), device.put(ONES)
    device.scale(x, y, 1000, 3.0)
    np.testing.assert_array_equal(device.get(y, 1000), 3 * RAMP)


def test_grid_runs_every_block_once(roomy: Any) -> None:
    count = roomy.put(np.zeros(16 * 16 * 16, np.int32))
    buffers = [(count, 0, 4 * 16**3)]
    roomy.driver.launch(None, roomy.program, "mark", (5, 7, 3), (1, 1, 1), buffers, b"")
    cube = roomy.get(count, 16**3, np.int32).reshape(16, 16, 16)
    assert cube[:3, :7, :5].min() == cube.max() == 1 and cube.sum() == 5 * 7 * 3


def test_copies_honour_offsets_and_never_alias_the_host(roomy: Any) -> None:
    source = np.arange(16, dtype=np.uint8)
    x = roomy.put(source)
    source[:] = 99
    y = roomy.put(np.zeros(16, np.uint8))
    roomy.driver.copy(None, y, 3, x, 5, 7)
    roomy.driver.copy_in(None, y, 12, memoryview(b"\x63"))
    assert roomy.get(y, 16, np.uint8).tolist() == [0, 0, 0, 5, 6, 7, 8, 9, 10, 11, 0, 0, 99, 0, 0, 0]
    out = bytearray(2)
    roomy.driver.copy_out(None, memoryview(out), x, 14)
    roomy.driver.synchronize(None, 5)
    assert bytes(out) == b"\x0e\x0f"


def test_submission_does_not_wait_for_a_held_stream(roomy: Any) -> None:
    x, y = roomy.put(RAMP), roomy.put(ONES)
    out = np.zeros(1000, np.float32)
    roomy.driver.synchronize(None, 5)
    with faults.hold(roomy.driver):
        roomy.scale(x, y, 1000)
        roomy.driver.copy_out(None, memoryview(out).cast("B"), y, 0)
        with pytest.raises(DeviceTimeoutError, match="hold"):
            roomy.driver.synchronize(None, 0.05)
        assert not out.any()
    roomy.driver.synchronize(None, 5)
    np.testing.assert_array_equal(out, 2 * RAMP)


def test_stream_waits_for_the_event_of_a_held_producer(roomy: Any) -> None:
    driver = roomy.driver
    producer, consumer = driver.create_stream(), driver.create_stream()
    assert len({None, producer, consumer}) == 3
    x, y, z = roomy.put(RAMP), roomy.put(ONES), roomy.put(ONES)
    driver.synchronize(None, 5)
    held = faults.hold(driver, producer)
    roomy.scale(x, y, 1000, stream=producer)
    event = driver.record(producer)
    driver.wait(consumer, event)
    driver.destroy_event(event)
    roomy.scale(y, z, 1000, stream=consumer)
    assert not driver.query(event)
    held.release()
    np.testing.assert_array_equal(roomy.get(z, 1000, stream=consumer), 4 * RAMP)
    assert driver.query(event)
    driver.synchronize(producer, 5)
    driver.destroy_stream(producer)
    with pytest.raises(DeviceError, match="no live stream"):
        driver.record(producer)


def test_streams_overlap(roomy: Any) -> None:
    driver = roomy.driver
    slow, quick = driver.create_stream(), driver.create_stream()
    with faults.hold(driver, slow):
        roomy.scale(roomy.put(RAMP, quick), roomy.put(ONES, quick), 1000, stream=quick)
        driver.synchronize(quick, 5)
    driver.synchronize(slow, 5)


def test_elapsed_time_is_the_kernels(roomy: Any) -> None:
    x = roomy.put(ONES)
    start = roomy.driver.record(None)
    roomy.run("spin", [x])
    end = roomy.driver.record(None)
    with pytest.raises(DeviceError, match="complete"):
        roomy.driver.elapsed(start, end)
    began = time.perf_counter()
    roomy.driver.synchronize(None, 10)
    waited = time.perf_counter() - began
    assert 0.001 < roomy.driver.elapsed(start, end) < waited + 0.1


def test_host_callback_gives_work_to_another_stream_in_order(roomy: Any) -> None:
    driver, other = roomy.driver, roomy.driver.create_stream()
    x = roomy.put(np.zeros(4, np.uint8))
    seen: list[int] = []

    def callback() -> None:
        seen.append(threading.get_ident())
        driver.fill(other, x, 0, 4, 7)

    driver.call_host(None, callback)
    driver.synchronize(None, 5)
    assert roomy.get(x, 4, np.uint8, other).tolist() == [7] * 4
    assert seen[0] != threading.get_ident()


def test_fill_sets_only_its_bytes(roomy: Any) -> None:
    x = roomy.put(np.zeros(8, np.uint8))
    roomy.driver.fill(None, x, 2, 3, 255)
    assert roomy.get(x, 8, np.uint8).tolist() == [0, 0, 255, 255, 255, 0, 0, 0]


def test_peer_copy_reads_another_device(rig: Any) -> None:
    here, there = rig(0), rig(0)
    x, y = there.put(RAMP), here.put(ONES)
    there.driver.synchronize(None, 5)
    here.driver.copy_peer(None, y, 400, there.driver, x, 0, 400)
    np.testing.assert_array_equal(here.get(y, 1000), np.concatenate([ONES[:100], RAMP[:100], ONES[:800]]))
    with pytest.raises(DeviceError, match="no handle"):
        here.driver.copy(None, y, 0, x, 0, 4)


def test_memory_info_counts_what_is_alive(roomy: Any) -> None:
    free, total = roomy.driver.memory_info()
    x = roomy.driver.allocate(1 << 20)
    assert roomy.driver.memory_info() == (free - (1 << 20), total)
    roomy.driver.free(x)
    assert roomy.driver.memory_info() == (free, total)


def test_plan_replays_launches_and_copies_with_new_scalars(roomy: Any) -> None:
    slots = ((0, 0, 4000), (1, 0, 4000))
    launch = LaunchStep(roomy.program, "scale", (16, 1, 1), (1, 1, 1), slots, roomy.scalars(0, 0, 1000, 2.0))
    plan = roomy.driver.prepare([launch, CopyStep(2, 0, 1, 0, 2000)])
    x, y, z = roomy.put(RAMP), roomy.put(ONES), roomy.put(ONES)
    roomy.driver.replay(None, plan, [x, y, z], [(0, 12, np.float32(5).tobytes())])
    np.testing.assert_array_equal(roomy.get(y, 1000), 5 * RAMP)
    np.testing.assert_array_equal(roomy.get(z, 1000), np.concatenate([5 * RAMP[:500], ONES[:500]]))
    roomy.driver.replay(None, plan, [x, y, z], [])
    np.testing.assert_array_equal(roomy.get(y, 1000), 2 * RAMP)
    with pytest.raises(LaunchError, match="slots"):
        roomy.driver.replay(None, plan, [x, y], [])
    with pytest.raises(LaunchError, match="step 1"):
        roomy.driver.replay(None, plan, [x, y, z], [(1, 0, b"0")])
    roomy.driver.free(plan)
    with pytest.raises(DeviceError, match="freed"):
        roomy.driver.replay(None, plan, [x, y, z], [])


def test_compile_error_has_log_source_and_line() -> None:
    adapter = SimAdapter()
    source = "#include <stdint.h>\nint x = nowhere;\n"
    with pytest.raises(CompileError, match=r"2 \| int x = nowhere;") as caught:
        adapter.compile(adapter.devices()[0].target, source, [])
    assert "nowhere" in caught.value.log and caught.value.source == source


@pytest.mark.parametrize(
    ("source", "message"),
    [("void other(void) {}", "kernel missing"), ("void missing(void) { nowhere(); }", "nowhere")],
)
def test_missing_entry_or_function_is_a_compile_error(source: str, message: str) -> None:
    adapter = SimAdapter()
    with pytest.raises(CompileError, match=message):
        adapter.compile(adapter.devices()[0].target, source, ["missing"])


def test_load_refuses_what_is_no_executable(roomy: Any) -> None:
    with pytest.raises(CompileError, match="cannot be loaded"):
        roomy.driver.load(b"nonsense", [])


LLVM = """
define void @bump(ptr %buffers, ptr %scalars, ptr %begin, ptr %end) {
  %x = load ptr, ptr %buffers
  %v = load i32, ptr %x
  %w = add i32 %v, 41
  store i32 %w, ptr %x
  ret void
}
"""


def test_llvm_stands_in_where_there_is_no_c_compiler() -> None:
    adapter = SimAdapter(language="llvm")
    target = adapter.devices()[1].target
    assert target.language == "llvm" and "LLVM" in adapter.cache_key(target)
    with pytest.raises(CompileError, match="refused"):
        adapter.compile(target, "define nonsense", ["bump"])
    with pytest.raises(CompileError, match="other"):
        adapter.compile(target, LLVM, ["other"])
    driver = adapter.open(1)
    signature = KernelSignature("bump", (BufferArgument("x", dtypes.int32, dtypes.int32, "both"),), (), 0)
    program = driver.load(adapter.compile(target, LLVM, ["bump"]), [signature])
    x, out = driver.allocate(4), bytearray(4)
    driver.copy_in(None, x, 0, memoryview(b"\x01\0\0\0"))
    driver.launch(None, program, "bump", (1, 1, 1), (1, 1, 1), [(x, 0, 4)], b"")
    driver.copy_out(None, memoryview(out), x, 0)
    driver.synchronize(None, 5)
    assert out[0] == 42
    driver.free(program)
    driver.close()


def test_write_past_an_allocation_is_told_with_the_kernels_name(roomy: Any) -> None:
    x, y = roomy.put(RAMP), roomy.driver.allocate(400)
    roomy.scale(x, y, 100, grid=(2, 1, 1), scalars=roomy.scalars(0, 0, 101, 1.0))
    with pytest.raises(LaunchError, match="scale wrote outside an allocation of 400"):
        roomy.driver.synchronize(None, 5)
    roomy.driver.synchronize(None, 5)


def test_closed_device_refuses_and_closing_again_is_harmless(roomy: Any) -> None:
    roomy.put(RAMP)
    roomy.driver.close()
    roomy.driver.close()
    with pytest.raises(ClosedError):
        roomy.driver.allocate(4)


def test_close_drops_held_work_and_finishes_running_work(rig: Any) -> None:
    device = rig(0)
    faults.hold(device.driver)
    device.put(RAMP)
    other = device.driver.create_stream()
    x = device.put(ONES, other)
    device.run("spin", [x], stream=other)
    began = time.monotonic()
    device.driver.close()
    assert time.monotonic() - began < 4


def test_reset_gives_a_fresh_device(roomy: Any) -> None:
    x = roomy.put(RAMP)
    roomy.driver.reset()
    with pytest.raises(DeviceError, match="freed"):
        roomy.driver.free(x)
    free, total = roomy.driver.memory_info()
    assert free == total


def test_staged_copies_are_bounded(roomy: Any) -> None:
    block = np.zeros(16 << 20, np.uint8)
    x = roomy.driver.allocate(block.nbytes)
    for _ in range(12):
        roomy.driver.copy_in(None, x, 0, memoryview(block))
        assert roomy.driver.lane(None).staged <= 64 << 20
    roomy.driver.synchronize(None, 10)


@pytest.mark.parametrize("method", ["create_stream", "record", "memory_info", "reset", "prepare", "fill", "call_host"])
def test_tight_device_refuses_undeclared_abilities(tight: Any, method: str) -> None:
    arguments = {"record": (None,), "prepare": ([],), "fill": (None, None, 0, 4, 0), "call_host": (None, print)}
    with pytest.raises(UnsupportedError, match="capability"):
        getattr(tight.driver, method)(*arguments.get(method, ()))


def test_exit_with_live_handles_and_held_work_is_silent() -> None:
    script = """
from oarlock_sim import SimAdapter, faults
driver = SimAdapter().open(0)
x = driver.allocate(64)
stream = driver.create_stream()
held = faults.hold(driver, stream)
driver.fill(stream, x, 0, 64, 1)
driver.fill(None, x, 0, 64, 1)
event = driver.record(stream)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")


def test_freed_program_stays_loaded_while_its_kernel_runs(roomy: Any) -> None:
    x, queued = roomy.put(ONES), roomy.put(ONES)
    roomy.driver.synchronize(None, 5)
    roomy.run("spin", [x])
    while roomy.driver.lane(None).running is None:
        time.sleep(0.0005)
    roomy.run("spin", [queued])
    roomy.driver.free(roomy.program)
    with pytest.raises(LaunchError, match="kernel spin, when it ran.*was freed"):
        roomy.driver.synchronize(None, 5)
    assert roomy.get(x, 1)[0] == 2.0
