"""The collectives level: what it plans, several devices of one adapter, and faults that its cases must find."""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.runtime import open_device
from oarlock.runtime.communication import calls, composed, group, hub, reduction, work
from oarlock_conformance.case import LEVELS, Options
from oarlock_conformance.cases import collectives

QUICK = Options(quick=True)
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv")


class Kept:
    """A report that keeps the outcomes."""

    def __init__(self) -> None:
        self.outcomes = {}

    def start(self, *cases):
        pass

    def beat(self):
        pass

    def end(self, outcome):
        self.outcomes[outcome.case] = outcome


def run(device, pattern):
    planned = collectives.plan(open_device(device), QUICK)
    chosen = [case.id for case in planned if not case.unsupported and fnmatch.fnmatch(case.id, pattern)]
    assert chosen, pattern
    report = Kept()
    collectives.run(device, chosen, QUICK, False, report)
    assert list(report.outcomes) == chosen
    return report.outcomes


def problems(device, pattern):
    return [f"{o.case}: {o.reason}" for o in run(device, pattern).values() if o.state != "passed"]


def test_plan_names_every_operation_dtype_and_size_once():
    assert "collectives" in LEVELS
    for name in ("sim:0", "sim:1"):
        device = open_device(name)
        planned = collectives.plan(device, QUICK)
        ids = [case.id for case in planned]
        assert len(set(ids)) == len(ids)
        for operation in OPERATIONS:
            for dtype in ("bool", "int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"):
                for world in range(1 + (operation == "send_recv"), 5):
                    found = [case for case in planned if case.id.endswith(f"{operation}/{dtype}-x{world}")]
                    assert len(found) == 1
                    assert bool(found[0].unsupported) != device.target.stores(dtypes.by_name(dtype))


HEALTHY = [
    ("sim:0", "reductions.*/float32-x2"),
    ("sim:0", "agreement.*"),
    ("sim:0", "engine.*"),
    ("sim:0", "order.memory/reuse"),
    ("sim:1", "moves.*/bool-x3"),
    ("sim:1", "failures.thread/*"),
    ("cpu:0", "failures.groups/*"),
    ("cpu:0", "*/bfloat16-x4"),
]


@pytest.mark.parametrize(("device", "pattern"), HEALTHY)
def test_healthy_device_passes(device, pattern):
    assert problems(device, pattern) == []


def _no_reduction(monkeypatch):
    from oarlock_sim.device import SimDriver

    inner = SimDriver._give

    def give(self, name, stream, member, members, src, dst, count, dtype, result):
        own = member.rank
        kept = (lambda exchange: exchange.sent[own]) if name == "all_reduce" else result
        inner(self, name, stream, member, members, src, dst, count, dtype, kept)

    monkeypatch.setattr(SimDriver, "_give", give)


def _last_rank_left_out(monkeypatch):
    inner = reduction.combine
    monkeypatch.setattr(composed, "combine", lambda values, *rest: inner(values[: max(1, len(values) - 1)], *rest))


