"""The WebGPU adapter against the contract, with hand-written kernels; needs a device, such as Mesa's software one."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.errors import (
    CompileError,
    DeviceError,
    DeviceLostError,
    DeviceNotFoundError,
    DeviceTimeoutError,
    LaunchError,
    OutOfMemoryError,
)
from oarlock_webgpu import WebGPUAdapter, memory, stream

RAMP = np.arange(1000, dtype=np.float32)
ONES = np.ones(1000, np.float32)


def child(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a new process."""
    return subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120)


def test_the_target_says_what_webgpu_grants(device: Any) -> None:
    target, limits = device.info.target, device.info.target.limits
    assert target.language == "wgsl" and not target.stores(dtypes.float64) and not target.stores(dtypes.int64)
    assert target.storage_of(dtypes.float16) == dtypes.float32 and target.storage_of(dtypes.bool_) == dtypes.uint32
    assert limits.exclusive_binding and limits.copy_alignment == 4 and limits.binding_alignment in (32, 64, 128, 256)
    assert limits.max_binding >= 128 << 20 and limits.max_buffers >= 8 and limits.max_threads >= 256
    assert device.info.memory > 0 and WebGPUAdapter().devices() == WebGPUAdapter().devices()


def test_an_unknown_device_is_refused(adapter: WebGPUAdapter) -> None:
    with pytest.raises(DeviceNotFoundError, match="no device webgpu:99; there are"):
        adapter.open(99)


def test_a_kernel_between_copies_uses_its_scalars(device: Any) -> None:
    x, y = device.put(RAMP), device.put(ONES)
    device.scale(x, y, 100, 3.0, xo=3, yo=7)
    expected = ONES.copy()
    expected[7:107] = 3 * RAMP[3:103]
    np.testing.assert_array_equal(device.get(y, 1000), expected)


def test_local_memory_and_a_kernel_without_scalars(device: Any) -> None:
    counts = device.put(np.arange(64, dtype=np.uint32))
    for _ in range(3):
        device.driver.launch(None, device.program, "turn", (1, 1, 1), TURN_BLOCK, [(counts, 0, 256)], b"")
    np.testing.assert_array_equal(device.get(counts, 64, np.uint32), 63 - np.arange(64) + 3)


TURN_BLOCK = (64, 1, 1)


