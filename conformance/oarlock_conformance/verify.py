"""Checks a certificate again: its own hash, the files it speaks of, the device, and a sample of its cases."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from oarlock.errors import DeviceError
from oarlock_conformance.case import Case, Options, Outcome
from oarlock_conformance.certificate import Document, content_hash
from oarlock_conformance.environment import about_host, file_hashes, package_hash
from oarlock_conformance.runner import DeviceAbsent, Plan, groups_of, make_plan, run_groups

__all__ = ["Finding", "Verification", "verify"]

_SHOWN = 8
_RAN = ("passed", "failed", "error", "waived")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was checked. ``same``: it is as the certificate says; ``text`` tells what differs."""

    what: str
    same: bool
    text: str = ""


@dataclass(slots=True)
class Verification:
    """All findings. ``absent``: why the device is not here, so that nothing could be run; empty where it is."""

    findings: list[Finding] = field(default_factory=list)
    cases: list[Finding] = field(default_factory=list)
    seed: int = 0
    absent: str = ""

    @property
    def good(self) -> bool:
        return not self.absent and all(finding.same for finding in (*self.findings, *self.cases))

    def to_json(self) -> dict[str, Any]:
        return {
            "good": self.good,
            "absent": self.absent,
            "seed": self.seed,
            "findings": [asdict(finding) for finding in self.findings],
            "cases": [asdict(finding) for finding in self.cases],
        }


def verify(document: Document, sample: int = 20, seed: int | None = None, jobs: int = 1) -> Verification:
    """Check a certificate: hashes, and ``sample`` of its cases on the device (0: the device is not needed).

    ``seed`` chooses the cases; None: others each time. Raises DeviceNotFoundError for a device of an adapter that is
    not installed.
    """
    found = Verification(seed=random.randrange(2**31) if seed is None else seed)
    found.findings += [_seal(document), *_packages(document)]
    if sample <= 0:
        return found
    request = document["request"]
    options = Options(request["quick"], request["seed"], request["deadline_s"], request["examples"])
    try:
        plan = make_plan(document["device"]["id"], request["levels"], options)
    except DeviceAbsent as error:
        found.absent = str(error)
        return found
    except DeviceError as error:
        found.findings.append(Finding("device", not document["verdict"]["conformant"], str(error)))
        return found
    found.findings += _device(document["device"], plan)
    told = {case["id"]: case for case in document["cases"]}
    found.findings.append(_planned(told, plan, request["only"]))
    chosen = _sample([case for case in plan.cases if _ran(told.get(case.id))], sample, found.seed)
    outcomes: dict[str, Outcome] = {}
    run_groups(plan.device["id"], groups_of(chosen), options, jobs, lambda o: outcomes.update({o.case: o}))
    found.cases += [_again(told[case.id], outcomes[case.id]) for case in chosen]
    return found


def _seal(document: Document) -> Finding:
    written, real = document.get("content_hash", ""), content_hash(document)
    text = f"the document was changed: it says {written[:16]}..., its content is {real[:16]}..."
    return Finding("certificate", written == real, "" if written == real else text)


def _packages(document: Document) -> list[Finding]:
    """The files of adapter, suite and core against those installed here."""
    adapter, host = document["device"]["adapter"], document["environment"]
    here = about_host()
    return [
        _package("adapter", adapter["module"], adapter.get("hash", ""), adapter.get("files", {})),
        _package("suite", "oarlock_conformance", host["suite_hash"], host["suite_files"]),
        Finding("core", host["core_hash"] == here["core_hash"], _changed(host["core_hash"], here["core_hash"])),
    ]


def _package(what: str, module: str, told: str, files: Mapping[str, str]) -> Finding:
    real = package_hash(module)
    if told == real:
        return Finding(what, True)
    if not real:
        return Finding(what, False, f"the package {module} is not installed here")
    here = file_hashes(module)
    names = sorted(name for name in {*files, *here} if files.get(name) != here.get(name))
    return Finding(what, False, f"{len(names)} files of {module} differ: {_some(names)}")


def _device(told: Mapping[str, Any], plan: Plan) -> list[Finding]:
    same = told["driver_hash"] == plan.device["driver_hash"]
    other = _changed(told["driver"], plan.device["driver"]) or "the versions that compiled code depends on are others"
    keys = [
        key for key, value in told.items()
        if key not in ("adapter", "driver_hash", "device_hash") and value != plan.device.get(key)
    ]  # fmt: skip
    return [
        Finding("driver", same, "" if same else other),
        Finding("device", told["device_hash"] == plan.device["device_hash"], f"other: {_some(keys)}" if keys else ""),
    ]


def _planned(told: Mapping[str, Any], plan: Plan, only: str) -> Finding:
    """Whether the suite still has the cases of the certificate, and no others (unless it was of a part)."""
    planned = {case.id for case in plan.cases}
    own = {name for name, case in told.items() if case["group"] != "waivers" and not name.startswith("process/")}
    gone, new = sorted(own - planned), sorted(planned - own) if not only else []
    words = [f"{len(gone)} are not in the suite here: {_some(gone)}"] if gone else []
    words += [f"{len(new)} are missing from the certificate: {_some(new)}"] if new else []
    return Finding("cases", not words, "; ".join(words))


def _ran(case: Mapping[str, Any] | None) -> bool:
    return case is not None and case["state"] in _RAN


def _sample(cases: Sequence[Case], number: int, seed: int) -> list[Case]:
    """So many cases, evenly from the levels, in the suite's order."""
    chance = random.Random(seed)
    levels: dict[str, list[Case]] = {}
    for case in cases:
        levels.setdefault(case.level, []).append(case)
    piles = [chance.sample(pile, len(pile)) for pile in levels.values()]
    chosen: list[Case] = []
    while len(chosen) < number and any(piles):
        chosen += [pile.pop() for pile in piles if pile][: number - len(chosen)]
    wanted = {case.id for case in chosen}
    return [case for case in cases if case.id in wanted]


def _again(told: Mapping[str, Any], outcome: Outcome) -> Finding:
    """A case of the certificate against its outcome now."""
    before = told["details"].get("waived", {}).get("state", told["state"])
    if told["kind"] == "slower":
        before = "passed"  # it was right; its speed is judged against a baseline
    if before != outcome.state:
        return Finding(
            outcome.case, False, f"the certificate says {before}, now {outcome.state}. {outcome.reason}".rstrip(". ")
        )
    was, now = told["details"].get("ulp"), outcome.details.get("ulp")
    if was is not None and now is not None and was["ulp"] != now["ulp"]:
        return Finding(outcome.case, False, f"the largest error was {was['ulp']:g} ulp, is {now['ulp']:g}")
    return Finding(outcome.case, True)


def _changed(was: str, now: str) -> str:
    return "" if was == now else f"was {was[:60]}, is {now[:60]}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
