"""Certifying a device: plan, run, judge, and the certificate as a value."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from oarlock.errors import ConfigError, DeviceError, DeviceNotFoundError
from oarlock.registry.choose import parse_device
from oarlock_conformance.baseline import Baseline, find_baseline, judge
from oarlock_conformance.case import LEVELS, STATES, Case, Level, Options, Outcome, State
from oarlock_conformance.certificate import SCHEMA, Document, sealed
from oarlock_conformance.environment import about_adapter, about_host
from oarlock_conformance.fallbacks import declared
from oarlock_conformance.journal import Journal, journal_path
from oarlock_conformance.progress import Progress
from oarlock_conformance.runner import DeviceAbsent, Group, Plan, groups_of, make_plan, run_groups
from oarlock_conformance.waivers import FILE, apply_waivers, waiver_cases

__all__ = ["SCHEMA", "Certification", "Request", "certify", "plan_of"]

_CONFIRMED = 2
"""How often a case that seems slower is measured again before that is believed."""
_FILE_CASE = f"waivers/{FILE}"
_OPENS = "device/opens"


@dataclass(frozen=True, slots=True)
class Request:
    """What to certify: levels, a pattern that case ids or their groups must match (empty: all), processes at once.

    ``allow_unavailable``: models that cannot be fetched do not spoil the verdict; the certificate says so. ``shuffle``
    is the seed of a random order. ``report`` is the folder of the journal (None: no journal), which ``resume`` goes on
    with. ``baseline`` is a certificate, or a folder of them, to compare speed with (None: the one in ``report``).
    """

    device: str
    levels: tuple[Level, ...] = LEVELS
    only: str = ""
    jobs: int = 1
    options: Options = Options()
    allow_unavailable: bool = False
    shuffle: int | None = None
    report: Path | None = None
    resume: bool = False
    baseline: Path | None = None

    def to_json(self) -> dict[str, Any]:
        """What decides about cases and verdict: no paths of this machine."""
        options = self.options.to_json()
        del options["repro"]
        return {
            "levels": list(self.levels),
            "only": self.only,
            "jobs": self.jobs,
            "allow_unavailable": self.allow_unavailable,
            "shuffle": self.shuffle,
            **options,
        }


@dataclass(frozen=True, slots=True)
class Certification:
    """What came of it: every case with its outcome. ``resumed``: outcomes that an earlier, interrupted run gave."""

    request: Request
    plan: Plan
    cases: tuple[Case, ...]
    outcomes: dict[str, Outcome]
    seconds: float
    created: str
    baseline: Baseline | None = None
    resumed: int = 0

    def count(self, part: str) -> dict[str, int]:
        """Cases of a part by state."""
        found = Counter(self.outcomes[case.id].state for case in self.cases if _part(case) == part)
        return {state: found[state] for state in STATES}

    @property
    def parts(self) -> tuple[str, ...]:
        """What is counted: the levels, the processes of their groups, and waivers where there are any."""
        found = {_part(case) for case in self.cases}
        return tuple(part for part in (*self.request.levels, "device", "processes", "waivers") if part in found)

    @property
    def problems(self) -> list[tuple[Case, Outcome]]:
        """Cases that keep the device from being conformant."""
        bad = {"failed", "error"} | (set() if self.request.allow_unavailable else {"unavailable"})
        return [(case, self.outcomes[case.id]) for case in self.cases if self.outcomes[case.id].state in bad]

    @property
    def reasons(self) -> list[str]:
        """Why it is not conformant; empty when it is."""
        reasons = []
        for part in self.parts:
            count = self.count(part)
            if part == "device":
                return [self.outcomes[_OPENS].reason]
            if not count["passed"] and part != "waivers":
                reasons.append(f"{part}: no case passed")
            for state, word in (("failed", "failed"), ("error", "ended in an error"), ("unavailable", "unavailable")):
                if count[state] and not (state == "unavailable" and self.request.allow_unavailable):
                    reasons.append(f"{part}: {count[state]:,} {word}")
        return reasons

    @property
    def conformant(self) -> bool:
        return not self.reasons

    @property
    def state(self) -> str:
        """The verdict in words: conformant, conformant in part (not all levels or cases were run), not conformant, or
        unavailable: the device is not here."""
        if _OPENS in self.outcomes and self.outcomes[_OPENS].state == "unavailable":
            return "unavailable"
        if not self.conformant:
            return "not conformant"
        return "conformant" if self.request.levels == LEVELS and not self.request.only else "conformant in part"

    def reproduce(self, case: Case) -> str:
        """The command that runs one case again."""
        device, options = self.plan.device["id"], self.request.options
        if _part(case) == "device":
            return f"oarlock doctor {device.partition(':')[0]}"
        only = case.group if _part(case) == "processes" else case.id
        words = ["oarlock certify", device, f"--level {case.level}"]
        words += [] if _part(case) == "waivers" else [f"--only '{only}'"]
        words += ["--quick"] * options.quick + [f"--seed {options.seed}"] * bool(options.seed)
        return " ".join(words)

    def to_json(self) -> Document:
        """The certificate's document, with its hash."""
        return sealed(
            {
                "schema": SCHEMA,
                "created": self.created,
                "seconds": round(self.seconds, 3),
                "device": self.plan.device,
                "request": self.request.to_json(),
                "resumed": self.resumed,
                "verdict": {"state": self.state, "conformant": self.conformant, "reasons": self.reasons},
                "counts": {part: self.count(part) for part in self.parts},
                "host_records": declared(),
                "baseline": self.baseline.to_json() if self.baseline else None,
                "waivers": [self._waiver_json(waiver.to_json(), waiver.id) for waiver in self.plan.waivers],
                "cases": [self._case_json(case) for case in self.cases],
                "environment": about_host(self.plan.device["id"].partition(":")[0]),
            }
        )

    def _waiver_json(self, entry: dict[str, Any], identity: str) -> dict[str, Any]:
        outcome = self.outcomes[identity]
        covered = outcome.details.get("covered", {})
        return {**entry, "state": outcome.state, "problem": outcome.reason, "covers": sorted(covered)}

    def _case_json(self, case: Case) -> dict[str, Any]:
        outcome = self.outcomes[case.id]
        found = {
            "id": case.id,
            "level": case.level,
            "group": case.group,
            "contract": case.contract,
            "state": outcome.state,
            "seconds": round(outcome.seconds, 4),
            "kind": outcome.kind,
            "reason": outcome.reason,
            "details": dict(outcome.details),
        }
        return {**found, "reproduce": self.reproduce(case)} if outcome.state in ("failed", "error", "waived") else found


