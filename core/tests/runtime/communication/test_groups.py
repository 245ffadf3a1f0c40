"""Groups of threads: adapters mixed, one device twice, an engine, faults of a device, and what is left afterwards."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.errors import BoundsError, ClosedError, CommunicationError, DeviceError, LaunchError, RankLostError
from oarlock.runtime import DeviceArray, from_numpy, open_device, to_numpy
from oarlock.runtime.abilities import abilities_of
from oarlock.runtime.communication import local_groups

from .conftest import full, run_ranks, together

sim = pytest.importorskip("oarlock_sim")
DEVICES = [
    ["sim:0", "sim:1"],
    ["sim:0", "sim:0"],
    ["cpu:0", "sim:1", "sim:0"],
    ["sim:1"],
    ["sim:0", "sim:1", "cpu:0", "sim:0"],
]


@pytest.mark.parametrize("devices", DEVICES, ids="+".join)
@pytest.mark.parametrize("dtype", [np.float32, np.int8], ids=lambda d: d.__name__)
def test_every_collective_on_any_devices(devices, dtype):
    world = len(devices)

    def work(group):
        rank, mine = group.rank, np.arange(2 * world, dtype=dtype) + 10 * group.rank
        x = from_numpy(mine, group.device)
        every = np.stack([np.arange(2 * world, dtype=dtype) + 10 * r for r in range(world)])
        part = slice(2 * rank, 2 * rank + 2)
        assert np.array_equal(group.all_reduce(x).numpy(), every.sum(0).astype(dtype))
        assert np.array_equal(group.all_gather(x).numpy(), every)
        assert np.array_equal(group.reduce_scatter(x, kind="min").numpy(), every.min(0)[part])
        assert np.array_equal(group.all_to_all(x).numpy(), every[:, part].reshape(-1))
        if world > 1 and rank < 2:
            y = from_numpy(mine, group.device)
            if rank:
                assert group.recv(y, 0) is y
            else:
                group.send(y, 1)
            assert np.array_equal(y.numpy(), every[0])
        assert np.array_equal(group.broadcast(x, world - 1).numpy(), every[-1])
        return group.native

    assert run_ranks(devices, work) == [devices in (["sim:0", "sim:1"], ["sim:1"])] * world


def test_engine_serves_what_it_has_and_the_rest_is_composed(monkeypatch):
    from oarlock_sim.device import SimDriver

    given = []
    for name in ("all_reduce", "broadcast", "send", "recv"):
        inner = getattr(SimDriver, name)
        monkeypatch.setattr(SimDriver, name, lambda *a, n=name, f=inner: (given.append(n), f(*a))[1])

    def work(group):
        x, small = full(group, 4), full(group, 4, dtype=np.int8)
        for call in (group.all_reduce, group.all_gather, group.reduce_scatter, group.all_to_all):
            call(x)
            call(small)
        group.all_reduce(x, kind="avg")
        group.all_reduce(full(group, 0))
        group.device.synchronize()

    assert run_ranks(["sim:0", "sim:1"], work) == [None, None]
    counts = {name: given.count(name) for name in set(given)}
    assert counts == {
        "all_reduce": 4,
        "broadcast": 4,
        "send": 2,
        "recv": 2,
    }  # by 2 ranks; int8, avg and 0 go by the host


def test_engine_leaves_no_handle_behind():
    driver = open_device("sim:0").driver
    before = len(driver.objects)
    assert (
        run_ranks(["sim:0", "sim:1"], lambda group: group.all_reduce(full(group, 4)).numpy().tolist())
        == [[3.0] * 4] * 2
    )
    gc.collect()
    open_device("sim:0").synchronize()
    open_device("sim:0").collect()
    assert len([thing for thing in driver.objects.values() if type(thing).__name__ == "_Member"]) == 0
    assert len(driver.objects) <= before + 1


@pytest.mark.parametrize("devices", [["sim:0", "sim:1"], ["sim:0", "cpu:0"]], ids="+".join)
def test_failed_producer_is_its_ranks_error_and_the_others_are_told(devices):
    def work(group):
        x = full(group, 4, dtype=np.int8)  # by the host, on every pair of devices
        if group.rank == 0:
            group.device.driver.submit(None, "broken", _break)
        try:
            group.all_reduce(x)
        except CommunicationError as error:
            first = error
        except LaunchError as error:
            first = error
        return first, group.all_reduce(x).numpy().tolist()

    (own, after), (other, after_too) = run_ranks(devices, work)
    assert type(own) is LaunchError and "a broken kernel" in str(own)
    assert type(other) is CommunicationError and "rank 0 cannot take part" in str(other) and "broken" in str(other)
    assert after == after_too == [3] * 4


def _break():
    raise LaunchError("a broken kernel")


def test_engine_that_refuses_a_call_breaks_the_group_and_not_the_device():
    with sim.faults.plan(fail_at={"all_reduce": 3}):

        def work(group):
            for _ in range(3):
                group.all_reduce(full(group, 4))
                group.device.synchronize()

        found = run_ranks(["sim:0", "sim:1"], work)
    assert sorted(type(each).__name__ for each in found) in (
        ["DeviceError", "LaunchError"],
        ["DeviceError", "RankLostError"],
    )
    for name in ("sim:0", "sim:1"):
        open_device(name).synchronize()
    assert run_ranks(["sim:0", "sim:1"], lambda g: g.all_reduce(full(g, 2)).numpy().tolist()) == [[3.0, 3.0]] * 2


def test_abort_ends_what_an_engine_has_pending():
    told = threading.Event()

    def work(group):
        if group.rank == 1:
            hold = sim.faults.hold(group.device.driver)
            try:
                group.all_reduce(full(group, 4))
                group.barrier()
                group.abort("has had enough")
                assert told.wait(10)
            finally:
                hold.release()
            return None
        group.all_reduce(full(group, 4))
        group.barrier()
        start = time.monotonic()
        with pytest.raises(LaunchError, match="aborted"):
            group.device.synchronize()
        with pytest.raises(RankLostError, match="had enough"):
            group.barrier()
        return time.monotonic() - start < 5

    assert run_ranks(["sim:0", "sim:1"], work)[0] is True
    for name in ("sim:0", "sim:1"):
        try:
            open_device(name).synchronize()
        except LaunchError:
            pass  # rank 1's own part, which was aborted too
        open_device(name).synchronize()


def test_results_order_with_the_stream():
    def work(group):
        device = group.device
        side = device.create_stream()
        x = device.allocate(400)
        held = sim.faults.hold(device.driver, side.handle) if group.rank == 0 else None
        device.copy_in(x, 0, np.full(100, group.rank + 1, np.float32), side)
        if held is not None:
            threading.Timer(0.1, held.release).start()
        out = group.all_reduce(DeviceArray(device, x, 0, dtypes.float32, (100,)), stream=side)
        return to_numpy(out, side).tolist()

    assert run_ranks(["sim:0", "sim:0"], work) == [[3.0] * 100] * 2


def test_dropped_group_is_told():
    first, second = local_groups([open_device("cpu:0")] * 2, timeout_s=20)
    del second
    with pytest.raises(RankLostError, match="rank 1 dropped its group"):
        first.all_reduce(full(first, 2))
    first.close()


def test_rank_that_closed_and_dropped_its_group_does_not_break_it():
    groups = local_groups([open_device("cpu:0")] * 3, timeout_s=20)
    together([group.barrier for group in groups])  # the first call, of whatever kind, is everybody's
    groups[0].close()
    del groups[0]
    gc.collect()
    time.sleep(0.05)
    low, high = groups
    got = together([lambda: low.send(full(low, 2), 2), lambda: high.recv(full(high, 2), 1).numpy().tolist()])
    assert got == [None, [2.0, 2.0]]
    with pytest.raises(RankLostError, match="rank 0 has closed the group"):
        low.barrier()


def test_closing_ends_the_own_call_of_another_thread():
    first, second = local_groups([open_device("cpu:0")] * 2, timeout_s=20)

    def close():
        time.sleep(0.1)
        first.close()

    start = time.monotonic()
    error, _ = together([first.barrier, close])
    assert type(error) is RankLostError and time.monotonic() - start < 10
    second.close()


def test_engine_without_a_name_is_refused(monkeypatch):
    from oarlock_sim.device import SimDriver

    monkeypatch.setattr(SimDriver, "engine", "")
    driver = open_device("sim:0").driver
    with pytest.raises(DeviceError, match="communication, and its driver has no engine"):
        abilities_of(driver, frozenset({"communication"}))


def test_collective_with_other_parameters_is_refused(monkeypatch):
    from oarlock_sim.device import SimDriver

    monkeypatch.setattr(SimDriver, "broadcast", lambda self, stream, group, buffer: None)
    driver = open_device("sim:0").driver
    with pytest.raises(
        DeviceError, match=r"broadcast.* cannot take the 6 arguments of the contract: broadcast\(stream"
    ):
        abilities_of(driver, frozenset({"communication"}))


def test_wrong_arguments():
    first, second = local_groups([open_device("cpu:0"), open_device("sim:0")], timeout_s=5)
    with pytest.raises(BoundsError, match="no rank 2; ranks are 0 to 1"):
        first.send(full(first, 2), 2)
    with pytest.raises(BoundsError, match="itself"):
        first.recv(full(first, 2), 0)
    foreign = full(second, 2)
    found = together([lambda: first.all_reduce(foreign), lambda: second.all_reduce(foreign)])
    assert type(found[0]) is DeviceError and "sim:0" in str(found[0]) and "cpu:0" in str(found[0])
    assert type(found[1]) is CommunicationError
    for group in (first, second):
        group.close()
        group.close()
    with pytest.raises(ClosedError, match="rank 0 has closed its group"):
        first.barrier()
    with pytest.raises(BoundsError, match="at least one rank"):
        local_groups([])
