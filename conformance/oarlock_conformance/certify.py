"""Certifying a device: plan, run, judge, and the certificate as a value."""

from __future__ import annotations

import fnmatch
import time
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from oarlock.errors import ConfigError
from oarlock.ops import RECORDS
from oarlock_conformance.case import LEVELS, STATES, Case, Level, Options, Outcome
from oarlock_conformance.environment import about_host
from oarlock_conformance.progress import Progress
from oarlock_conformance.runner import Plan, groups_of, make_plan, run_groups

__all__ = ["SCHEMA", "Certification", "Request", "certify"]

SCHEMA = "oarlock.certificate/1"
"""The schema of the JSON document: ``certificate.schema.json`` beside this file describes it."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to certify: levels, a pattern that case ids or their groups must match (empty: all), processes at once.

    ``allow_unavailable``: models that cannot be fetched do not spoil the verdict; the certificate says so.
    """

    device: str
    levels: tuple[Level, ...] = LEVELS
    only: str = ""
    jobs: int = 1
    options: Options = Options()
    allow_unavailable: bool = False


@dataclass(frozen=True, slots=True)
class Certification:
    """What came of it: every case with its outcome."""

    request: Request
    plan: Plan
    cases: tuple[Case, ...]
    outcomes: dict[str, Outcome]
    seconds: float
    created: str

    def count(self, part: str) -> dict[str, int]:
        """Cases of a level, or of "processes", by state."""
        found = Counter(self.outcomes[case.id].state for case in self.cases if _part(case) == part)
        return {state: found[state] for state in STATES}

    @property
    def parts(self) -> tuple[str, ...]:
        """What is counted: the levels, and the processes of their groups."""
        return (*self.request.levels, "processes")

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
            if not count["passed"]:
                reasons.append(f"{part}: no case passed")
            for state, word in (("failed", "failed"), ("error", "ended in an error"), ("unavailable", "unavailable")):
                if count[state] and not (state == "unavailable" and self.request.allow_unavailable):
                    reasons.append(f"{part}: {count[state]:,} {word}")
        return reasons

    @property
    def conformant(self) -> bool:
        return not self.reasons

    def reproduce(self, case: Case) -> str:
        """The command that runs one case again."""
        only = case.group if _part(case) == "processes" else case.id
        words = ["oarlock certify", self.plan.device["id"], f"--level {case.level}", f"--only '{only}'"]
        options = self.request.options
        words += ["--quick"] * options.quick + [f"--seed {options.seed}"] * bool(options.seed)
        return " ".join(words)

    def to_json(self) -> dict[str, Any]:
        """The certificate's document."""
        request = self.request
        return {
            "schema": SCHEMA,
            "created": self.created,
            "seconds": round(self.seconds, 3),
            "device": self.plan.device,
            "request": {
                "levels": list(request.levels),
                "only": request.only,
                "jobs": request.jobs,
                "allow_unavailable": request.allow_unavailable,
                **request.options.to_json(),
            },
            "verdict": {"conformant": self.conformant, "reasons": self.reasons},
            "counts": {part: self.count(part) for part in self.parts},
            "host_records": [record.name for record in RECORDS.values() if record.host],
            "cases": [self._case_json(case) for case in self.cases],
            "environment": about_host(),
        }

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
        return {**found, "reproduce": self.reproduce(case)} if outcome.state in ("failed", "error") else found


def certify(request: Request, progress: Progress | None = None) -> Certification:
    """Certify a device.

    Raises DeviceNotFoundError for a device that does not exist, DeviceError for one that cannot be opened, ConfigError
    for a pattern that no case matches.
    """
    start = time.perf_counter()
    shown = progress or Progress(quiet=True)
    plan = make_plan(request.device, request.levels, request.options)
    chosen = [case for case in plan.cases if not request.only or _matches(case, request.only)]
    if not chosen:
        raise ConfigError(f"--only {request.only!r}: no case of the levels {', '.join(request.levels)} matches it")
    groups = groups_of(chosen)
    cases = (*chosen, *(group.process for group in groups))
    levels = tuple(level for level in request.levels if any(case.level == level for case in cases))
    shown.expect(cases)
    outcomes: dict[str, Outcome] = {}

    def tell(outcome: Outcome) -> None:
        outcomes[outcome.case] = outcome
        shown.add(outcome)

    for case in chosen:
        if case.unsupported:
            tell(Outcome(case.id, "unsupported", reason=case.unsupported))
    run_groups(plan.device["id"], groups, request.options, request.jobs, tell)
    for case in cases:
        if case.id not in outcomes:
            tell(Outcome(case.id, "error", kind="missing", reason="the case was required, and nothing was heard of it"))
    shown.end()
    created = datetime.now(UTC).isoformat(timespec="seconds")
    settled = replace(request, levels=levels)
    return Certification(settled, plan, cases, outcomes, time.perf_counter() - start, created)


def _matches(case: Case, pattern: str) -> bool:
    return fnmatch.fnmatchcase(case.id, pattern) or fnmatch.fnmatchcase(case.group, pattern)


def _part(case: Case) -> str:
    return "processes" if case.id.startswith("process/") else case.level
