"""Whole plans: launches whose arguments stay bound, and only what is another thing in a run is bound again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from oarlock.hal import CopyStep, KernelSignature, LaunchStep

N = 200
RAMP = np.arange(N, dtype=np.float32)
GRID, BLOCK = (4, 1, 1), (64, 1, 1)


@pytest.fixture
def plan(device: Any) -> Any:
    """Slot 1 becomes 2 x slot 0, slot 2 becomes 3 x slot 1, and the first two of slot 2 are copied behind slot 0."""
    bound = [((0, 0, 4 * N), (1, 0, 4 * N)), ((1, 0, 4 * N), (2, 0, 4 * N))]
    steps: list[Any] = [
        LaunchStep(device.program, "scale", GRID, BLOCK, slots, device.scalars(0, 0, N, factor))
        for slots, factor in zip(bound, (2.0, 3.0), strict=True)
    ]
    return device.driver.prepare([*steps, CopyStep(0, 4 * N - 8, 2, 4, 8)])


def patch(factor: float, step: int = 1) -> tuple[int, int, bytes]:
    """Another factor for a step: the last scalar."""
    return step, 12, np.float32(factor).tobytes()


def test_runs_have_their_own_buffers_and_scalars(device: Any, plan: Any) -> None:
    """The second run is given before the first has ended, and what it replaces is gone in the third."""
    runs = []
    for scale, scalars, factor in ((1.0, [], 6.0), (5.0, [patch(7.0), patch(1.0, 0)], 7.0), (9.0, [], 6.0)):
        x, y, z = device.put(scale * RAMP), device.put(RAMP), device.put(RAMP)
        device.driver.replay(None, plan, [x, y, z], scalars)
        runs.append((x, z, factor * scale * RAMP))
    for x, z, expected in runs:
        np.testing.assert_array_equal(device.get(z, N), expected)
        np.testing.assert_array_equal(device.get(x, N)[-2:], expected[1:3])


def test_arguments_that_stay_are_bound_once(device: Any, plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[tuple[int, int]] = []

    class Watched:
        """A kernel that notes which of its arguments are bound."""

        def __init__(self, number: int, kernel: Any) -> None:
            self.number, self.kernel = number, kernel

        def set_arg(self, position: int, argument: Any) -> None:
            bound.append((self.number, position))
            self.kernel.set_arg(position, argument)

    for number, launch in enumerate(plan.steps[:2]):
        launch.kernel = Watched(number, launch.kernel)
    enqueue = cl.enqueue_nd_range_kernel
    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", lambda q, k, *rest, **more: enqueue(q, k.kernel, *rest, **more))
    x, y, z = (device.put(RAMP) for _ in range(3))
    replay = device.driver.replay
    replay(None, plan, [x, y, z], [])
    assert bound == [(0, 0), (0, 1), (1, 0), (1, 1)]
    replay(None, plan, [x, y, z], [])
    assert len(bound) == 4
    replay(None, plan, [x, y, device.put(RAMP)], [])
    assert bound[4:] == [(1, 1)]
    replay(None, plan, [x, y, z], [patch(4.0)])
    assert bound[5:] == [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5)]
    replay(None, plan, [x, y, z], [])  # the plan's own scalars again
    assert len(bound) == 14
    replay(None, plan, [x, y, z], [])
    assert len(bound) == 14
    device.driver.synchronize(None, 10.0)


def test_memory_that_was_freed_is_not_kept_bound(device: Any, plan: Any) -> None:
    x, y = device.put(RAMP), device.put(RAMP)
    for scale in (1.0, 2.0, 3.0):
        z = device.put(scale * RAMP)
        device.driver.replay(None, plan, [x, y, z], [])
        found = device.get(z, N)
        device.driver.free(z)
        np.testing.assert_array_equal(found[:3], 6 * RAMP[:3])
    device.driver.free(plan)


def test_buffer_is_bound_again_where_another_one_was() -> None:
    """Its address in the driver may be that of one that was freed: some drivers look behind it when it is bound."""
    from oarlock_opencl.plan import BoundLaunch

    bound: list[object] = []
    kernel = SimpleNamespace(set_arg=lambda position, value: bound.append(value))
    launch = BoundLaunch(kernel, KernelSignature("k", (), (), 0, (1, 1, 1)), (1, 1, 1), (1, 1, 1), (0,), b"")
    first, second = SimpleNamespace(int_ptr=1), SimpleNamespace(int_ptr=1)
    for buffer in (first, first, second, first):
        launch.bind([buffer], ())
    assert [each is first for each in bound] == [True, False, True]
