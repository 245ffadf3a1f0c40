"""The simulator's collective engine, driven through the contract."""

from __future__ import annotations

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.errors import DeviceError, DeviceTimeoutError, LaunchError
from oarlock_sim import faults


@pytest.fixture
def pair(rig):
    """Two rigs, with a group of both: [(rig, group handle), ...]."""
    rigs = [rig(0), rig(1)]
    unique = rigs[0].driver.unique_id()
    return [(each, each.driver.init_group(unique, rank, 2)) for rank, each in enumerate(rigs)]


def reduce(member, handle, count, kind="sum", dtype=dtypes.float32):
    each, group = member
    each.driver.all_reduce(None, group, (handle, 0), (handle, 0), count, dtype, kind)


@pytest.mark.parametrize(("kind", "wanted"), [("sum", 5.0), ("prod", 6.0), ("max", 3.0), ("min", 2.0)])
def test_all_reduce_in_place(pair, kind, wanted):
    handles = [each.put(np.full(70, rank + 2, np.float32)) for rank, (each, _) in enumerate(pair)]
    for member, handle in zip(pair, handles, strict=True):
        reduce(member, handle, 70, kind)
    for (each, _), handle in zip(pair, handles, strict=True):
        assert each.get(handle, 70).tolist() == [wanted] * 70


def test_offsets_are_bytes_and_the_rest_is_left_alone(pair):
    handles = [each.put(np.full(8, rank + 1, np.float32)) for rank, (each, _) in enumerate(pair)]
    for (each, group), handle in zip(pair, handles, strict=True):
        each.driver.all_reduce(None, group, (handle, 4), (handle, 16), 3, dtypes.float32, "sum")
    assert pair[0][0].get(handles[0], 8).tolist() == [1, 1, 1, 1, 3, 3, 3, 1]
    assert pair[1][0].get(handles[1], 8).tolist() == [2, 2, 2, 2, 3, 3, 3, 2]


def test_broadcast_send_and_recv(pair):
    (first, one), (second, two) = pair
    a, b = first.put(np.full(4, 7, np.float32)), second.put(np.zeros(4, np.float32))
    first.driver.broadcast(None, one, (a, 0), 2, dtypes.float32, 0)
    second.driver.broadcast(None, two, (b, 0), 2, dtypes.float32, 0)
    second.driver.send(None, two, (b, 8), 1, dtypes.float32, 0)
    first.driver.recv(None, one, (a, 12), 1, dtypes.float32, 1)
    assert second.get(b, 4).tolist() == [7, 7, 0, 0]
    assert first.get(a, 4).tolist() == [7, 7, 7, 0]


def test_collective_waits_in_its_stream_and_not_on_the_host(pair):
    (first, _), (second, _) = pair
    a, b = first.put(np.ones(4, np.float32)), second.put(np.ones(4, np.float32))
    reduce(pair[0], a, 4)
    with pytest.raises(DeviceTimeoutError, match="all_reduce"):
        first.driver.synchronize(None, 0.05)
    reduce(pair[1], b, 4)
    assert first.get(a, 4).tolist() == second.get(b, 4).tolist() == [2.0] * 4


def test_abort_ends_what_is_pending_and_the_stream_goes_on(pair):
    (first, group), _ = pair
    a = first.put(np.ones(4, np.float32))
    reduce(pair[0], a, 4)
    first.driver.abort_group(group)
    with pytest.raises(LaunchError, match="all_reduce: the group was aborted"):
        first.driver.synchronize(None, 5)
    assert first.get(a, 4).tolist() == [1.0] * 4
    first.driver.destroy_group(group)
    with pytest.raises(DeviceError, match="was freed"):
        reduce(pair[0], a, 4)


def test_failed_stream_is_told_to_the_other_rank(pair):
    (first, _), (second, _) = pair
    a, b = first.put(np.ones(4, np.float32)), second.put(np.ones(4, np.float32))

    def fail():
        raise LaunchError("a broken kernel")

    first.driver.submit(None, "broken", fail)
    reduce(pair[0], a, 4)
    reduce(pair[1], b, 4)
    with pytest.raises(LaunchError, match="stream of rank 0 had failed: a broken kernel"):
        second.driver.synchronize(None, 5)
    with pytest.raises(LaunchError, match="a broken kernel"):
        first.driver.synchronize(None, 5)


def test_closed_device_is_told_to_the_other_rank(pair):
    second, b = pair[1][0], pair[1][0].put(np.ones(4, np.float32))
    reduce(pair[1], b, 4)
    pair[0][0].driver.close()
    with pytest.raises(LaunchError, match="was closed"):
        second.driver.synchronize(None, 5)


def test_wrong_calls_are_refused(pair):
    (first, group), _ = pair
    a = first.put(np.ones(4, np.float32))
    with pytest.raises(DeviceError, match="leave an allocation"):
        reduce(pair[0], a, 5)
    with pytest.raises(DeviceError, match="no handle of _Member"):
        reduce((first, a), a, 4)
    unique = first.driver.unique_id()
    first.driver.init_group(unique, 0, 2)
    with pytest.raises(DeviceError, match="rank 0 of 2"):
        first.driver.init_group(unique, 0, 2)
    assert not first.driver.supports("all_reduce", dtypes.float16, "sum")
    with faults.plan(fail_at={"all_reduce": 1}), pytest.raises(DeviceError, match="injected fault"):
        reduce(pair[0], a, 4)
