"""Vacuity: which cases pass on a device whose results are zero, or which gets scrambled operands.

    python conformance/tests/saboteurs/vacuous.py [--json] [--jobs N] [--only PATTERN]

A case that passes there although its right results are neither zero nor free of operands checks nothing.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from trial import PREFIX, temporary_site

from oarlock_conformance.case import Case, Options, Outcome
from oarlock_conformance.environment import suite_hash
from oarlock_conformance.runner import groups_of, make_plan, run_groups

__all__ = ["DEVICES", "Vacuity", "measure"]

DEVICES = ("results_zeroed", "inputs_scrambled")
_LEVELS = ("operators",)
_NO_VALUES = ("*/refused",)
"""Cases that compare no values: that a dtype is refused."""
_NO_WITNESS = {
    "results_zeroed": ("sum.float16_beyond_its_range", "determinism.*", "view.offset"),
    "inputs_scrambled": ("empty.*", "determinism.*", "view.offset"),
}
"""Named cases that cannot tell: their right result is zero, they have no operands, or they compare two results."""


@dataclass(frozen=True, slots=True)
class Vacuity:
    """One device: cases run, those that failed as they should, those that cannot tell and why (an expected result of
    zeros, no operands), and those that passed and should not have."""

    device: str
    cases: int
    failed: int
    cannot_tell: tuple[str, ...]
    vacuous: tuple[str, ...]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return {
            "device": self.device, "cases": self.cases, "failed": self.failed,
            "cannot_tell": len(self.cannot_tell), "cannot_tell_cases": list(self.cannot_tell),
            "vacuous": list(self.vacuous), "seconds": round(self.seconds, 1),
        }  # fmt: skip


def measure(device: str, only: str, options: Options, jobs: int, tell: Callable[[str], None]) -> Vacuity:
    """Run every case that compares values on one of DEVICES."""
    start = time.perf_counter()
    planned = make_plan(f"{PREFIX}healthy:0", _LEVELS, options).cases
    cases = [case for case in planned if not case.unsupported and _compares(case)]
    if only:
        cases = [case for case in cases if fnmatch.fnmatchcase(case.id, only) or fnmatch.fnmatchcase(case.group, only)]
    outcomes: list[Outcome] = []
    run_groups(f"{PREFIX}{device}:0", groups_of(cases), options, jobs, outcomes.append)
    mine = [outcome for outcome in outcomes if not outcome.case.startswith("process/")]
    passed = [outcome.case for outcome in mine if outcome.state == "passed"]
    excused = [case for case in passed if _excused(case, device, options)]
    vacuous = tuple(case for case in passed if case not in excused)
    failed = len(mine) - len(passed)
    tell(f"{device}: {len(mine)} cases, {failed} failed, {len(excused)} cannot tell, {len(vacuous)} vacuous")
    seconds = time.perf_counter() - start
    return Vacuity(device, len(mine), len(mine) - len(passed), tuple(excused), vacuous, seconds)


def _compares(case: Case) -> bool:
    return not any(fnmatch.fnmatchcase(case.id, pattern) for pattern in _NO_VALUES)


def _excused(identity: str, device: str, options: Options) -> bool:
    """Whether a case's right results are the same on such a device: zero or empty; or made of no operand's bytes."""
    from oarlock_conformance.cases.operators.calls import units

    if any(fnmatch.fnmatchcase(identity, pattern) for pattern in _NO_WITNESS[device]):
        return True
    try:
        (unit,) = units([identity]).values()
    except (KeyError, ValueError):
        return False
    for call in unit.calls(options):
        if call.id == identity:
            sample = call.sample
            with np.errstate(all="ignore"):
                results = list(call.record.reference(sample.operands, sample.attributes))
                if all(not np.any(result) for result in results):
                    return True
                if device == DEVICES[0]:
                    return False
                if call.record.scalars or not any(x.size for x in sample.operands):
                    return True
                other = [_scrambled(x) for x in sample.operands]
                again = list(call.record.reference(other, sample.attributes))
            return all(np.array_equal(one, two, equal_nan=False) for one, two in zip(results, again, strict=True))
    return False


def _scrambled(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    raw = np.ascontiguousarray(x).view(np.uint8) ^ np.uint8(0x5A) if x.ndim else x.reshape(1).view(np.uint8) ^ 0x5A
    if x.dtype == np.bool_:
        return np.asarray(raw != 0).reshape(x.shape)
    return np.asarray(raw).view(x.dtype).reshape(x.shape)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both devices and print what was found."""
    parser = argparse.ArgumentParser(prog="vacuous.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at once (default %(default)s)")
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose id or group matches")
    given = parser.parse_args(arguments)

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    options = Options(quick=True, deadline_s=180.0)
    with temporary_site(), ThreadPoolExecutor(1) as pool:
        found = list(pool.map(lambda name: measure(name, given.only, options, given.jobs, tell), DEVICES))
    if given.json:
        print(json.dumps({"suite_hash": suite_hash(), "devices": [each.to_json() for each in found]}, indent=1))
    else:
        print("\n".join(f"{each.device}: vacuous: {', '.join(each.vacuous) or 'none'}" for each in found))
    return int(any(each.vacuous for each in found))


if __name__ == "__main__":
    sys.exit(main())
