"""Known failures and waivers of an adapter: ``waivers.toml`` in its package, read strictly, applied to outcomes."""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from oarlock.errors import ConfigError
from oarlock_conformance.case import Case, Outcome, State

__all__ = ["FILE", "Waiver", "apply_waivers", "read_waivers", "waiver_cases"]

FILE = "waivers.toml"
Kind: TypeAlias = Literal["known-failure", "waiver"]
KINDS = ("known-failure", "waiver")
_REQUIRED = ("case", "kind", "reason", "owner", "expires")
_CONTRACT = "a waiver has reason, owner and expiry, is not expired, and some case that it covers still fails"


@dataclass(frozen=True, slots=True)
class Waiver:
    """One entry. ``case`` is a pattern of case ids; ``expires`` the last day it holds on, ISO 8601; ``devices`` names
    the devices it is for (empty: all of the adapter), ``drivers`` are patterns of ``DeviceInfo.driver`` (empty: any).
    ``known-failure``: the adapter's bug; ``waiver``: an exemption that was granted."""

    number: int
    case: str
    kind: Kind
    reason: str
    owner: str
    expires: str
    devices: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The id of the case that judges it."""
        return f"waiver.{self.number}/{self.case}"

    def covers(self, case: Case) -> bool:
        """Whether a case is among those that it excuses."""
        return fnmatch.fnmatchcase(case.id, self.case)

    def expired(self, today: date) -> bool:
        return date.fromisoformat(self.expires) < today

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "devices": list(self.devices), "drivers": list(self.drivers)}

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Waiver:
        return cls(**{**item, "devices": tuple(item["devices"]), "drivers": tuple(item.get("drivers", ()))})


def read_waivers(path: Path) -> tuple[Waiver, ...]:
    """The entries of a file; none where there is no file. Raises ConfigError that names entry and key."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    unknown = sorted(set(content) - {"waiver"})
    if unknown or not isinstance(content.get("waiver", []), list):
        raise ConfigError(f"{path}: it holds {unknown or 'waiver'}; write entries as [[waiver]]")
    return tuple(_entry(path, number, item) for number, item in enumerate(content.get("waiver", []), 1))


def _entry(path: Path, number: int, item: Mapping[str, Any]) -> Waiver:
    where = f"{path}: [[waiver]] {number}"
    for key in _REQUIRED:
        if key not in item:
            raise ConfigError(f"{where} has no {key}; it needs {', '.join(_REQUIRED)}")
    unknown = sorted(set(item) - {*_REQUIRED, "devices", "drivers"})
    if unknown:
        known = f"{', '.join(_REQUIRED)}, and maybe devices and drivers"
        raise ConfigError(f"{where}: unknown {unknown[0]!r}; an entry has {known}")
    for key in ("case", "reason", "owner"):
        if not isinstance(item[key], str) or not item[key].strip():
            raise ConfigError(f"{where}: {key} must be a text that is not empty")
    if item["kind"] not in KINDS:
        raise ConfigError(f"{where}: kind {item['kind']!r}; write {' or '.join(map(repr, KINDS))}")
    if type(item["expires"]) is not date:
        raise ConfigError(f"{where}: expires must be a date, such as 2027-06-30 (without quotes)")
    devices = item.get("devices", [])
    if not isinstance(devices, list) or not all(isinstance(name, str) and ":" in name for name in devices):
        raise ConfigError(f'{where}: devices must be a list of names such as ["acme_npu:0"]')
    drivers = item.get("drivers", [])
    if not isinstance(drivers, list) or not all(isinstance(pattern, str) and pattern.strip() for pattern in drivers):
        raise ConfigError(f'{where}: drivers must be a list of patterns such as ["*, version 3.1*"]')
    texts = (str(item[key]).strip() for key in ("case", "kind", "reason", "owner"))
    case, kind, reason, owner = texts
    expires = item["expires"].isoformat()
    return Waiver(number, case, cast(Kind, kind), reason, owner, expires, tuple(devices), tuple(drivers))


def for_device(waivers: Sequence[Waiver], device: str, driver: str) -> tuple[Waiver, ...]:
    """Those that are for a device, by its name with index and what ``DeviceInfo.driver`` says."""
    return tuple(
        waiver
        for waiver in waivers
        if (not waiver.devices or device in waiver.devices)
        and (not waiver.drivers or any(fnmatch.fnmatchcase(driver, pattern) for pattern in waiver.drivers))
    )


def waiver_cases(waivers: Sequence[Waiver], level: str) -> list[Case]:
    """A case for each entry: that it still holds."""
    return [Case(waiver.id, level, "waivers", _CONTRACT) for waiver in waivers]


def apply_waivers(
    waivers: Sequence[Waiver],
    planned: Sequence[Case],
    chosen: Sequence[Case],
    outcomes: Mapping[str, Outcome],
    complete: bool,
    today: date,
) -> dict[str, Outcome]:
    """The outcomes with failures waived, and those of the entries themselves.

    ``planned``: all cases of the levels; ``chosen``: those that were run, processes too. ``complete``: all levels at
    the full setting were planned, so that an entry which covers no case at all is stale.
    """
    changed = dict(outcomes)
    for waiver in waivers:
        covered = [case for case in chosen if waiver.covers(case)]
        if not waiver.expired(today):
            for case in covered:
                before = changed[case.id]
                if before.state in ("failed", "error"):
                    details = {**before.details, "waived": {"state": before.state, "waiver": waiver.id}}
                    changed[case.id] = replace(before, state="waived", details=details)
        everything = all(case in covered for case in planned if waiver.covers(case))
        changed[waiver.id] = _judge(waiver, [outcomes[case.id] for case in covered], everything, complete, today)
    return changed


def _judge(waiver: Waiver, covered: Sequence[Outcome], everything: bool, complete: bool, today: date) -> Outcome:
    """What is to be said of an entry, by the outcomes of the cases that it covers."""
    names = {outcome.state for outcome in covered}
    details = {"covered": {outcome.case: outcome.state for outcome in covered if outcome.state in ("failed", "error")}}

    def said(state: State, reason: str) -> Outcome:
        kind = "value" if state == "failed" else ""
        return Outcome(waiver.id, state, 0.0, kind, reason, details)

    if waiver.expired(today):
        return said("failed", f"expired on {waiver.expires}: mend the cases, or have it renewed by {waiver.owner}")
    if names & {"failed", "error"}:
        return said("passed", "")
    if "passed" in names and everything:
        number = sum(outcome.state == "passed" for outcome in covered)
        return said("failed", f"unexpected pass: none of the {number} cases that it covers fails; take the entry out")
    if not covered and complete:
        return said("failed", f"stale: no case of the suite matches {waiver.case!r}; take the entry out")
    return said("unsupported", "the cases that it covers were not run, or only in part")
