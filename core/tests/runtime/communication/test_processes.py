"""Ranks as processes: joining, strangers, misfits, and ranks that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from oarlock.errors import BoundsError, CommunicationError, ConfigError, MismatchError, RankLostError, RankTimeoutError
from oarlock.runtime import open_device
from oarlock.runtime.communication import join_group

from .conftest import full, together

pytestmark = pytest.mark.skipif(os.name != "posix", reason="addresses here are paths of local sockets")

RANK = """
import sys
import numpy as np
from oarlock.runtime import open_device, from_numpy
from oarlock.runtime.communication import join_group
address, rank, world = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
device = open_device("cpu:0")
with join_group(address, device, rank, world, key=b"k", timeout_s=30) as group:
    x = from_numpy(np.full(1000, rank + 1, np.float32), device)
    print(group.all_reduce(x).numpy()[-1], flush=True)
    group.all_reduce(x)  # waits for a rank that never comes
"""


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "meet")


def join(address, rank, world=2, key=b"k", timeout_s=10.0):
    return join_group(address, open_device("cpu:0"), rank, world, key=key, timeout_s=timeout_s)


def test_ranks_over_a_socket_work_as_threads_do(address):
    def work(rank):
        with join(address, rank, 3) as group:
            sizes = [group.all_reduce(full(group, n)).numpy().sum() for n in (0, 1, 5, 100_000)]
            with pytest.raises(MismatchError, match="count"):
                group.all_reduce(full(group, 3 + rank))
            with pytest.raises(ConfigError if rank == 1 else CommunicationError, match="not today"):
                with_refusal(group, rank)
            group.barrier()
            return sizes, group.all_gather(full(group, 2, dtype=np.int8)).numpy().tolist()

    wanted = ([0.0, 6.0, 30.0, 600_000.0], [[1, 1], [2, 2], [3, 3]])
    assert together([lambda r=r: work(r) for r in range(3)]) == [wanted] * 3


def with_refusal(group, rank):
    with group._work("all_reduce", full(group, 2), None, "sum") as work:
        if rank == 1:
            raise ConfigError("not today")
        work.all_reduce(full(group, 2), full(group, 2), "sum")


def test_tcp_address():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def work(rank):
        with join(f"127.0.0.1:{port}", rank) as group:
            return group.all_reduce(full(group, 3)).numpy().tolist()

    assert together([lambda: work(0), lambda: work(1)]) == [[3.0] * 3] * 2


def test_strangers_and_misfits(address):
    found = together([lambda: join(address, 0, timeout_s=1.5), lambda: join(address, 1, key=b"other", timeout_s=1.5)])
    assert type(found[0]) is RankTimeoutError and "absent: rank 1" in str(found[0])
    assert type(found[1]) is CommunicationError and "key" in str(found[1])
    found = together([lambda: join(address, 0, 2), lambda: join(address, 1, 3)])
    assert all(type(error) is MismatchError and "world_size" in str(error) for error in found)
    found = together([lambda: join(address, 0, 3), lambda: join(address, 1, 3), lambda: join(address, 1, 3)])
    assert all(type(error) is MismatchError for error in found) and "two ranks" in str(found[0])


def test_nobody_comes(address):
    with pytest.raises(RankTimeoutError, match="absent: rank 1, 2"):
        join(address, 0, 3, timeout_s=0.2)
    with pytest.raises(RankTimeoutError, match="does not listen"):
        join(address, 1, 3, timeout_s=0.2)


def test_wrong_arguments(address):
    with pytest.raises(BoundsError, match="ranks are 0 to 1"):
        join(address, 2)
    with pytest.raises(ConfigError, match="key is empty"):
        join(address, 0, key=b"")
    with pytest.raises(CommunicationError, match="cannot listen"):
        join("/nowhere/at/all", 0, timeout_s=0.2)


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_rank_is_told_to_the_other(address, victim):
    other = 1 - victim
    with subprocess.Popen(
        [sys.executable, "-c", RANK, address, str(victim), "2"], stdout=subprocess.PIPE, text=True
    ) as process:
        group = join(address, other, timeout_s=30)
        total = group.all_reduce(full(group, 1000)).numpy()
        assert total.tolist() == [3.0] * 1000
        assert process.stdout.readline().strip() == "3.0"
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        start = time.monotonic()
        with pytest.raises(RankLostError, match=f"rank {victim}"):
            group.all_reduce(full(group, 1000))
        assert time.monotonic() - start < 5
        group.close()
    with (
        open_device("cpu:0").create_stream()
        if open_device("cpu:0").can.streams
        else open_device("cpu:0").default_stream
    ):
        assert full(group, 3).numpy().tolist() == [other + 1.0] * 3, "the device is as good as before"


def test_rank_0_may_close_first(address):
    def work(rank):
        with join(address, rank, 3) as group:
            total = group.all_reduce(full(group, 50_000))
        return float(total.numpy()[-1])

    assert together([lambda r=r: work(r) for r in range(3)]) == [6.0] * 3


def test_rank_0_that_closed_is_named(address):
    def work(rank):
        with join(address, rank) as group:
            group.barrier()
            if rank == 0:
                return None
            time.sleep(0.2)
            assert group._meeting.failure is None, "that rank 0 has closed the group is no failure by itself"
            with pytest.raises(RankLostError, match="rank 0.* has closed the group"):
                group.barrier()
            with pytest.raises(RankLostError):
                group.barrier()
            return None

    assert together([lambda: work(0), lambda: work(1)]) == [None, None]
