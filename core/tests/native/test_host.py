"""The host service, with and without the native module: grids, plans, threads, forks, memory."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oarlock.errors import BoundsError, OutOfMemoryError
from oarlock.hal import CopyStep, host
from oarlock.hal.host import HostLaunch, HostMemory, HostPlan, already_done, pieces, replay_plan, run_grid

KERNEL = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_uint32),
)


@pytest.fixture(params=["native", "python"], autouse=True)
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "python":
        monkeypatch.setattr(host, "_native", None)
    elif not host.native_available():
        pytest.skip("the native module is not built")
    monkeypatch.setattr(host.config, "threads", 4)
    yield request.param


@KERNEL
def mark(buffers, scalars, begin, end):  # type: ignore[no-untyped-def]
    """Adds the int32 scalar to each element of buffer 0 that belongs to a block of the grid (extents follow it)."""
    amount, gx, gy, gz = (ctypes.c_int32 * 4).from_address(scalars)
    out = np.frombuffer((ctypes.c_int32 * (gx * gy * gz)).from_address(buffers[0]), np.int32).reshape(gz, gy, gx)
    out[begin[2] : end[2], begin[1] : end[1], begin[0] : end[0]] += amount


MARK = ctypes.cast(mark, ctypes.c_void_p).value or 0


def scalars(amount: int, grid: tuple[int, int, int]) -> bytes:
    return np.array([amount, *grid], np.int32).tobytes()


@given(st.tuples(*[st.integers(1, 40)] * 3), st.integers(1, 300))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pieces_cover_the_grid_once(grid: tuple[int, int, int], wanted: int) -> None:
    seen = np.zeros(grid, np.int32)
    count = 0
    for begin, end in pieces(grid, wanted):
        box = tuple(slice(b, e) for b, e in zip(begin, end, strict=True))
        assert seen[box].size > 0
        seen[box] += 1
        count += 1
    assert (seen == 1).all() and count <= 4 * wanted


@pytest.mark.parametrize("grid", [(1, 1, 1), (5, 1, 1), (1, 7, 3), (33, 2, 5)])
def test_run_grid_runs_each_block_once(grid: tuple[int, int, int]) -> None:
    out = np.zeros(np.prod(grid), np.int32)
    for _ in range(20):
        run_grid(MARK, grid, [out.ctypes.data], scalars(3, grid))
    assert (out == 60).all()


def test_run_grid_uses_several_threads() -> None:
    seen: set[int] = set()
    gate = threading.Barrier(2, timeout=10)

    @KERNEL
    def meet(*_: object) -> None:
        if len(seen) < 2 and threading.get_native_id() not in seen:
            seen.add(threading.get_native_id())
            gate.wait()

    run_grid(ctypes.cast(meet, ctypes.c_void_p).value or 0, (16, 1, 1), [], b"")
    assert len(seen) >= 2


def test_run_grid_from_several_threads_at_once() -> None:
    grid = (64, 1, 1)
    outs = [np.zeros(64, np.int32) for _ in range(4)]

    def work(out: np.ndarray) -> None:
        for _ in range(50):
            run_grid(MARK, grid, [out.ctypes.data], scalars(1, grid))

    threads = [threading.Thread(target=work, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((out == 50).all() for out in outs)


def test_run_grid_works_in_a_forked_child() -> None:
    grid = (64, 1, 1)
    out = np.zeros(64, np.int32)
    run_grid(MARK, grid, [out.ctypes.data], scalars(1, grid))
    child = os.fork()
    if child == 0:
        run_grid(MARK, grid, [out.ctypes.data], scalars(1, grid))
        os._exit(0 if (out == 2).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (out == 1).all()


def test_plan_runs_steps_in_order_and_patches_one_run() -> None:
    grid = (8, 1, 1)
    plan = HostPlan(
        [
            HostLaunch(MARK, grid, ((0, 0),), scalars(1, grid)),
            CopyStep(1, 4, 0, 0, 28),
            HostLaunch(MARK, grid, ((1, 0),), scalars(10, grid)),
        ]
    )
    first, second = np.zeros(8, np.int32), np.zeros(8, np.int32)
    bindings = [first.ctypes.data, second.ctypes.data]
    plan.replay(bindings, [(2, 0, np.int32(100).tobytes())])
    assert first.tolist() == [1] * 8 and second.tolist() == [100] + [101] * 7
    plan.replay(bindings)
    assert first.tolist() == [2] * 8 and second.tolist() == [110] + [12] * 7


def test_services_for_drivers() -> None:
    grid = (8, 1, 1)
    plan = HostPlan([HostLaunch(MARK, grid, ((0, 0),), scalars(1, grid))])
    memory = HostMemory.allocate(32)
    memory.view[:] = bytes(32)
    replay_plan(None, plan, [memory], ())
    replay_plan(None, plan, (memory,), [(0, 0, np.int32(100).tobytes())])
    assert memory.view.cast("i").tolist() == [101] * 8
    with pytest.raises(BoundsError, match="1 slots"):
        replay_plan(None, plan, [], ())
    with pytest.raises(TypeError, match="argument"):
        replay_plan(None, plan, [memory])  # type: ignore[call-arg]
    plan.release()
    replay_plan(None, plan, [memory], ())
    assert memory.view.cast("i").tolist() == [101] * 8
    assert already_done(None, 0.1) is None  # type: ignore[func-returns-value]


def test_plan_refuses_bad_bindings_and_patches() -> None:
    grid = (8, 1, 1)
    plan = HostPlan([CopyStep(1, 0, 0, 0, 4), HostLaunch(MARK, grid, ((2, 0),), scalars(1, grid))])
    out = [np.zeros(8, np.int32).ctypes.data] * 3
    with pytest.raises(BoundsError, match="3 slots"):
        plan.replay(out[:2])
    for patch in [(0, 0, b"x"), (2, 0, b"x"), (-1, 0, b"x"), (1, 13, b"1234"), (1, -1, b"1")]:
        with pytest.raises(BoundsError, match="step"):
            plan.replay(out, [patch])


@given(st.integers(1, 5 << 20))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_memory_is_aligned_and_whole(nbytes: int) -> None:
    memory = HostMemory.allocate(nbytes)
    assert memory.nbytes == nbytes == len(memory.view)
    assert memory.address % (64 if nbytes < 1 << 20 else 2 << 20) == 0
    memory.view[nbytes - 1] = 42
    assert ctypes.string_at(memory.address + nbytes - 1, 1) == b"\x2a"


def test_memory_outlives_release_while_a_view_lives() -> None:
    memory = HostMemory.allocate(3 << 20)
    array = np.frombuffer(memory.view, np.uint8)
    array[:] = 9
    memory.release()
    assert memory.address == 0 and array.sum(dtype=np.int64) == 9 * (3 << 20)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_large_memory_is_private() -> None:
    """Shared anonymous memory gets no huge pages on most systems, whatever it asks for."""
    memory = HostMemory.allocate(3 << 20)
    child = os.fork()
    if child == 0:
        memory.view[7] = 42
        os._exit(0)
    os.waitpid(child, 0)
    assert memory.view[7] == 0


def test_memory_beyond_reason_raises() -> None:
    with pytest.raises(OutOfMemoryError):
        HostMemory.allocate(1 << 60)


def test_host_memory_bytes_is_plausible() -> None:
    free, total = host.host_memory_bytes()
    assert 0 < free <= total


def test_thread_count_follows_config(monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.thread_count() == 4
    monkeypatch.setattr(host.config, "threads", 0)
    assert 1 <= host.thread_count() <= (os.cpu_count() or 1)
