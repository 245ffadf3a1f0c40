"""The OpenCL adapter against the contract, with kernels written by hand."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.errors import (
    CompileError,
    DeviceError,
    DeviceNotFoundError,
    DeviceTimeoutError,
    LaunchError,
    OutOfMemoryError,
)
from oarlock_opencl import OpenCLAdapter, oarlock_adapter

ONES = np.ones(1000, np.float32)
RAMP = np.arange(1000, dtype=np.float32)


def child(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a new process."""
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )


def test_device_is_described_by_what_it_reports(device: Any) -> None:
    target, limits = device.info.target, device.info.target.limits
    assert target.language == "opencl" and target.computes(dtypes.int64)
    assert target.storage_of(dtypes.bfloat16) == dtypes.uint16 and target.storage_of(dtypes.bool_) == dtypes.uint8
    assert 0 < limits.max_allocation <= device.info.memory and limits.max_threads <= limits.max_block[0] ** 3
    assert limits.max_buffers >= 8 and limits.max_scalar_bytes >= 256 and limits.binding_alignment is None
    assert device.info.capabilities == {"streams", "elapsed_time", "fill", "plans"}
    again = oarlock_adapter().devices()[0]
    assert (again.name, again.target.flags) == (device.info.name, target.flags)


def test_processor_computes_blocks_as_functions_and_others_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is also a GPU, as Oclgrind says of itself, has threads."""
    import pyopencl as cl

    from oarlock_opencl import device as module

    is_processor, found = module.is_processor, module.all_devices()[0]
    kinds = cl.device_type
    for kind, alone in ((kinds.CPU, True), (kinds.CPU | kinds.DEFAULT, True), (kinds.CPU | kinds.GPU, False)):
        monkeypatch.setattr(module, "is_processor", lambda device, k=kind: is_processor(SimpleNamespace(type=k)))
        target = module.target_of(found)
        assert target.has_threads is not alone and (target.limits.max_block == (1, 1, 1)) is alone


def test_unknown_device_is_refused_naming_those_there_are() -> None:
    with pytest.raises(DeviceNotFoundError, match="no opencl:99; there are"):
        OpenCLAdapter().open(99)


def test_importing_the_adapter_loads_no_driver() -> None:
    script = "import sys, oarlock_opencl as o; o.oarlock_adapter(); print('pyopencl' in sys.modules)"
    assert child(script).stdout.strip() == "False"


def test_kernel_between_copies_gives_the_product_at_element_offsets(device: Any) -> None:
    x, y = device.put(RAMP), device.put(ONES)
    device.scale(x, y, 128, scalars=device.scalars(3, 7, 100, 3.0))
    expected = ONES.copy()
    expected[7:107] = 3 * RAMP[3:103]
    np.testing.assert_array_equal(device.get(y, 1000), expected)


def test_one_allocation_may_be_bound_twice(device: Any) -> None:
    x = device.put(RAMP)
    device.scale(x, x, 100, scalars=device.scalars(0, 500, 100, 2.0))
    np.testing.assert_array_equal(device.get(x, 1000)[500:600], 2 * RAMP[:100])


def test_scalar_block_of_every_width_arrives(device: Any) -> None:
    if not device.info.target.computes(dtypes.float64):
        pytest.skip("the device has no float64")
    x = device.driver.allocate(40)
    wide = device.signatures[1]
    assert [field.offset for field in wide.scalars] == [0, 8, 16, 24, 32]
    block = wide.pack({"a": 1.5, "b": -(2**40), "c": -7, "d": 1e300, "e": 2**63})
    device.run("wide", x, scalars=block)
    assert device.get(x, 5, np.float64).tolist() == [1.5, -(2.0**40), -7.0, 1e300, 2.0**63]


def test_grid_counts_blocks(device: Any) -> None:
    count = device.put(np.zeros(512, np.int32))
    device.driver.launch(None, device.program, "mark", (5, 7, 3), (4, 1, 1), [(count, 0, 2048)], b"")
    cube = device.get(count, 512, np.int32).reshape(8, 8, 8)
    assert cube[:3, :7, :5].min() == cube.max() == 4 and cube.sum() == 4 * 5 * 7 * 3


def test_threads_of_a_block_share_local_memory(device: Any) -> None:
    x = device.put(np.arange(64, dtype=np.int32))
    device.run("turn", x, 64)
    assert device.get(x, 64, np.int32).tolist() == list(range(63, -1, -1))


def test_declared_rounding_and_subnormals_are_true(device: Any) -> None:
    a, b = np.float32(1.1), np.float32(3.7)
    x = device.put(np.array([0, a, b, 0, b, 0, 1e-20, 1e-20], np.float32))
    device.run("arithmetic", x)
    out = device.get(x, 8)
    if "-cl-fp32-correctly-rounded-divide-sqrt" in device.info.target.flags:
        assert out[0] == a / b and out[3] == np.sqrt(b)
    tiny = np.float32(1e-20) * np.float32(1e-20)
    assert tiny > 0 and out[5] in ((0, tiny) if "float32" in device.info.target.flush_to_zero else (tiny,))


def test_copies_and_fill_honour_byte_offsets(device: Any) -> None:
    x = device.put(np.arange(16, dtype=np.uint8))
    y = device.put(np.zeros(16, np.uint8))
    device.driver.copy(None, y, 3, x, 5, 7)
    device.driver.copy_in(None, y, 12, memoryview(b"\x63"))
    device.driver.fill(None, y, 13, 2, 255)
    assert device.get(y, 16, np.uint8).tolist() == [0, 0, 0, 5, 6, 7, 8, 9, 10, 11, 0, 0, 99, 255, 255, 0]
    out = bytearray(3)
    device.driver.copy_out(None, memoryview(out), x, 13)
    device.driver.synchronize(None, 5)
    assert bytes(out) == b"\x0d\x0e\x0f"


def test_source_of_a_copy_may_be_reused_at_once(device: Any) -> None:
    source = RAMP.copy()
    x = device.driver.allocate(4000)
    hold = device.hold()
    device.driver.copy_in(None, x, 0, memoryview(source).cast("B"))
    source[:] = -1
    hold.set_status(0)
    np.testing.assert_array_equal(device.get(x, 1000), RAMP)


def test_submission_does_not_wait_for_a_held_stream(device: Any) -> None:
    x, y = device.put(RAMP), device.put(ONES)
    out = np.zeros(1000, np.float32)
    hold = device.hold()
    device.scale(x, y, 1000)
    device.driver.copy_out(None, memoryview(out).cast("B"), y, 0)
    with pytest.raises(DeviceTimeoutError, match=r"not done in 0\.05 s, from hold on"):
        device.driver.synchronize(None, 0.05)
    assert not out.any()
    hold.set_status(0)
    device.driver.synchronize(None, 5)
    np.testing.assert_array_equal(out, 2 * RAMP)


def test_stream_waits_for_the_event_of_a_held_producer(device: Any) -> None:
    driver = device.driver
    producer, consumer = driver.create_stream(), driver.create_stream()
    assert producer is not consumer
    x, y, z = device.put(RAMP), device.put(ONES), device.put(ONES)
    driver.synchronize(None, 5)
    hold = device.hold(producer)
    device.scale(x, y, 1000, stream=producer)
    event = driver.record(producer)
    driver.wait(consumer, event)
    device.scale(y, z, 1000, stream=consumer)
    assert not driver.query(event)
    hold.set_status(0)
    np.testing.assert_array_equal(device.get(z, 1000, stream=consumer), 4 * RAMP)
    assert driver.query(event)
    driver.destroy_event(event)
    driver.synchronize(producer, 5)
    driver.destroy_stream(producer)
    with pytest.raises(DeviceError, match="none of this device"):
        driver.record(producer)
    driver.destroy_stream(consumer)


def test_stream_without_a_wait_overtakes_a_held_one(device: Any) -> None:
    driver, quick = device.driver, device.driver.create_stream()
    hold = device.hold()
    np.testing.assert_array_equal(device.get(device.put(RAMP, quick), 1000, stream=quick), RAMP)
    hold.set_status(0)
    driver.destroy_stream(quick)


def test_failure_spoils_its_stream_and_those_that_wait_for_it(device: Any) -> None:
    driver, other = device.driver, device.driver.create_stream()
    x, y = device.put(ONES), device.put(ONES)
    driver.synchronize(None, 5)
    hold = device.hold()
    device.scale(x, y, 1000)
    event = driver.record(None)
    driver.wait(other, event)
    driver.fill(other, y, 0, 4000, 0)
    hold.set_status(-5)
    with pytest.raises(LaunchError, match="hold failed with status"):
        driver.synchronize(other, 5)
    assert driver.query(event)
    late = np.zeros(1000, np.float32)
    driver.copy_out(None, memoryview(late).cast("B"), y, 0)
    driver.wait(other, driver.record(None))
    driver.fill(other, x, 0, 4000, 0)
    for stream in (other, None):
        with pytest.raises(LaunchError, match="hold failed"):
            driver.synchronize(stream, 5)
    assert not late.any()
    np.testing.assert_array_equal(device.get(x, 1000), ONES)
    np.testing.assert_array_equal(device.get(y, 1000), ONES)
    driver.destroy_stream(other)


def test_failed_kernel_is_named(device: Any) -> None:
    import pyopencl as cl

    lane = device.driver.stream(None)
    x, y = device.put(ONES), device.put(ONES)
    device.driver.synchronize(None, 5)
    hold = cl.UserEvent(device.driver.context)
    lane.submit("kernel scale", lambda queue, wait_for: cl.enqueue_marker(queue, wait_for=[hold]))
    device.scale(x, y, 10)
    hold.set_status(-1)
    with pytest.raises(LaunchError, match="kernel scale failed"):
        device.driver.synchronize(None, 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block": (1 << 20, 1, 1)}, "kernel scale: .*INVALID_WORK_GROUP_SIZE"),
        ({"block": (32, 1, 1), "scalars": b""}, "kernel scale: .*INVALID_ARG_SIZE"),
    ],
)
def test_launch_that_cannot_be_submitted_is_refused_at_once(device: Any, changes: Any, message: str) -> None:
    x, y = device.put(ONES), device.put(ONES)
    with pytest.raises(LaunchError, match=message):
        device.scale(x, y, 10, **changes)
    device.scale(x, y, 10)


def test_event_of_another_device_is_refused(device: Any) -> None:
    second = OpenCLAdapter().open(0)
    event = second.record(None)
    with pytest.raises(DeviceError, match="INVALID_CONTEXT"):
        device.driver.wait(None, event)
    with pytest.raises(DeviceError, match="none of this device"):
        second.synchronize(device.driver.create_stream(), 1)
    second.close()


def test_elapsed_time_is_the_kernels(device: Any) -> None:
    x = device.put(ONES)
    device.driver.synchronize(None, 5)
    start = device.driver.record(None)
    began = time.perf_counter()
    device.run("spin", x)
    end = device.driver.record(None)
    device.driver.synchronize(None, 20)
    waited = time.perf_counter() - began
    assert 0.001 < device.driver.elapsed(start, end) < waited + 0.05
    assert device.driver.elapsed(end, start) == 0


def test_allocations_are_counted_and_limited(device: Any) -> None:
    driver, limit = device.driver, device.info.target.limits.max_allocation
    with pytest.raises(OutOfMemoryError, match=f"at most {limit} at once"):
        driver.allocate(limit + 1)
    before, kept = dict(driver.sizes), []
    with pytest.raises(OutOfMemoryError, match="in use"):
        for _ in range(device.info.memory // limit + 1):
            kept.append(driver.allocate(limit))
    for handle in kept:
        driver.free(handle)
    assert driver.sizes == before
    with pytest.raises(DeviceError, match="freed already"):
        driver.free(kept[0])


def test_staged_copies_and_pending_events_are_bounded(device: Any) -> None:
    lane = device.driver.stream(None)
    block = np.zeros(16 << 20, np.uint8)
    x = device.driver.allocate(block.nbytes)
    for _ in range(10):
        device.driver.copy_in(None, x, 0, memoryview(block))
        assert lane.kept <= (64 << 20) + block.nbytes
    for _ in range(1000):
        device.driver.fill(None, x, 0, 4, 0)
        device.driver.synchronize(None, 5)
    assert not lane.pending
    device.driver.free(x)


def test_build_error_has_log_source_and_line(device: Any) -> None:
    source = "__kernel void k(__global float *x) {\n    x[0] = nowhere;\n}\n"
    with pytest.raises(CompileError, match=r"2 \|     x\[0\] = nowhere;") as caught:
        device.driver.load(device.adapter.compile(device.info.target, source, ["k"]), [])
    assert "nowhere" in caught.value.log and caught.value.source == source


def test_kernel_that_the_source_lacks_is_refused(device: Any) -> None:
    with pytest.raises(CompileError, match="lacks a kernel among scale"):
        device.driver.load(b"__kernel void k(__global float *x) { x[0] = 1; }", device.signatures[:1])


def test_device_can_be_opened_again_and_closed_twice() -> None:
    adapter = OpenCLAdapter()
    for _ in range(2):
        driver = adapter.open(0)
        driver.copy_in(None, driver.allocate(64), 0, memoryview(bytes(64)))
        driver.close()
        driver.close()


def test_close_gives_up_on_a_stuck_stream(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from oarlock_opencl import stream

    monkeypatch.setattr(stream, "_CLOSE_S", 0.1)
    second: Any = OpenCLAdapter().open(0)
    import pyopencl as cl

    hold, lane = cl.UserEvent(second.context), second.stream(None)
    lane.pending.append((cl.enqueue_barrier(lane.queue, wait_for=[hold]), "hold", 0))
    out = bytearray(64)
    second.copy_out(None, memoryview(out), second.allocate(64), 0)
    began = time.monotonic()
    second.close()
    assert time.monotonic() - began < 2
    hold.set_status(0)


def test_exit_with_live_handles_and_a_failed_copy_is_silent() -> None:
    script = """
