"""Compares two certificates of a device: what got better, what got worse, and which of it is a regression."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oarlock.errors import ConfigError
from oarlock_conformance.baseline import Baseline, baseline_of, became_worse, described, figures_of
from oarlock_conformance.certificate import Document, read_certificate
from oarlock_conformance.report.coverage import numerics

__all__ = ["Change", "Comparison", "compare", "pairs"]

_BAD = ("failed", "error")
_GROWN = 1.5
"""An error counts as larger from so many times the old one on ..."""
_ULP = 0.5
"""... and from so many ulp more."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something that differs. ``better`` is None for what is neither."""

    kind: str
    case: str
    text: str
    better: bool | None = None
    regression: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that differs between two certificates of ``device``; ``levels``: (name, cases before, cases now)."""

    device: str
    changes: tuple[Change, ...]
    levels: tuple[tuple[str, int, int], ...]
    speed: str
    """Why speed was not compared; empty where it was."""

    @property
    def regressions(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.regression)

    def to_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "regressions": len(self.regressions),
            "speed_not_compared": self.speed,
            "levels": [{"level": name, "before": before, "now": now} for name, before, now in self.levels],
            "changes": [asdict(change) for change in self.changes],
        }


def pairs(old: Path, new: Path) -> list[tuple[str, Document | None, Document]]:
    """(name, old, new) of two files, or of the certificates in two folders by file name.

    Raises ConfigError where there is nothing to compare, or a certificate of the old folder has no successor.
    """
    if old.is_dir() != new.is_dir():
        raise ConfigError(f"{old} and {new}: give two certificates, or two folders of them")
    if not old.is_dir():
        return [(new.name, read_certificate(old), read_certificate(new))]
    before = {path.name: path for path in sorted(old.glob("*.json"))}
    now = {path.name: path for path in sorted(new.glob("*.json"))}
    gone = sorted(set(before) - set(now))
    if gone:
        raise ConfigError(f"{new}: there is no {gone[0]}, which {old} has: certify that device too")
    if not now:
        raise ConfigError(f"{new}: it holds no certificates (*.json)")
    return [
        (name, read_certificate(before[name]) if name in before else None, read_certificate(path))
        for name, path in now.items()
    ]


def compare(old: Document, new: Document) -> Comparison:
    """What changed from ``old`` to ``new``; raises ConfigError for certificates of two devices."""
    if old["device"]["id"] != new["device"]["id"]:
        raise ConfigError(f"the certificates are of {old['device']['id']} and of {new['device']['id']}")
    baseline = baseline_of(old, "old", new["device"], new["environment"])
    before = {case["id"]: case for case in old["cases"]}
    now = {case["id"]: case for case in new["cases"]}
    changes = [*_verdict(old, new), *_states(old, new, before, now)]
    if not baseline.unused:
        changes += _speed(baseline, figures_of(new))
    changes += _numerics(old, new)
    counts = [Counter(case["level"] for case in document["cases"]) for document in (old, new)]
    names = dict.fromkeys((*old["request"]["levels"], *new["request"]["levels"]))
    levels = tuple((name, counts[0][name], counts[1][name]) for name in names)
    order = {True: 0, False: 1}
    changes.sort(key=lambda change: (order[change.regression], change.better is not False))
    return Comparison(new["device"]["id"], tuple(changes), levels, baseline.unused)


def _verdict(old: Document, new: Document) -> Iterator[Change]:
    was, now = old["verdict"]["state"], new["verdict"]["state"]
    if was != now:
        lost = bool(old["verdict"]["conformant"] and not new["verdict"]["conformant"])
        better = True if now == "conformant" else False if lost else None
        yield Change("verdict", "verdict", f"{was} -> {now}", better, lost)


def _states(old: Document, new: Document, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Change]:
    for name, case in now.items():
        was = before[name]["state"] if name in before else "new"
        state = case["state"]
        if state == was:
            continue
        text = f"{was} -> {state}" + (f": {case['reason'].splitlines()[0][:200]}" if case["reason"] else "")
        if case["kind"] == "slower":
            continue  # told with its figures
        if state in _BAD and was not in _BAD:
            yield Change("newly failing", name, text, False, True)
        elif state == "passed" and was in (*_BAD, "waived", "unavailable"):
            yield Change("newly passing", name, text, True)
        elif state == "waived" and was == "passed":
            yield Change("newly waived", name, text, False)
        elif state in ("unsupported", "unavailable") and was == "passed":
            yield Change(f"no longer {'supported' if state == 'unsupported' else 'run'}", name, text, False, True)
    same = old["request"] == new["request"] and old["environment"]["suite_hash"] == new["environment"]["suite_hash"]
    for name, case in before.items():
        if name not in now and case["state"] == "passed" and case["group"] != "waivers":
            yield Change("gone", name, "is not in the new certificate", None, same)


def _speed(old: Baseline, new: Baseline) -> Iterator[Change]:
    for case, figures in new.figures.items():
        for name, after in figures.items():
            before = old.figures.get(case, {}).get(name)
            if before is None or before.figure.unit != after.figure.unit:
                continue
            text = f"{name} {described(before.figure, after.figure)}"
            if became_worse(before, after.figure, after.pace):
                yield Change("slower" if name != "memory" else "more memory", case, text, False, True)
            elif became_worse(after, before.figure, before.pace):
                yield Change("faster" if name != "memory" else "less memory", case, text, True)


def _numerics(old: Document, new: Document) -> Iterator[Change]:
    was, now = numerics(old), numerics(new)
    for record, row in now.items():
        for dtype, figures in row.items():
            before = was.get(record, {}).get(dtype)
            if before is None:
                continue
            text = f"largest error {before['ulp']:.2f} -> {figures['ulp']:.2f} ulp (allowed {figures['allowed']:.2f})"
            if _grown(before, figures):
                yield Change("less exact", f"{record}/{dtype}", text, False, True)
            elif _grown(figures, before):
                yield Change("more exact", f"{record}/{dtype}", text, True)


def _grown(before: Mapping[str, float], now: Mapping[str, float]) -> bool:
    return now["used"] > _GROWN * before["used"] and now["ulp"] - before["ulp"] > _ULP
