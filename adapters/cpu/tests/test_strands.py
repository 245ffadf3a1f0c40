"""Independent launches of a program share the threads; tiny ones stay with the caller, and results are the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import oarlock as ol
from oarlock import dtypes
from oarlock.abi import BufferArgument, KernelSignature
from oarlock.hal import LaunchStep, host
from oarlock.runtime import device as devices
from oarlock_cpu import CpuAdapter

COUNT = """
declare ptr @llvm.thread.pointer()
define void @count(ptr %buffers, ptr %scalars, ptr %begin, ptr %end) {
entry:
  %out = load ptr, ptr %buffers
  %place = getelementptr ptr, ptr %buffers, i64 1
  %turns = load ptr, ptr %place
  %last = load i64, ptr %turns
  br label %look
look:
  %turn = phi i64 [ 0, %entry ], [ %next, %look ]
  store volatile i64 %turn, ptr %out
  %next = add i64 %turn, 1
  %late = icmp sge i64 %next, %last
  br i1 %late, label %done, label %look
done:
  %self = call ptr @llvm.thread.pointer()
  store ptr %self, ptr %out
  ret void
}
"""
"""Counts as far as the second buffer says, then writes to the first which thread it is."""
RUNS = 60
Steps = list[list[int]]


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    if not host.native_available():
        pytest.skip("the native module is not built")
    monkeypatch.setattr(host.config, "threads", 2)


@pytest.fixture
def strands(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """The strand of each step, for each plan that is given to a driver."""
    seen: Steps = []
    prepare = devices.prepare

    def noting(device: Any, steps: Sequence[Any]) -> Any:
        seen.append([step.strand for step in steps])
        return prepare(device, steps)

    monkeypatch.setattr(devices, "prepare", noting)
    return seen


def threads_of(turns: int) -> list[tuple[int, int]]:
    """On which threads two strands ran, in each of some runs, with a kernel that counts so far."""
    driver, adapter = CpuAdapter().open(0), CpuAdapter()
    try:
        arguments = tuple(BufferArgument(f"b{i}", dtypes.int64, dtypes.int64, "both") for i in range(2))
        executable = adapter.compile(adapter.devices()[0].target, COUNT, ["count"])
        program = driver.load(executable, [KernelSignature("count", arguments, (), 0)])
        first, second, limit = (driver.allocate(8) for _ in range(3))
        limit.view.cast("q")[0] = turns
        one, block = (1, 1, 1), (1, 1, 1)
        steps = [
            LaunchStep(program, "count", one, block, ((slot, 0, 8), (2, 0, 8)), b"", strand)
            for slot, strand in ((0, 1), (1, 2))
        ]
        plan = driver.prepare(steps)
        found = []
        for _ in range(RUNS):
            driver.replay(None, plan, [first, second, limit], [])
            found.append((first.view.cast("q")[0], second.view.cast("q")[0]))
        return found
    finally:
        driver.close()


def test_long_strands_are_shared_with_another_thread(two_threads: None) -> None:
    found = threads_of(3_000_000)
    assert all(one == other for one, other in found[:3]), "the first runs tell what strands save"
    assert any(one != other for one, other in found[3:])


def test_tiny_strands_stay_on_the_calling_thread(two_threads: None) -> None:
    assert len({thread for pair in threads_of(10) for thread in pair}) == 1


def test_two_sorts_are_two_strands(two_threads: None, strands: Steps, device: Any) -> None:
    rng = np.random.default_rng(0)
    both = ol.jit(lambda x, y: (ol.sort(x), ol.sort(y)))
    for _ in range(8):
        x, y = rng.standard_normal((2, 1000), np.float32)
        a, b = both(ol.asarray(x, device="cpu"), ol.asarray(y, device="cpu"))
        np.testing.assert_array_equal(a.numpy(), np.sort(x))
        np.testing.assert_array_equal(b.numpy(), np.sort(y))
    (steps,) = (steps for steps in strands if len(steps) > 2)
    half = len(steps) // 2
    assert steps == [1] * half + [2] * half


def one_of(x: Any, y: Any) -> Any:
    return ol.sort(x + y), ol.cumulative_sum(x), ol.sort(y), x - y


def parts(x: Any, y: Any) -> Any:
    return ol.concat([ol.sort(x), ol.cumulative_sum(y), ol.exp(x)], axis=0), ol.sort(ol.concat([y, x], axis=0))


@pytest.mark.parametrize("function", [one_of, parts])
@pytest.mark.parametrize("size", [7, 300, 5000])
@pytest.mark.parametrize("bound", ["two", "one", "overlapping"])
def test_results_are_those_of_one_thread(
    function: Callable[..., Any],
    size: int,
    bound: str,
    two_threads: None,
    monkeypatch: pytest.MonkeyPatch,
    device: Any,
) -> None:
    """Whatever the parameters are bound to: two tensors, one for both, or parts of one that overlap."""
    memory = ol.asarray(np.random.default_rng(1).integers(0, 999, 2 * size).astype(np.float32), device="cpu")
    x = memory[:size]
    y = {"two": memory[size:], "one": x, "overlapping": memory[size // 2 : size // 2 + size]}[bound]
    compiled = ol.jit(function)
    monkeypatch.setattr(host.config, "threads", 1)
    expected = [result.numpy().copy() for result in compiled(x, y)]
    monkeypatch.setattr(host.config, "threads", 2)
    for _ in range(8):
        for result, wanted in zip(compiled(x, y), expected, strict=True):
            np.testing.assert_array_equal(result.numpy(), wanted)