import pyopencl as cl
from oarlock.errors import LaunchError
from oarlock_opencl import OpenCLAdapter
driver = OpenCLAdapter().open(0)
x, stream = driver.allocate(64), driver.create_stream()
driver.fill(stream, x, 0, 64, 1)
event = driver.record(stream)
hold, lane = cl.UserEvent(driver.context), driver.stream(None)
lane.pending.append((cl.enqueue_barrier(lane.queue, wait_for=[hold]), "hold", 0))
out = bytearray(64)
driver.copy_in(None, x, 0, memoryview(bytes(64)))
driver.copy_out(None, memoryview(out), x, 0)
hold.set_status(-1)
try:
    driver.synchronize(None, 5)
except LaunchError as error:
    print(error)
"""
    done = child(script)
    assert (done.returncode, done.stderr) == (0, "") and "hold failed" in done.stdout


def test_every_device_of_a_platform_is_found_and_works() -> None:
    script = """
import json
from oarlock_opencl import OpenCLAdapter
adapter = OpenCLAdapter()
names = [info.name for info in adapter.devices()]
drivers = [adapter.open(index) for index in range(len(names))]
for number, driver in enumerate(drivers):
    x, out = driver.allocate(64), bytearray(64)
    driver.fill(None, x, 0, 64, number + 1)
    driver.copy_out(None, memoryview(out), x, 0)
    driver.synchronize(None, 5)
    assert bytes(out) == bytes([number + 1]) * 64
