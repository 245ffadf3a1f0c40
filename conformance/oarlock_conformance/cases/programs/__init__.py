"""The programs level: compiled programs and recorded arrays, many at a time, out of memory, on threads and devices."""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Sequence

import numpy as np

from oarlock.errors import OarlockError
from oarlock.runtime import Device
from oarlock_conformance.case import Case, Failure, Options, Outcome
from oarlock_conformance.cases import Report
from oarlock_conformance.cases.programs.register import CASES, Stage

__all__ = ["plan", "run"]

for _name in ("plans", "memory", "arrays", "threads", "devices", "lifetime", "networks"):
    importlib.import_module(f"{__name__}.{_name}")


def plan(device: Device, options: Options) -> list[Case]:
    """Every case; those that need what the device does not have are unsupported."""
    return [Case(c.id, "programs", c.group, c.contract, c.unsupported(device)) for c in CASES.values()]


def run(device: str, cases: Sequence[str], options: Options, isolate: bool, report: Report) -> None:
    """Run cases by id."""
    stage = Stage(device, options)
    for identity in cases:
        report.start(identity)
        report.end(_outcome(stage, identity))


def _outcome(stage: Stage, identity: str) -> Outcome:
    before = _handles(stage)
    start = time.perf_counter()
    try:
        with np.errstate(all="ignore"):
            details = CASES[identity].check(stage) or {}
    except Failure as failure:
        return Outcome(identity, "failed", time.perf_counter() - start, "value", str(failure))
    except Exception as error:
        return Outcome(identity, "failed", time.perf_counter() - start, "exception", f"{type(error).__name__}: {error}")
    finally:
        stage.tidy()
    seconds = time.perf_counter() - start
    left = [f"{after - count} {kind}" for kind, count in before.items() if (after := _handles(stage)[kind]) > count]
    if left:
        return Outcome(identity, "error", seconds, "leak", f"the case left {', '.join(left)} alive")
    return Outcome(identity, "passed", seconds, details=details)


def _handles(stage: Stage) -> dict[str, int]:
    """Live streams and events, once what was dropped has been given back."""
    gc.collect()
    try:
        stage.device.synchronize()
    except OarlockError:
        stage.device.close()
    stats = stage.device.stats()
    return {"streams": stats.streams, "events": stats.events}
