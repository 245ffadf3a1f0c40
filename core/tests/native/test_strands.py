"""Strands of a host plan: they run at the same time where that saves time, in order inside, and never past a group."""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from oarlock.hal import CopyStep, host
from oarlock.hal.host import HostLaunch, HostPlan

KERNEL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.c_uint32)
)
ONE, MANY = (1, 1, 1), (4, 1, 1)
RUNS = 12
"""More than those that tell what a group saves."""


class Watch:
    """A kernel that notes when each launch runs, named by its scalar. It stays for ``linger`` seconds, or until it has
    been seen with another one."""

    def __init__(self) -> None:
        self.linger = 0.05
        self.changed = threading.Condition()
        self.inside: dict[int, int] = {}
        self.events: list[tuple[str, int]] = []
        self.together: set[frozenset[int]] = set()
        self.threads: set[int] = set()
        self._keep = KERNEL(self.run)
        self.address = ctypes.cast(self._keep, ctypes.c_void_p).value or 0

    def run(self, buffers: int, scalars: int, begin: object, end: object) -> None:
        name = ctypes.c_int32.from_address(scalars).value
        with self.changed:
            self.threads.add(threading.get_native_id())
            self.events.append(("begin", name))
            self.inside[name] = self.inside.get(name, 0) + 1
            self.together |= {frozenset((name, other)) for other, count in self.inside.items() if count}
            self.changed.notify_all()
            self.changed.wait_for(lambda: any(name in pair for pair in self.pairs()), timeout=self.linger)
            self.inside[name] -= 1
            self.events.append(("end", name))

    def pairs(self) -> set[frozenset[int]]:
        """Launches that were seen at the same time."""
        return {names for names in self.together if len(names) == 2}

    def launch(self, name: int, strand: int, grid: tuple[int, int, int] = ONE) -> HostLaunch:
        return HostLaunch(self.address, grid, ((0, 0),), np.int32(name).tobytes(), strand)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    if not host.native_available():
        pytest.skip("the native module is not built")
    monkeypatch.setattr(host.config, "threads", 2)
    yield Watch()


def replayed(steps: list[HostLaunch | CopyStep], runs: int = RUNS) -> None:
    memory = np.zeros(64, np.uint8)
    plan = HostPlan(steps)
    for _ in range(runs):
        plan.replay([memory.ctypes.data])


def test_two_launches_run_at_the_same_time(watch: Watch) -> None:
    replayed([watch.launch(0, 1), watch.launch(1, 2)])
    assert watch.pairs() == {frozenset((0, 1))} and len(watch.threads) > 1


def test_a_cut_grid_and_another_share_one_list_of_pieces_from_the_first_run_on(watch: Watch) -> None:
    watch.linger = 10
    replayed([watch.launch(0, 1), watch.launch(1, 2, MANY)], runs=1)
    assert watch.pairs() == {frozenset((0, 1))}
    assert watch.events.count(("begin", 0)) == 1 and watch.events.count(("begin", 1)) == MANY[0]


def test_a_strand_is_in_order_beside_another(watch: Watch) -> None:
    replayed([watch.launch(0, 1), watch.launch(1, 1), watch.launch(2, 2), watch.launch(3, 2)])
    assert watch.pairs() and watch.pairs().isdisjoint({frozenset((0, 1)), frozenset((2, 3))})
    for first, second in ((0, 1), (2, 3)):
        seen = [event for event in watch.events if event[1] in (first, second)]
        assert seen == [("begin", first), ("end", first), ("begin", second), ("end", second)] * RUNS


@pytest.mark.parametrize(
    "strands",
    [
        pytest.param((0, 0), id="no strands"),
        pytest.param((0, 1), id="alone before"),
        pytest.param((1, 0), id="alone after"),
        pytest.param((2, 1), id="the number falls"),
        pytest.param((1, 1), id="one strand"),
    ],
)
@pytest.mark.parametrize("grid", [ONE, MANY])
def test_what_is_not_in_two_strands_of_a_group_waits(
    watch: Watch, strands: tuple[int, int], grid: tuple[int, int, int]
) -> None:
    watch.linger = 0.005
    replayed([watch.launch(name, strand, grid) for name, strand in enumerate(strands)])
    assert watch.pairs() == set()


def test_a_group_waits_for_all_of_the_one_before(watch: Watch) -> None:
    strands = (1, 2, 1, 2)
    replayed([watch.launch(name, strand) for name, strand in enumerate(strands)])
    assert watch.pairs() == {frozenset((0, 1)), frozenset((2, 3))}


def test_a_copy_waits_and_is_waited_for(watch: Watch) -> None:
    memory = np.arange(8, dtype=np.int32)

    @KERNEL
    def add(buffers: int, scalars: int, *_: object) -> None:
        time.sleep(0.001)
        ctypes.c_int32.from_address(ctypes.c_void_p.from_address(buffers).value or 0).value += 1

    address = ctypes.cast(add, ctypes.c_void_p).value or 0
    plan = HostPlan(
        [
            HostLaunch(address, ONE, ((0, 0),), b"", 1),
            HostLaunch(address, ONE, ((0, 4),), b"", 2),
            CopyStep(0, 8, 0, 0, 8),
            HostLaunch(address, ONE, ((0, 8),), b"", 1),
            HostLaunch(address, ONE, ((0, 12),), b"", 2),
        ]
    )
    for run in range(1, RUNS):
        plan.replay([memory.ctypes.data])
        assert memory.tolist() == [run, 1 + run, 1 + run, 2 + run, 4, 5, 6, 7]


def test_one_thread_runs_all_in_order(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.config, "threads", 1)
    watch.linger = 0
    replayed([watch.launch(name, 1 + name, grid) for name, grid in enumerate((ONE, MANY, ONE))])
    assert watch.pairs() == set() and watch.threads == {threading.get_native_id()}
    assert [name for kind, name in watch.events if kind == "begin"] == [0, 1, 2] * RUNS


def test_patches_reach_the_launch_of_a_strand(watch: Watch) -> None:
    watch.linger = 0.005
    memory = np.zeros(1, np.int32)
    plan = HostPlan([watch.launch(0, 1), watch.launch(1, 1), watch.launch(2, 2)])
    for run in range(RUNS):
        watch.events.clear()
        plan.replay([memory.ctypes.data], [(1, 0, np.int32(100 + run).tobytes())])
        assert {name for _, name in watch.events} == {0, 100 + run, 2}


def test_threads_may_replay_one_plan_at_once(watch: Watch) -> None:
    out = np.zeros((4, 6), np.int32)

    @KERNEL
    def add(buffers: int, scalars: int, *_: object) -> None:
        ctypes.c_int32.from_address(ctypes.c_void_p.from_address(buffers).value or 0).value += 1

    address = ctypes.cast(add, ctypes.c_void_p).value or 0
    plan = HostPlan([HostLaunch(address, ONE, ((0, 4 * i),), b"", 1 + i // 2) for i in range(6)])

    def replay(row: np.ndarray) -> None:
        for _ in range(50):
            plan.replay([row.ctypes.data])

    threads = [threading.Thread(target=replay, args=(row,)) for row in out]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (out == 50).all()


def test_without_the_native_module_all_is_in_order(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_native", None)
    watch.linger = 0.005
    replayed([watch.launch(name, strand) for name, strand in enumerate((1, 1, 2, 3))], runs=2)
    begun = [name for kind, name in watch.events if kind == "begin"]
    assert begun == list(itertools.chain(range(4), range(4))) and watch.pairs() == set()
