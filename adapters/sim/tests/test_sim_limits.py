"""Both simulated devices enforce what they declare, and name the rule that was broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.abi import BufferArgument, KernelSignature, scalar_layout
from oarlock.errors import CompileError, DeviceError, LaunchError, OutOfMemoryError

DATA = np.ones(1000, np.float32)


@pytest.fixture
def operands(tight: Any) -> tuple[Any, Any]:
    return tight.put(DATA), tight.put(DATA)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"block": (2, 1, 1)}, "max_block"),
        ({"grid": (65536, 1, 1)}, "max_grid"),
        ({"grid": (1, 65536, 1)}, "max_grid"),
        ({"grid": (1, 1, 65536)}, "max_grid"),
        ({"grid": (0, 1, 1)}, "empty"),
        ({"entry": "nothing"}, "not in this program"),
        ({"scalars": b"\0" * 12}, "scalar bytes"),
    ],
)
def test_tight_launch_breaking_a_rule_is_refused(
    tight: Any, operands: tuple[Any, Any], changes: dict[str, Any], rule: str
) -> None:
    with pytest.raises(LaunchError, match=rule):
        tight.scale(*operands, 100, **changes)
    tight.scale(*operands, 100)
    tight.driver.synchronize(None, 5)


@pytest.mark.parametrize(
    ("base", "extent", "rule"),
    [
        (4, 400, "binding_alignment 256"),
        (128, 400, "binding_alignment 256"),
        (256, 3745, "leave an allocation of 4000"),
        (-256, 400, "leave"),
        (0, 0, "leave"),
        (4096, 4, "leave"),
    ],
)
def test_tight_binding_breaking_a_rule_is_refused(
    tight: Any, operands: tuple[Any, Any], base: int, extent: int, rule: str
) -> None:
    x, y = operands
    with pytest.raises(LaunchError, match=rule):
        tight.scale(x, y, 100, buffers=[(x, base, extent), (y, 0, 400)])


def test_tight_binding_at_an_aligned_base_reads_from_there(tight: Any) -> None:
    x, y = tight.put(np.arange(1000, dtype=np.float32)), tight.put(DATA)
    tight.scale(x, y, 100, buffers=[(x, 256, 400), (y, 512, 400)])
    out = tight.get(y, 1000)
    np.testing.assert_array_equal(out[128:228], 2 * np.arange(64, 164))
    assert (out[:128] == 1).all() and (out[228:] == 1).all()


def test_allocation_bound_twice_is_refused_where_binding_is_exclusive(tight: Any, roomy: Any) -> None:
    x = tight.put(DATA)
    with pytest.raises(LaunchError, match="exclusive_binding"):
        tight.scale(x, x, 50, buffers=[(x, 0, 256), (x, 512, 256)])
    y = roomy.put(DATA)
    roomy.scale(y, y, 1000)
    np.testing.assert_array_equal(roomy.get(y, 1000), 2 * DATA)


def test_roomy_base_must_be_zero(roomy: Any) -> None:
    x, y = roomy.put(DATA), roomy.put(DATA)
    with pytest.raises(LaunchError, match="must be 0"):
        roomy.scale(x, y, 100, buffers=[(x, 256, 400), (y, 0, 400)])


@pytest.mark.parametrize(("offset", "nbytes"), [(2, 4), (0, 6), (1, 1)])
def test_tight_copies_keep_to_copy_alignment(tight: Any, offset: int, nbytes: int) -> None:
    x, y = tight.driver.allocate(64), tight.driver.allocate(64)
    data = bytearray(nbytes)
    for call in (
        lambda: tight.driver.copy_in(None, x, offset, memoryview(data)),
        lambda: tight.driver.copy_out(None, memoryview(data), x, offset),
        lambda: tight.driver.copy(None, y, offset, x, 0, nbytes),
        lambda: tight.driver.copy(None, y, 0, x, offset, nbytes),
    ):
        with pytest.raises(DeviceError, match="copy_alignment 4"):
            call()


@pytest.mark.parametrize("offset", [-4, 61, 64])
def test_copies_outside_an_allocation_are_refused(roomy: Any, offset: int) -> None:
    x, y = roomy.driver.allocate(64), roomy.driver.allocate(64)
    data = bytearray(4)
    for call in (
        lambda: roomy.driver.copy_in(None, x, offset, memoryview(data)),
        lambda: roomy.driver.copy_out(None, memoryview(data), x, offset),
        lambda: roomy.driver.copy(None, y, offset, x, 0, 4),
        lambda: roomy.driver.copy(None, y, 0, x, offset, 4),
        lambda: roomy.driver.fill(None, x, offset, 4, 0),
    ):
        with pytest.raises(DeviceError, match="leave an allocation of 64"):
            call()


def test_overlapping_copy_is_refused(roomy: Any) -> None:
    x = roomy.driver.allocate(64)
    roomy.driver.copy(None, x, 32, x, 0, 32)
    with pytest.raises(DeviceError, match="overlap"):
        roomy.driver.copy(None, x, 31, x, 0, 32)


def test_allocation_limits_hold(tight: Any) -> None:
    with pytest.raises(OutOfMemoryError, match="max_allocation"):
        tight.driver.allocate((256 << 20) + 1)
    with pytest.raises(DeviceError, match="at least one"):
        tight.driver.allocate(0)
    blocks = [tight.driver.allocate(256 << 20) for _ in range(4)]
    with pytest.raises(OutOfMemoryError, match="1073741824 in use|in use"):
        tight.driver.allocate(4)
    tight.driver.free(blocks.pop())
    tight.driver.free(tight.driver.allocate(4))


def test_double_free_and_unknown_handles_are_refused(tight: Any, rig: Any) -> None:
    x = tight.driver.allocate(64)
    tight.driver.free(x)
    with pytest.raises(DeviceError, match="freed"):
        tight.driver.free(x)
    for handle in ("nonsense", rig(1).driver.allocate(64), tight.program):
        with pytest.raises(DeviceError, match="no handle"):
            tight.driver.copy_in(None, handle, 0, memoryview(bytes(4)))


def test_use_after_free_shows_at_submission_and_in_flight(roomy: Any) -> None:
    from oarlock_sim import faults

    x, y = roomy.put(DATA), roomy.put(DATA)
    roomy.driver.synchronize(None, 5)
    with faults.hold(roomy.driver):
        roomy.scale(x, y, 1000)
        roomy.driver.free(x)
    with pytest.raises(LaunchError, match="kernel scale, when it ran.*was freed"):
        roomy.driver.synchronize(None, 5)
    with pytest.raises(LaunchError, match="buffer 0.*was freed"):
        roomy.scale(x, y, 1000)


def _signature(count: int, dtype: dtypes.DType, storage: dtypes.DType) -> KernelSignature:
    buffers = tuple(BufferArgument(f"b{i}", dtype, storage, "both") for i in range(count))
    return KernelSignature("k", buffers, (), 0)


def _with_scalars(count: int, dtype: dtypes.DType) -> KernelSignature:
    fields, nbytes = scalar_layout([(f"s{i}", dtype) for i in range(count)])
    return KernelSignature("k", (), fields, nbytes)


@pytest.mark.parametrize(
    ("signature", "rule"),
    [
        (_signature(9, dtypes.float32, dtypes.float32), "max_buffers is 8"),
        (_with_scalars(65, dtypes.int32), "max_scalar_bytes is 256"),
        (_with_scalars(1, dtypes.int64), "not computed"),
        (_with_scalars(1, dtypes.float64), "not computed"),
        *((_signature(1, d, d), "does not store") for d in (dtypes.float64, dtypes.int64, dtypes.float16)),
        (_signature(1, dtypes.bool_, dtypes.uint8), "stored as int32"),
        (_signature(1, dtypes.int8, dtypes.int8), "stored as int32"),
    ],
)
def test_tight_device_loads_no_kernel_past_its_limits(tight: Any, signature: KernelSignature, rule: str) -> None:
    entry = "(void *const *b, const void *s, const unsigned begin[3], const unsigned end[3])"
    executable = tight.adapter.compile(tight.info.target, f"void k{entry} {{}}", ["k"])
    with pytest.raises(CompileError, match=rule):
        tight.driver.load(executable, [signature])