def plan_of(request: Request) -> Plan | DeviceError:
    """What there is to certify; the error where the device is absent or broken.

    Raises DeviceNotFoundError for a name that is mistyped; the text lists what there is.
    """
    parse_device(request.device)
    try:
        return make_plan(request.device, request.levels, request.options)
    except DeviceNotFoundError:
        raise
    except DeviceError as error:
        return error


def certify(
    request: Request, progress: Progress | None = None, plan: Plan | DeviceError | None = None
) -> Certification:
    """Certify a device; ``plan`` is what ``plan_of`` gave. A device that is absent or broken has a certificate too.

    Raises DeviceNotFoundError for a name that is mistyped, ConfigError for a pattern that no case matches, a journal
    or a baseline that cannot be used.
    """
    start = time.perf_counter()
    shown = progress or Progress(quiet=True)
    found = plan_of(request) if plan is None else plan
    if not isinstance(found, Plan):
        return _refused(request, found)
    return _Run(request, found, shown, start).certification()


def _refused(request: Request, error: DeviceError) -> Certification:
    """The certificate of a device that could not be opened."""
    adapter, index = parse_device(request.device)
    device = {"id": f"{adapter}:{index}", "name": "", "driver": "", "adapter": about_adapter(adapter)}
    case = Case(_OPENS, request.levels[0], "device", "the device is there, can be opened, and says what it is")
    state: State = "unavailable" if isinstance(error, DeviceAbsent) else "error"
    outcome = Outcome(case.id, state, 0.0, "unavailable" if state == "unavailable" else "exception", str(error))
    plan = Plan(device, (case,))
    return Certification(replace(request, levels=()), plan, (case,), {case.id: outcome}, 0.0, _now())


