"""Cases of failure: ranks that do not come, fail, leave or die. The others are told, and their devices stay usable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import numpy as np

from oarlock import dtypes
from oarlock.errors import ClosedError, CommunicationError, RankLostError, RankTimeoutError
from oarlock.runtime import DeviceArray, from_numpy
from oarlock.runtime.communication import ProcessGroup, join_group, local_groups
from oarlock_conformance.bench import expect, expect_equal, raises
from oarlock_conformance.case import Failure
from oarlock_conformance.cases.collectives.party import TIMEOUT_S, Party
from oarlock_conformance.cases.collectives.register import collective_case

_TIMEOUT_S = 0.5
_SOON_S = 10.0


class _Dies(Exception):
    """What ends a rank in these cases."""


def _numbers(group: ProcessGroup, count: int = 64) -> DeviceArray:
    return from_numpy(np.full(count, group.rank + 1, np.int32), group.device)


def _good(group: ProcessGroup) -> None:
    """An all_reduce that works."""
    world = group.world_size
    wanted = np.full(64, world * (world + 1) // 2, np.int32)
    expect_equal(group.all_reduce(_numbers(group)).numpy(), wanted, "an all_reduce before the fault")
    group.barrier()  # every rank has seen it


def _lost(group: ProcessGroup, *words: str) -> None:
    """An all_reduce that must raise RankLostError with ``words``, soon; later ones too, at once."""
    start = time.perf_counter()
    with raises(RankLostError, f"all_reduce on rank {group.rank}", *words):
        group.all_reduce(_numbers(group))
    with raises(RankLostError, f"the next call on rank {group.rank}"):
        group.barrier()
    taken = time.perf_counter() - start
    expect(taken < _SOON_S, f"rank {group.rank} was told after {taken:.1f} s")


@collective_case("failures.thread/after_success", "a rank that dies after a good all_reduce: the others are told why")
def after_success(party: Party) -> None:
    for world in (2, 3, 4):

        def work(group: ProcessGroup, last: int = world - 1) -> None:
            _good(group)
            if group.rank == last:
                raise _Dies("on purpose")
            _lost(group, f"rank {last}", "on purpose")

        found = party.outcomes(world, work, dtypes.int32)
        _judge(found[:-1])
        expect(isinstance(found[-1], _Dies), f"the rank that dies ended with {found[-1]!r}")
        party.works(*party.devices(world, dtypes.int32))


def _judge(found: list[None | BaseException]) -> None:
    for rank, each in enumerate(found):
        if isinstance(each, BaseException):
            raise Failure(f"rank {rank}: {type(each).__name__}: {each}") from each


@collective_case(
    "failures.timeout/absent", "a rank that makes no call: the others raise within the time-out, naming it"
)
def absent_rank(party: Party) -> None:
    done = threading.Event()

    def work(group: ProcessGroup) -> None:
        _good(group)
        if group.rank == 1:
            done.wait(_SOON_S)
            with raises(CommunicationError, "the late rank's call"):
                group.all_reduce(_numbers(group))
            return
        start = time.perf_counter()
        try:
            with raises(RankTimeoutError, f"all_reduce on rank {group.rank}", "all_reduce", "rank 1"):
                group.all_reduce(_numbers(group))
        finally:
            done.set()
        taken = time.perf_counter() - start
        expect(_TIMEOUT_S * 0.5 < taken < _TIMEOUT_S + _SOON_S, f"a time-out of {_TIMEOUT_S} s took {taken:.1f} s")

    party.ranks(3, work, dtypes.int32, timeout_s=_TIMEOUT_S)
    party.works()


@collective_case("failures.close/used", "a rank that has closed the group: calls that need it raise, on both sides")
def closed(party: Party) -> None:
    def work(group: ProcessGroup) -> None:
        _good(group)
        if group.rank == 0:
            group.close()
            group.close()
            with raises(ClosedError, "a call of a closed group"):
                group.barrier()
        else:
            with raises(RankLostError, "a call that needs a rank which has closed the group", "rank 0"):
                group.all_reduce(_numbers(group))

    party.ranks(2, work, dtypes.int32)


@collective_case(
    "failures.groups/two_pending", "two groups are pending when a rank dies: both calls end, and the device works"
)
def two_pending(party: Party) -> None:
    devices = party.devices(2, dtypes.int32)
    first, second = local_groups(devices, timeout_s=TIMEOUT_S), local_groups(devices, timeout_s=TIMEOUT_S)
    ended: list[BaseException | None] = []
    waiting = threading.Barrier(3)

    def wait(group: ProcessGroup) -> None:
        _good(group)
        waiting.wait(_SOON_S)
        try:
            group.all_reduce(_numbers(group))
        except BaseException as error:
            ended.append(error)
        else:
            ended.append(None)
        group.close()

    def die() -> None:
        with first[1], second[1]:
            for group in (first[1], second[1]):
                _good(group)
            waiting.wait(_SOON_S)
            time.sleep(0.05)
            raise _Dies("in the midst of two groups")

    def dead() -> None:
        try:
            die()
        except _Dies:
            return

    threads = [threading.Thread(target=wait, args=(group,), daemon=True) for group in (first[0], second[0])]
    threads.append(threading.Thread(target=dead, daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
        expect(not thread.is_alive(), "a pending call has not ended after its rank died")
    kinds = [type(error).__name__ for error in ended]
    expect(kinds == ["RankLostError"] * 2, f"the two pending calls ended with {kinds}, expected RankLostError twice")
    party.works(*devices)


@collective_case("failures.dropped/told", "a rank that drops its group without closing it: the others are told")
def dropped(party: Party) -> None:
    groups = local_groups(party.devices(2, dtypes.int32), timeout_s=TIMEOUT_S)
    stays = groups[0]
    del groups
    with stays:
        _lost(stays, "rank 1")
    party.works()


_CHILD = """
    import json, os, sys
    sys.path[:] = json.loads(sys.argv[2])
    import numpy as np
    from oarlock.runtime import open_device, from_numpy
    from oarlock.runtime.communication import join_group
    device = open_device(sys.argv[1])
    with join_group(sys.argv[3], device, 1, 2, key=b"conformance", timeout_s=60) as group:
        x = from_numpy(np.arange(1000, dtype=np.int32), device)
        found = [group.all_reduce(x).numpy(), group.all_gather(x).numpy(), group.all_to_all(x).numpy()]
        found += [group.reduce_scatter(x, kind="max").numpy(), group.broadcast(x, 0).numpy()]
        group.send(x, 0)
        print(json.dumps([part.ravel().tolist() for part in found]), flush=True)
        if sys.argv[4] == "dies":
            os._exit(0)
