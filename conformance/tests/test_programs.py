"""The programs level: what it plans, that a good device passes, and that it sees programs go wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oarlock.config import config
from oarlock.runtime import Device, open_device, plan
from oarlock_conformance.case import LEVELS, Options, Outcome
from oarlock_conformance.cases import level, programs
from oarlock_conformance.cases.programs.register import CASES

OPTIONS = Options(quick=True, deadline_s=240.0)


class Heard:
    """Keeps outcomes."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome] = {}

    def start(self, *cases: str) -> None: ...

    def beat(self) -> None: ...

    def end(self, outcome: Outcome) -> None:
        self.outcomes[outcome.case] = outcome


def run(device: str, *cases: str) -> dict[str, Outcome]:
    heard = Heard()
    programs.run(device, cases, OPTIONS, False, heard)
    return heard.outcomes


def test_level_is_listed_and_its_cases_apply() -> None:
    assert "programs" in LEVELS
    planned = {case.id: case for case in programs.plan(open_device("sim"), OPTIONS)}
    assert set(planned) == set(CASES)
    assert planned["devices.copies/dtypes"].unsupported == ""
    assert planned["arrays.values/unsupported"].unsupported == "the device stores every dtype"
    assert {case.group for case in planned.values()} == {
        "compiled", "memory", "arrays", "threads", "devices", "life", "networks",
    }  # fmt: skip
    assert all(case.contract for case in planned.values())


def test_no_other_level_has_a_case_of_the_same_name() -> None:
    device = open_device("sim")
    names = ("runtime", "operators", "collectives")
    others = {case.id for name in names for case in level(name).plan(device, OPTIONS)}
    assert not others & set(CASES)


@pytest.mark.parametrize(
    "case",
    ["compiled.replay/scalars", "compiled.refused/operands", "memory.program/too_little", "arrays.failure/line",
     "arrays.values/versions", "threads.programs/shared", "devices.programs/mixed", "life.reopen/programs"],
)  # fmt: skip
def test_good_device_passes(case: str, patient: None) -> None:
    outcome = run("sim", case)[case]
    assert (outcome.state, outcome.reason) == ("passed", "")


@pytest.fixture
def patient(uncached: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine is no fault of the device."""
    monkeypatch.setattr(config, "watchdog_s", 120.0)


def test_stale_scalars_are_seen(patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that keeps the first run's scalars."""
    good = plan.Plan._bind
    kept: dict[tuple[int, int], Any] = {}

    def bind(self: Any, operands: Any) -> Any:
        stale = [
            kept.setdefault((id(self), i), given) if isinstance(given, int | float) else given
            for i, given in enumerate(operands)
        ]
        return good(self, stale)

    monkeypatch.setattr(plan.Plan, "_bind", bind)
    outcome = run("sim", "compiled.replay/scalars")["compiled.replay/scalars"]
    assert outcome.state == "failed"
    assert "x * -2.0 + 7" in outcome.reason


def test_shared_results_are_seen(patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that gives the memory of one run's results to the next."""
    good = Device.allocate_all
    kept: dict[Any, Any] = {}

    def allocate_all(self: Any, lane: Any, wanted: Any) -> Any:
        return kept.setdefault((self, tuple(wanted)), good(self, lane, wanted))

    monkeypatch.setattr(Device, "allocate_all", allocate_all)
    outcome = run("sim", "compiled.replay/kept")["compiled.replay/kept"]
    assert outcome.state == "failed"
    assert "read after" in outcome.reason


def test_memory_that_is_not_given_back_is_seen(patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    good = plan.Plan.run
    kept: list[Any] = []

    def run_(self: Any, operands: Any) -> Any:
        kept.append(self.device.allocate(512))
        return good(self, operands)

    monkeypatch.setattr(plan.Plan, "run", run_)
    outcome = run("sim", "memory.program/returned")["memory.program/returned"]
    kept.clear()
    assert outcome.state == "failed"
    assert "20 runs" in outcome.reason
    assert np.isfinite(outcome.seconds)
