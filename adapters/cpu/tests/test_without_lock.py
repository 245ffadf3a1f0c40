"""A plan runs whole without the interpreter lock: its kernel waits for what another Python thread does meanwhile."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from oarlock import dtypes
from oarlock.abi import BufferArgument, KernelSignature
from oarlock.hal import LaunchStep, host
from oarlock_cpu import CpuAdapter

WAIT = """
define void @wait(ptr %buffers, ptr %scalars, ptr %begin, ptr %end) {
entry:
  %flag = load ptr, ptr %buffers
  %place = getelementptr ptr, ptr %buffers, i64 1
  %out = load ptr, ptr %place
  %before = load volatile i32, ptr %out
  %here = add i32 %before, 1
  store volatile i32 %here, ptr %out
  br label %look
look:
  %turn = phi i64 [ 0, %entry ], [ %next, %look ]
  %seen = load volatile i32, ptr %flag
  %next = add i64 %turn, 1
  %set = icmp sge i32 %seen, %here
  %late = icmp eq i64 %next, 6000000000
  %over = or i1 %set, %late
  br i1 %over, label %done, label %look
done:
  br i1 %set, label %answered, label %alone
alone:
  %count = getelementptr i32, ptr %out, i64 1
  %others = load i32, ptr %count
  %more = add i32 %others, 1
  store i32 %more, ptr %count
  br label %answered
answered:
  ret void
}
"""
"""Says at the second buffer that it runs, and waits until the first says as much; after a few seconds it gives up, and
counts that behind."""
STEPS = 3


@pytest.fixture(params=["native", "python"])
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if request.param == "python":
        monkeypatch.setattr(host, "_native", None)
    elif not host.native_available():
        pytest.skip("the native module is not built")
    opened = CpuAdapter().open(0)
    yield opened
    opened.close()


def test_other_threads_run_python_during_every_step_of_a_plan(driver: Any) -> None:
    arguments = tuple(BufferArgument(f"b{i}", dtypes.int32, dtypes.int32, "both") for i in range(2))
    signature = KernelSignature("wait", arguments, (), 0)
    adapter = CpuAdapter()
    program = driver.load(adapter.compile(adapter.devices()[0].target, WAIT, ["wait"]), [signature])
    flag, out = driver.allocate(4), driver.allocate(8)
    told, running, alone = (
        ctypes.c_int32.from_address(address) for address in (flag.address, out.address, out.address + 4)
    )
    told.value = running.value = alone.value = 0
    plan = driver.prepare([LaunchStep(program, "wait", (1, 1, 1), (1, 1, 1), ((0, 0, 4), (1, 0, 8)), b"")] * STEPS)
    finished = threading.Event()
    answered: list[int] = []

    def answer() -> None:
        while len(answered) < STEPS and not finished.is_set():
            if running.value > len(answered):
                answered.append(running.value)
                told.value = running.value
            time.sleep(1e-4)

    thread = threading.Thread(target=answer)
    thread.start()
    driver.replay(None, plan, [flag, out], [])
    finished.set()
    thread.join()
    driver.free(plan)
    assert (running.value, alone.value) == (STEPS, 0)