"""


def _pair(party: Party, how: str) -> tuple[ProcessGroup, subprocess.Popen[str], tempfile.TemporaryDirectory[str]]:
    """Rank 0 here and rank 1 in a child process, joined."""
    folder = tempfile.TemporaryDirectory(prefix="oarlock-")
    address = str(Path(folder.name, "meet")) if os.name == "posix" else f"127.0.0.1:{20000 + os.getpid() % 20000}"
    text = textwrap.dedent(_CHILD)
    other = party.devices(2, dtypes.int32)[1].name
    child = subprocess.Popen(
        [sys.executable, "-c", text, other, json.dumps(sys.path), address, how],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        return join_group(address, party.device, 0, 2, key=b"conformance", timeout_s=60.0), child, folder
    except CommunicationError:
        child.kill()
        child.wait()
        raise


def _with_child(party: Party, how: str) -> None:
    group, child, folder = _pair(party, how)
    ramp = np.arange(1000, dtype=np.int32)
    mine = ramp * np.int32(3)
    with folder, child, group:
        x = from_numpy(mine, party.device)
        found = [group.all_reduce(x).numpy(), group.all_gather(x).numpy(), group.all_to_all(x).numpy()]
        found += [group.reduce_scatter(x, kind="max").numpy(), group.broadcast(x, 0).numpy()]
        got = group.recv(from_numpy(np.zeros(1000, np.int32), party.device), 1).numpy()
        names = ("all_reduce", "all_gather", "all_to_all", "reduce_scatter", "broadcast")
        total = mine + ramp
        both = np.stack([mine, ramp])
        for rank, parts in enumerate((found, _told(child))):
            half = slice(rank * 500, rank * 500 + 500)
            wanted = [total, both, both[:, half].reshape(-1), both.max(axis=0)[half], mine]
            for name, part, want in zip(names, parts, wanted, strict=True):
                expect_equal(part.reshape(want.shape), want, f"{name} between two processes, rank {rank}")
        expect_equal(got, mine, "recv from another process")
        if how == "dies":
            child.wait(_SOON_S)
            _lost(group, "rank 1")
    expect(child.wait(_SOON_S) == 0, f"the other process ended with status {child.returncode}")


def _told(child: subprocess.Popen[str]) -> list[np.ndarray[tuple[int], np.dtype[np.int32]]]:
    assert child.stdout is not None
    return [np.array(part, np.int32) for part in json.loads(child.stdout.readline())]


@collective_case("failures.process/values", "two processes: every collective gives what it gives between threads")
def process_values(party: Party) -> None:
    _with_child(party, "lives")
    party.works()


@collective_case(
    "failures.process/dies", "a process that dies after good collectives: the other is told, and its device works"
)
def process_dies(party: Party) -> None:
    _with_child(party, "dies")
    party.works()
