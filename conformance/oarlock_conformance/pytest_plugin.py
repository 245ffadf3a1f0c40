"""``pytest --pyargs oarlock_conformance --device NAME``: an item per case, run in the suite's own group processes.

The plugin does nothing, and adds no options, unless the suite is named on the command line: other runs of pytest stay
as they are. So it imports nothing of the suite before that.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oarlock_conformance.case import Case, Outcome
    from oarlock_conformance.runner import Group, Plan

_PACKAGE = "oarlock_conformance"
_FOLDER = Path(__file__).resolve().parent


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Add the options when the suite is asked for."""
    if "--pyargs" not in args or _PACKAGE not in args:
        return
    group = parser.getgroup("oarlock", "conformance of a device")
    group.addoption("--device", default="", metavar="NAME", help="the device to certify, such as cpu or opencl:0")
    group.addoption("--quick", action="store_true", help="fewer samples")
    group.addoption("--level", action="append", default=[], help="a level to run (default: all)")
    group.addoption("--conformance-seed", type=int, default=0, help="seed of random values and programs")
    group.addoption("--allow-unavailable", action="store_true", help="models that cannot be fetched are skipped")


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """The suite's folder is a collection of cases; any other folder is as it was."""
    if path.resolve() != _FOLDER or not hasattr(parent.config.option, "conformance_seed"):
        return None
    suite: pytest.Collector = ConformanceSuite.from_parent(parent, path=path)
    return suite


class ConformanceSuite(pytest.Directory):
    """The cases of one device. Groups are run when their first item is, with the items that were selected."""

    def collect(self) -> Iterator[pytest.Item]:
        from oarlock.errors import OarlockError
        from oarlock_conformance.case import LEVELS, Options
        from oarlock_conformance.certify import Request, plan_of
        from oarlock_conformance.runner import groups_of
        from oarlock_conformance.waivers import waiver_cases

        option = self.config.option
        unknown = [level for level in option.level if level not in LEVELS]
        if unknown:
            raise pytest.UsageError(f"--level {unknown[0]}: there are {', '.join(LEVELS)}")
        if not option.device:
            raise pytest.UsageError("--device NAME: say which device to certify; `oarlock devices` lists them")
        levels = tuple(level for level in LEVELS if not option.level or level in option.level)
        self.options = Options(option.quick, option.conformance_seed)
        try:
            plan = plan_of(Request(option.device, levels, options=self.options))
        except OarlockError as error:
            raise pytest.UsageError(str(error)) from error
        if isinstance(plan, Exception):
            yield RefusedItem.from_parent(self, name="device/opens", reason=str(plan))
            return
        self.runs = Runs(plan, self.options)
        if plan.waivers_wrong:
            yield RefusedItem.from_parent(self, name="waivers", reason=plan.waivers_wrong)
        for case in plan.cases:
            if case.unsupported:
                yield CaseItem.from_parent(self, name=case.id, case=case)
        for group in groups_of(plan.cases):
            for case in (*group.cases, group.process):
                yield CaseItem.from_parent(self, name=case.id, case=case)
        for case in waiver_cases(plan.waivers, levels[0]):
            yield WaiverItem.from_parent(self, name=case.id, case=case)


class Runs:
    """Runs groups on demand, with the cases that are selected, and keeps their outcomes."""

    def __init__(self, plan: Plan, options: Any) -> None:
        self.plan = plan
        self.options = options
        self.outcomes: dict[str, Outcome] = {}

    def outcome(self, item: CaseItem) -> Outcome:
        """What became of a case."""
        from oarlock_conformance.runner import groups_of, run_groups

        case = item.case
        if case.id not in self.outcomes:
            same = (case.level, case.group)
            selected = {
                other.case.id for other in item.session.items
                if isinstance(other, CaseItem) and (other.case.level, other.case.group) == same
            }  # fmt: skip
            chosen = [other for other in self.plan.cases if other.id in selected and other.id not in self.outcomes]
            groups: list[Group] = groups_of(chosen)
            run_groups(self.plan.device["id"], groups, self.options, 1, self._heard)
        if case.id not in self.outcomes:
            pytest.skip("none of the group's cases is selected")
        return self.outcomes[case.id]

    def waived(self) -> dict[str, Outcome]:
        """The outcomes so far, after the adapter's waivers, and those of its entries."""
        from oarlock_conformance.runner import groups_of
        from oarlock_conformance.waivers import apply_waivers

        planned = [*self.plan.cases, *(group.process for group in groups_of(self.plan.cases))]
        chosen = [case for case in planned if case.id in self.outcomes]
        today = datetime.now(UTC).date()
        return apply_waivers(self.plan.waivers, planned, chosen, self.outcomes, False, today)

    def _heard(self, outcome: Outcome) -> None:
        self.outcomes[outcome.case] = outcome


class CaseFailed(Exception):
    """A case did not pass; its text is the whole report."""


class _Item(pytest.Item):
    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if isinstance(excinfo.value, CaseFailed) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


class RefusedItem(_Item):
    """Stands for everything, where nothing can be run."""

    def __init__(self, *, reason: str, **words: Any) -> None:
        super().__init__(**words)
        self.reason = reason

    def runtest(self) -> None:
        raise CaseFailed(self.reason)


class CaseItem(_Item):
    """One case."""

    parent: ConformanceSuite

    def __init__(self, *, case: Case, **words: Any) -> None:
        super().__init__(**words)
        self.case = case

    def runtest(self) -> None:
        case = self.case
        if case.unsupported:
            pytest.skip(f"unsupported: {case.unsupported}")
        outcome = self.parent.runs.outcome(self)
        if outcome.state == "passed":
            return
        if outcome.state == "unsupported":
            pytest.skip(f"unsupported: {outcome.reason}")
        if outcome.state == "unavailable" and self.config.option.allow_unavailable:
            pytest.skip(f"unavailable: {outcome.reason}")
        if outcome.state in ("failed", "error"):
            outcome = self.parent.runs.waived()[case.id]
        if outcome.state == "waived":
            pytest.xfail(f"waived by {outcome.details['waived']['waiver']}: {outcome.reason}")
        raise CaseFailed(f"{outcome.state} ({outcome.kind}): {outcome.reason}\ncontract: {case.contract}")


class WaiverItem(_Item):
    """One entry of the adapter's waivers.toml: it must not be expired, and must still be needed."""

    parent: ConformanceSuite

    def __init__(self, *, case: Case, **words: Any) -> None:
        super().__init__(**words)
        self.case = case

    def runtest(self) -> None:
        outcome = self.parent.runs.waived()[self.case.id]
        if outcome.state == "unsupported":
            pytest.skip(outcome.reason)
        if outcome.state != "passed":
            raise CaseFailed(outcome.reason)
