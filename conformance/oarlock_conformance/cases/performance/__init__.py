"""The performance level: what the device reaches (bandwidth, latency, arithmetic), and where standard kernels stand.

Figures are recorded with their spread. A case fails for a wrong result, for a rate that cannot be, or for one that is
worse than the baseline's beyond the noise; never for missing a number that somebody wished for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from oarlock.runtime import Device, open_device
from oarlock_conformance.beating import beating
from oarlock_conformance.case import Case, Failure, Options, Outcome
from oarlock_conformance.cases import Report
from oarlock_conformance.cases.performance.kernels import KERNELS, measure_kernel
from oarlock_conformance.cases.performance.limits import LIMITS
from oarlock_conformance.cases.performance.measure import Lab
from oarlock_conformance.figures import pace

__all__ = ["plan", "run"]


def plan(device: Device, options: Options) -> list[Case]:
    """A case per limit and per kernel; those of a dtype that the device does not store are unsupported."""
    cases = []
    for limit in LIMITS.values():
        absent = limit.dtype is not None and not device.target.stores(limit.dtype)
        reason = f"{limit.dtype} is not stored" if absent else ""
        cases.append(Case(f"limit.{limit.name}", "performance", "limits", limit.contract, reason))
    for kernel in KERNELS.values():
        text = f"{kernel.what} gives right values; its time is recorded, and is no worse than the baseline's"
        cases.append(Case(f"kernel.{kernel.name}", "performance", "kernels", text))
    return cases


def run(device: str, cases: Sequence[str], options: Options, isolate: bool, report: Report) -> None:
    """Measure, by case id."""
    lab = Lab(open_device(device), options)
    for case in cases:
        report.start(case)
        with beating(report):
            outcome = _outcome(lab, case)
        report.end(outcome)


def _outcome(lab: Lab, case: str) -> Outcome:
    start = time.perf_counter()
    kind, name = case.split(".", 1)
    try:
        before = pace()
        details = LIMITS[name].measure(lab) if kind == "limit" else measure_kernel(lab, KERNELS[name])
        details["pace"] = (before + pace()) / 2
    except Failure as failure:
        return Outcome(case, "failed", time.perf_counter() - start, "value", str(failure))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return Outcome(case, "failed", time.perf_counter() - start, "exception", reason)
    return Outcome(case, "passed", time.perf_counter() - start, details=details)