def test_more_launches_than_batch_and_ring_hold_stay_in_order(device: Any) -> None:
    x, y = device.put(RAMP), device.put(ONES)
    for number in range(3 * stream._BATCH * stream._AHEAD // 2):
        device.scale(x if number % 2 == 0 else y, y if number % 2 == 0 else x, 1000, 1.0)
        device.driver.copy_in(None, x, 0, np.full(1, number, np.float32).view(np.uint8).data)
    assert len(device.driver.waiting) <= 3
    assert device.get(x, 1)[0] == number


def test_scalar_blocks_past_the_ring_start_a_new_batch(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_RING", 3 * device.driver.unit)
    x, y = device.put(RAMP), device.put(ONES)
    for number in range(8):
        device.scale(x, y, 1, float(number), xo=1, yo=number)
    np.testing.assert_array_equal(device.get(y, 8), np.arange(8))


def test_bind_groups_are_kept_until_a_buffer_goes(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = device.driver
    x, y, z = device.put(RAMP), device.put(ONES), device.put(ONES)
    for _ in range(5):
        device.scale(x, y, 10, 2.0)
    device.scale(x, z, 10, 2.0)
    assert len(driver.groups) == 2
    driver.synchronize(None, 60.0)
    driver.free(z)
    assert len(driver.groups) == 1
    monkeypatch.setattr("oarlock_webgpu.program._GROUPS", 1)
    device.scale(y, x, 10, 0.5)
    assert len(driver.groups) == 1
    np.testing.assert_array_equal(device.get(x, 10), RAMP[:10])


def test_copies_within_one_buffer_go_through_another(device: Any) -> None:
    x = device.put(RAMP)
    device.driver.copy(None, x, 400, x, 0, 40)
    expected = RAMP.copy()
    expected[100:110] = RAMP[:10]
    np.testing.assert_array_equal(device.get(x, 1000), expected)


def test_a_copy_in_waits_when_much_is_staged(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_STAGED", 10_000)
    x = device.put(RAMP)
    for _ in range(5):
        device.driver.copy_in(None, x, 0, ONES.view(np.uint8).data)
    assert device.driver.staged <= 10_000
    np.testing.assert_array_equal(device.get(x, 1000), ONES)


def test_a_refused_source_is_shown_with_its_lines(device: Any) -> None:
    with pytest.raises(CompileError, match="unknown_function") as caught:
        device.driver.load(b"@compute @workgroup_size(1)\nfn k() { unknown_function(); }", [])
    assert "    2 | fn k() { unknown_function(); }" in str(caught.value)


def test_a_refused_launch_is_named_by_synchronize_once(device: Any) -> None:
    x = device.put(RAMP)
    device.scale(x, x, 10, 2.0)  # one buffer for reading and for writing: the core never does that here
    with pytest.raises(LaunchError, match="scale"):
        device.driver.synchronize(None, 60.0)
    np.testing.assert_array_equal(device.get(x, 1000), RAMP)


def test_a_wait_ends_when_its_time_is_up(device: Any) -> None:
    x, y = device.put(RAMP), device.put(ONES)
    device.scale(x, y, 1000, 2.0)
    device.driver.mark()
    event = type("Never", (), {"wait": staticmethod(lambda timeout: False)})()
    promise, read = device.driver.waiting[0]
    device.driver.waiting[0] = type("Promise", (), {"_thread_event": event})(), read
    with pytest.raises(DeviceTimeoutError, match="1 submissions not done in 0.01 s"):
        device.driver.synchronize(None, 0.01)
    device.driver.waiting[0] = promise, read
    np.testing.assert_array_equal(device.get(y, 1000), 2 * RAMP)


def test_memory_is_counted_and_freed_once(device: Any) -> None:
    driver = device.driver
    handle = driver.allocate(1001)
    driver.free(handle)
    with pytest.raises(DeviceError, match="freed already"):
        driver.free(handle)
    driver.total = 5000
    driver.allocate(1000)
    with pytest.raises(OutOfMemoryError, match="1000 of 5000 in use"):
        driver.allocate(5000)
    driver.total = 0
    with pytest.raises(OutOfMemoryError, match="bytes asked"):
        driver.allocate(1 << 62)


def test_exit_with_live_handles_is_silent_and_clean(adapter: WebGPUAdapter) -> None:
    done = child(
        """
        import numpy as np, oarlock as ol
        kept = ol.asarray(np.arange(9, dtype=np.float32), device="webgpu")
        total = ol.sum(kept * kept)
        print(float(total))
    """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "204.0\n", "")


def test_a_forked_child_is_refused(adapter: WebGPUAdapter) -> None:
    done = child(
        """
        import os, numpy as np, oarlock as ol
        from oarlock.errors import ForkedProcessError
        x = ol.asarray(np.arange(4, dtype=np.int32), device="webgpu") + 1
        assert x.numpy()[3] == 4
        if os.fork() == 0:
            try:
                (x + 1).numpy()
            except ForkedProcessError:
                os._exit(7)
            os._exit(1)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
    """
    )
    assert (done.stdout, done.stderr) == ("7\n", "")


def test_a_lost_device_says_so(device: Any) -> None:
    driver = device.driver
    x, y = device.put(RAMP), device.put(ONES)
    driver.device.destroy()
    for call in (
        lambda: driver.allocate(16),
        lambda: driver.copy_in(None, x, 0, ONES.view(np.uint8).data),
        lambda: driver.load(b"", []),
        lambda: device.scale(x, y, 10, 2.0),
        lambda: device.get(x, 1),
    ):
        with pytest.raises(DeviceLostError, match="the device is gone"):
            call()