def _narrow_accumulation(monkeypatch):
    def narrow(values, dtype, kind):
        total = values[0].copy()
        for other in values[1:]:
            total = {"sum": np.add, "avg": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[kind](
                total, other
            ).astype(dtype.numpy)
        return (total / dtype.numpy.type(len(values))).astype(dtype.numpy) if kind == "avg" else total

    monkeypatch.setattr(composed, "combine", narrow)


def _nan_lost(monkeypatch):
    monkeypatch.setitem(reduction._FUNCTIONS, "max", np.fmax)


def _average_is_sum(monkeypatch):
    inner = reduction.combine
    monkeypatch.setattr(composed, "combine", lambda v, d, kind: inner(v, d, "sum" if kind == "avg" else kind))


def _saturates(monkeypatch):
    inner = reduction.combine

    def clipped(values, dtype, kind):
        if not dtype.is_integer or kind != "sum":
            return inner(values, dtype, kind)
        limits = np.iinfo(dtype.numpy)
        return np.clip(sum(v.astype(object) for v in values), limits.min, limits.max).astype(dtype.numpy)

    monkeypatch.setattr(composed, "combine", clipped)


def _ranks_reversed(monkeypatch):
    monkeypatch.setattr(
        composed.Composed,
        "_join",
        lambda self, parcels: np.concatenate([self._values(parcels[r]) for r in sorted(parcels, reverse=True)]),
    )


def _root_ignored(monkeypatch):
    inner = composed.Composed.broadcast
    monkeypatch.setattr(composed.Composed, "broadcast", lambda self, values, root: inner(self, values, root) * 0)


def _unchecked(monkeypatch):
    monkeypatch.setattr(hub, "difference", lambda left, right: "")


def _kind_unchecked(monkeypatch):
    monkeypatch.setattr(calls, "_FIELDS", tuple(pair for pair in calls._FIELDS if pair[0] != "kind"))


def _offset_ignored(monkeypatch):
    from dataclasses import replace

    inner = work.Work._write
    monkeypatch.setattr(
        work.Work, "_write", lambda self, array, values: inner(self, replace(array, offset_bytes=0), values)
    )


def _refusal_unsaid(monkeypatch):
    monkeypatch.setattr(hub._Round, "finish", lambda self, name: setattr(self, "done", True))


def _stream_ignored(monkeypatch):
    from dataclasses import replace

    inner = work.Work._read

    def read(self, array):
        host = np.empty(array.size, array.storage.numpy)
        with array.device.using("copy_out"):  # at once, whatever the stream still does
            block = array.device.driver.objects.get(array.buffer.allocation.handle)
        if block is None:
            return inner(self, array)
        host[:] = np.frombuffer(block.view, array.storage.numpy, array.size, array.offset_bytes)
        return inner(replace(self), array) if array.storage != array.dtype else host

    monkeypatch.setattr(work.Work, "_read", read)
    monkeypatch.setattr(group, "shared_engine", lambda members: False)


FAULTS = [
    (_no_reduction, "reductions.all_reduce/int32-x2"),
    (_last_rank_left_out, "reductions.*/int8-x3"),
    (_narrow_accumulation, "reductions.all_reduce/*float16-x4"),
    (_nan_lost, "reductions.all_reduce/nan"),
    (_average_is_sum, "reductions.reduce_scatter/float64-x2"),
    (_saturates, "reductions.all_reduce/uint8-x2"),
    (_ranks_reversed, "moves.all_gather/int8-x3"),
    (_root_ignored, "moves.broadcast/int8-x2"),
    (_unchecked, "agreement.count/*"),
    (_unchecked, "agreement.root/*"),
    (_kind_unchecked, "agreement.kind/*"),
    (_offset_ignored, "moves.all_to_all/float64-x2"),
    (_refusal_unsaid, "agreement.refused/reported"),
    (_stream_ignored, "order.stream/slow_producer"),
]


@pytest.mark.parametrize(("plant", "pattern"), FAULTS, ids=[f"{p.__name__[1:]}-{c}" for p, c in FAULTS])
def test_planted_fault_is_found(plant, pattern, monkeypatch):
    plant(monkeypatch)
    assert problems("sim:0", pattern) != []


CHILD = """
    import json, sys
    sys.path[:] = json.loads(sys.argv[1])
    from oarlock.runtime import open_device
    from oarlock_conformance.case import Options
    from oarlock_conformance.cases import collectives

    class Report:
        failed = ran = 0
        def start(self, *cases): pass
        def beat(self): pass
        def end(self, outcome):
            Report.ran += 1
            if outcome.state != "passed":
                Report.failed += 1
                print(outcome, file=sys.stderr)

    device = open_device("opencl:0")
    wanted = ("all_gather/int8-x3", "all_reduce/float32-x3", "agreement.count", "order.memory", "failures.thread")
    options = Options(quick=True)
    cases = [c.id for c in collectives.plan(device, options) if not c.unsupported and any(w in c.id for w in wanted)]
    collectives.run("opencl:0", cases, options, False, Report())
    print(len(device.adapter.devices()), Report.ran, Report.failed)
"""


def test_three_devices_of_one_platform():
    pytest.importorskip("pyopencl")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), json.dumps(sys.path)],
        env={**os.environ, "POCL_DEVICES": "pthread basic pthread"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    devices, ran, failed = map(int, done.stdout.split())
    if devices < 3:
        pytest.skip(f"this platform gives {devices} device(s), whatever POCL_DEVICES says")
    assert ran > 7 and failed == 0, done.stderr