class _Run:
    """One certification on its way."""

    def __init__(self, request: Request, plan: Plan, progress: Progress, start: float) -> None:
        self.request = request
        self.plan = plan
        self.progress = progress
        self.start = start
        self.device = str(plan.device["id"])
        self.chosen = [case for case in plan.cases if not request.only or _matches(case, request.only)]
        if not self.chosen:
            levels = ", ".join(request.levels)
            raise ConfigError(f"--only {request.only!r}: no case of the levels {levels} matches it")
        twice = [name for name, count in Counter(case.id for case in plan.cases).items() if count > 1]
        if twice:
            raise ConfigError(f"the suite is wrong: several cases are called {twice[0]}")
        self.groups = groups_of(self.chosen)
        self.cases = (*self.chosen, *(group.process for group in self.groups))
        self.outcomes: dict[str, Outcome] = {}
        self.journal: Journal | None = None
        self.baseline: Baseline | None = find_baseline(
            request.baseline, request.report, plan.device, about_host(self.device.partition(":")[0])
        )

    def certification(self) -> Certification:
        self.progress.expect(self.cases)
        resumed = self._open_journal()
        for case in self.chosen:
            if case.unsupported:
                self._tell(Outcome(case.id, "unsupported", reason=case.unsupported))
        for outcome in resumed.values():
            self._tell(outcome)
        try:
            left = [group for group in self.groups if group.process.id not in resumed]
            run_groups(
                self.device, _ordered(left, self.request.shuffle), self.request.options, self.request.jobs, self._heard
            )
            self._compare()
        finally:
            if self.journal is not None:
                self.journal.close()
        for case in self.cases:
            if case.id not in self.outcomes:
                reason = "the case was required, and nothing was heard of it"
                self._tell(Outcome(case.id, "error", kind="missing", reason=reason))
        self.progress.end()
        return self._settled(len(resumed))

    def _tell(self, outcome: Outcome) -> None:
        self.outcomes[outcome.case] = outcome
        self.progress.add(outcome)

    def _heard(self, outcome: Outcome) -> None:
        if self.journal is not None:
            self.journal.add(outcome)
        self._tell(outcome)

    # --- the journal --------------------------------------------------------------------------------------------------

    def _open_journal(self) -> dict[str, Outcome]:
        """Open the journal; returns the outcomes of groups that an interrupted run has finished.

        A group that was under way is run again as a whole: what its process did wrong is known at its end only.
        """
        request = self.request
        if request.report is None:
            return {}
        path = journal_path(request.report, self.device)
        if not request.resume:
            self.journal = Journal.begin(path, self._binding())
            return {}
        self.journal, noted = Journal.resume(path, self._binding())
        finished: dict[str, Outcome] = {}
        for group in self.groups:
            members = [case.id for case in (*group.cases, group.process)]
            if all(case in noted for case in members):
                finished.update({case: noted[case] for case in members})
        return finished

    def _binding(self) -> dict[str, Any]:
        """What a journal is bound to."""
        device, host = self.plan.device, about_host()
        request = {key: value for key, value in self.request.to_json().items() if key not in ("jobs", "shuffle")}
        return {
            "device": self.device,
            "fingerprint": device["device_hash"],
            "driver_hash": device["driver_hash"],
            "adapter_hash": device["adapter"]["hash"],
            "suite_hash": host["suite_hash"],
            "core_hash": host["core_hash"],
            **{f"option {key}": value for key, value in request.items()},
            "cases": _hash([case.to_json() for case in self.chosen]),
        }

    # --- judging ------------------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        """Set figures beside the baseline's. What seems slower is measured again before that is believed."""
        if self.baseline is None:
            return
        for case in self.chosen:
            if case.id in self.outcomes:
                self._judge(self.outcomes[case.id])
        for _ in range(_CONFIRMED):
            slow = [case for case in self.chosen if self.outcomes[case.id].kind == "slower"]
            again = self._again(slow)
            for case in slow:
                if case.id in again and again[case.id].state == "passed":
                    self._judge(again[case.id])

    def _again(self, cases: Sequence[Case]) -> dict[str, Outcome]:
        """Outcomes of cases that are run once more, one process at a time."""
        found: dict[str, Outcome] = {}
        if cases:
            self.progress.note(f"measured again: {', '.join(case.id for case in cases)}")
        run_groups(self.device, groups_of(cases), self.request.options, 1, lambda o: found.update({o.case: o}))
        return found

    def _judge(self, outcome: Outcome) -> None:
        self.outcomes[outcome.case] = judge(outcome, self.baseline)

    def _settled(self, resumed: int) -> Certification:
        """The certification, after the adapter's waivers."""
        request, plan = self.request, self.plan
        entries = waiver_cases(plan.waivers, request.levels[0])
        complete = request.levels == LEVELS and not request.only and not request.options.quick
        today = datetime.now(UTC).date()
        processes = [group.process for group in groups_of(plan.cases)]
        outcomes = apply_waivers(plan.waivers, [*plan.cases, *processes], self.cases, self.outcomes, complete, today)
        if plan.waivers_wrong:
            entries = [Case(_FILE_CASE, request.levels[0], "waivers", f"{FILE} of the adapter can be read")]
            outcomes[_FILE_CASE] = Outcome(_FILE_CASE, "failed", 0.0, "value", plan.waivers_wrong)
        cases = (*self.cases, *entries)
        levels = tuple(level for level in request.levels if any(case.level == level for case in self.chosen))
        seconds = time.perf_counter() - self.start
        settled = replace(request, levels=levels)
        return Certification(settled, plan, cases, outcomes, seconds, _now(), self.baseline, resumed)


def _ordered(groups: Sequence[Group], seed: int | None) -> list[Group]:
    """The groups, and the cases in each, as they are or in a random order."""
    if seed is None:
        return list(groups)
    chance = random.Random(seed)
    shuffled = [replace(group, cases=tuple(chance.sample(group.cases, len(group.cases)))) for group in groups]
    chance.shuffle(shuffled)
    return shuffled


def _matches(case: Case, pattern: str) -> bool:
    return fnmatch.fnmatchcase(case.id, pattern) or fnmatch.fnmatchcase(case.group, pattern)


def _part(case: Case) -> str:
    if case.group == "waivers":
        return "waivers"
    if case.id == _OPENS:
        return "device"
    return "processes" if case.id.startswith("process/") else case.level


def _hash(value: Mapping[str, Any] | Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
