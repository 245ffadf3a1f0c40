"""The certificate before this one: what was measured then, and whether a case became slower beyond the noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oarlock.errors import ConfigError
from oarlock_conformance.case import Outcome
from oarlock_conformance.certificate import Document, file_name, read_certificate
from oarlock_conformance.figures import Figure, at_pace, figures_in, worse

__all__ = ["Baseline", "Before", "baseline_of", "became_worse", "described", "figures_of", "find_baseline", "judge"]


@dataclass(frozen=True, slots=True)
class Before:
    """A figure of the baseline, and the host's pace when it was measured (0: unknown)."""

    figure: Figure
    pace: float = 0.0


@dataclass(frozen=True, slots=True)
class Baseline:
    """Figures by case and name. ``unused`` says why a certificate was not compared with; empty where it was."""

    source: str
    created: str
    unused: str = ""
    figures: Mapping[str, Mapping[str, Before]] = field(default_factory=dict)

    def to_json(self) -> dict[str, str]:
        return {"source": self.source, "created": self.created, "unused": self.unused}


def find_baseline(
    given: Path | None, folder: Path | None, device: Mapping[str, Any], host: Mapping[str, Any]
) -> Baseline | None:
    """The baseline of a device: the certificate ``given`` (or the one in that folder), else the one in the report
    folder, else None.

    Raises ConfigError where one that was given cannot be read. One of another machine or device is not compared with.
    """
    name = f"{file_name(device['id'])}.json"
    path = given if given is None or not given.is_dir() else given / name
    if path is not None:
        return baseline_of(read_certificate(path), path.name, device, host)
    if folder is None or not (folder / name).is_file():
        return None
    try:
        return baseline_of(read_certificate(folder / name), name, device, host)
    except ConfigError as error:
        return Baseline(name, "", str(error))


def baseline_of(document: Document, source: str, device: Mapping[str, Any], host: Mapping[str, Any]) -> Baseline:
    """What a certificate says of speed, if it is of the same device in the same machine."""
    before = {**document["device"], **document.get("environment", {})}
    now = {**device, **host}
    for key in ("id", "name", "vendor", "memory", "processor", "cores"):
        if before.get(key) != now.get(key):
            unused = f"it is of another machine: {key} was {before.get(key)}, is {now.get(key)}"
            return Baseline(source, document["created"], unused)
    handed_on = {case["id"]: _figures(case) for case in document["cases"] if "figures" in case["details"]}
    return Baseline(source, document["created"], "", handed_on)


def figures_of(document: Document) -> Baseline:
    """What a certificate measured, as it is."""
    plain = {
        case["id"]: {
            name: Before(f, case["details"].get("pace", 0.0)) for name, f in figures_in(case["details"]).items()
        }
        for case in document["cases"]
        if "figures" in case["details"]
    }
    return Baseline("", document["created"], "", plain)


def _figures(case: Mapping[str, Any]) -> dict[str, Before]:
    """The figures of a case; one that was found slower hands on what it was compared with, lest it be forgotten."""
    found = {}
    for name, figure in figures_in(case["details"]).items():
        item, pace = case["details"]["figures"][name], case["details"].get("pace", 0.0)
        if item.get("worse") and "baseline" in item:
            old = item["baseline"]
            figure, pace = replace(figure, median=old["median"], spread=old["spread"]), old["pace"]
        found[name] = Before(figure, pace)
    return found


def became_worse(before: Before, figure: Figure, pace: float) -> bool:
    """Whether a figure is worse than before beyond the noise, and beyond what the host itself became slower."""
    return worse(before.figure, figure) and worse(before.figure, at_pace(figure, before.pace, pace))


def judge(outcome: Outcome, baseline: Baseline | None) -> Outcome:
    """The outcome with its figures set beside the baseline's; failed ("slower") where one is worse beyond the noise."""
    before = baseline.figures.get(outcome.case, {}) if baseline is not None else {}
    now = figures_in(outcome.details)
    if baseline is None or not before or not now:
        return outcome
    pace = outcome.details.get("pace", 0.0)
    items: dict[str, Any] = {}
    reasons: list[str] = []
    for name, figure in now.items():
        items[name] = figure.to_json()
        old = before.get(name)
        if old is None or old.figure.unit != figure.unit:
            continue
        bad = became_worse(old, figure, pace)
        beside = {"median": old.figure.median, "spread": old.figure.spread, "pace": old.pace}
        items[name] |= {"baseline": beside, "worse": bad}
        if bad:
            reasons.append(f"{name}: {described(old.figure, figure)}")
    details = {**outcome.details, "figures": items}
    if reasons and outcome.state == "passed":
        text = f"{'; '.join(reasons)} (baseline of {baseline.created})"
        return replace(outcome, state="failed", kind="slower", reason=text, details=details)
    return replace(outcome, details=details)


def described(old: Figure, new: Figure) -> str:
    """Two figures and how far they lie apart, as a person reads it."""
    spread = max(old.spread, new.spread)
    times = f"{abs(new.median - old.median) / spread:.1f} x the spread of {new.runs} runs" if spread else "no spread"
    change = (new.median / old.median - 1) * 100 if old.median else float("inf")
    return f"{old} -> {new} ({change:+.0f} %, {times})"