print(json.dumps([names, [info.name for info in adapter.devices()]]))
"""
    done = child(script, POCL_DEVICES="pthread basic pthread")
    assert done.returncode == 0, done.stderr
    names, again = json.loads(done.stdout)
    if len(names) == 1:
        pytest.skip("the OpenCL driver is not PoCL")
    assert names == again and sorted(name.split("-")[0] for name in names) == ["basic", "pthread", "pthread"]


def test_missing_platform_says_what_to_install(tmp_path: Any) -> None:
    script = """
from oarlock.errors import DeviceError
from oarlock_opencl import OpenCLAdapter
try:
    OpenCLAdapter().devices()
except DeviceError as error:
    print(error)
"""
    done = child(script, OCL_ICD_VENDORS=str(tmp_path / "none"))
    assert "PLATFORM_NOT_FOUND" in done.stdout and "pip install oarlock[opencl]" in done.stdout


def test_missing_pyopencl_says_what_to_install() -> None:
    script = """
import sys
sys.modules["pyopencl"] = None
from oarlock.errors import DeviceError
from oarlock_opencl import OpenCLAdapter
try:
    OpenCLAdapter().open(0)
except DeviceError as error:
    print(error)
"""
    assert "pip install oarlock[opencl]" in child(script).stdout


def test_processor_that_the_driver_cannot_build_for_is_told_at_open(monkeypatch: pytest.MonkeyPatch) -> None:
    from oarlock_opencl import device

    build = device.build
    monkeypatch.setattr(device, "build", lambda context, flags, source: build(context, flags, source + "nowhere"))
    with pytest.raises(DeviceError, match="fails to build an empty kernel.*PoCL.*generic"):
        OpenCLAdapter().open(0)


def test_copied_out_memory_is_kept_alive_while_it_is_written(device: Any) -> None:
    x = device.put(RAMP)
    hold = device.hold()
    out = np.zeros(1000, np.float32)
    address = out.ctypes.data
    view = memoryview(out).cast("B")
    device.driver.copy_out(None, view, x, 0)
    del out, view
    held = np.frombuffer(device.driver.stream(None).pending[-1][0].get_ward(), np.float32)
    assert held.ctypes.data == address
    hold.set_status(0)
    device.driver.synchronize(None, 5)
    np.testing.assert_array_equal(held, RAMP)
    assert ctypes.c_float.from_address(address + 4).value == 1.0


def test_freed_memory_is_not_kept_by_a_plan() -> None:
    """On a processor it is the host's: what a plan was run on last must not hold it."""
    script = """
import gc, weakref
import numpy as np
import oarlock as ol
from oarlock.hal.host import HostMemory
import oarlock_opencl.memory as memory
made = []
class Noted(memory.HostMemory):
    @classmethod
    def allocate(cls, nbytes):
        found = super().allocate(nbytes)
        made.append((nbytes, weakref.ref(found._owner)))
        return found
memory.HostMemory = Noted
add = ol.jit(lambda x: x + 1)
x = ol.asarray(np.ones(1 << 20, np.float32), device="opencl:0")
add(add(x)).numpy()
device = ol.device("opencl:0")
del x
ol.synchronize()
device.pool.release(0)
gc.collect()
print(sum(view() is not None for nbytes, view in made if nbytes >= 1 << 20), len(made))
"""
    alive, count = map(int, child(script).stdout.split())
    assert count and not alive
