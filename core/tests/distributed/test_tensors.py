"""Collectives on tensors: strided and recorded operands, values that never change, and the public names."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import oarlock as ol
from oarlock import distributed as dist

DEVICES = [["sim:0", "sim:1"], ["cpu:0", "cpu:0"]]


def run(devices, work):
    found = [None] * len(devices)

    def one(group):
        with group:
            found[group.rank] = work(group)

    threads = [threading.Thread(target=one, args=(g,), daemon=True) for g in dist.local_groups(devices, timeout_s=10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return found


@pytest.mark.parametrize("devices", DEVICES, ids="+".join)
def test_strided_and_recorded_operands(devices):
    base = np.arange(24, dtype=np.float32).reshape(4, 6)

    def work(group):
        x = ol.asarray(base, device=group.device) * (group.rank + 1)
        view = x.T[::2, ::-1]
        return dist.all_reduce(view, group).numpy(), dist.all_gather(view, group).numpy(), x.numpy()

    for rank, (total, gathered, kept) in enumerate(run(devices, work)):
        view = base.T[::2, ::-1]
        assert np.array_equal(total, 3 * view)
        assert np.array_equal(gathered, np.stack([view, 2 * view]))
        assert np.array_equal(kept, base * (rank + 1))


@pytest.mark.parametrize("devices", DEVICES, ids="+".join)
def test_functions_give_new_tensors(devices):
    def work(group):
        x = ol.asarray([[1.0, 2.0], [3.0, 4.0]], dtype=ol.float32, device=group.device) + 10 * group.rank
        before = x.numpy()
        got = [dist.broadcast(x, group, 1), dist.all_to_all(x, group), dist.reduce_scatter(x, group, "max")]
        scalar = dist.all_reduce(ol.asarray(2.0 + group.rank, dtype=ol.float32, device=group.device), group, "avg")
        if group.rank:
            dist.send(x.T, group, 0)
            received = None
        else:
            received = dist.recv((2, 2), ol.float32, group, 1).tolist()
        dist.barrier(group)
        assert np.array_equal(x.numpy(), before)
        return [each.tolist() for each in got], scalar.item(), received

    first, second = run(devices, work)
    assert first == ([[[11, 12], [13, 14]], [[1, 2], [11, 12]], [[11, 12]]], 2.5, [[11, 13], [12, 14]])
    assert second == ([[[11, 12], [13, 14]], [[3, 4], [13, 14]], [[13, 14]]], 2.5, None)


def test_public_names():
    assert ol.distributed is dist
    for name in dist.__all__:
        assert getattr(dist, name) is not None
