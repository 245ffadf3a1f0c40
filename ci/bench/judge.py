"""Says what was reached: ratios are medians over the rounds of one run, never of times from different runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ci.bench.peers import OURS
from ci.bench.works import Ask, Work

__all__ = ["Verdict", "best_peer", "in_unit", "judge", "median", "ratio"]

NOT_PEERS = ("limit", "plain-c", *OURS)
_SCALE = {"ms": 1.0, "us": 1e3, "s": 1e-3, "x": 1.0}

Columns = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One demand: what was measured in its terms, and whether that is enough (None: it was not measured)."""

    text: str
    measured: str
    reached: bool | None


def median(columns: Columns, name: str) -> float | None:
    """The median of the rounds, in ms."""
    times = columns.get(name, {}).get("ms")
    return statistics.median(times) if times else None


def ratio(columns: Columns, subject: str, against: str) -> float | None:
    """How many times as long ``subject`` takes as ``against``: the median over the rounds."""
    above, below = columns.get(subject, {}).get("ms"), columns.get(against, {}).get("ms")
    if not above or not below:
        return None
    return statistics.median(a / b for a, b in zip(above, below, strict=False))


def best_peer(columns: Columns) -> str | None:
    """The fastest of the peers."""
    times = {name: median(columns, name) for name in columns if name not in NOT_PEERS}
    known = {name: time for name, time in times.items() if time is not None}
    return min(known, key=lambda name: known[name]) if known else None


def in_unit(work: Work, ms: float) -> float:
    """A time as the row shows it."""
    return work.operations / ms / 1e6 if work.unit == "GFLOP/s" else ms * _SCALE[work.unit]


def judge(work: Work, columns: Columns) -> list[Verdict]:
    """Every demand of the row."""
    return [_verdict(work, ask, columns) for ask in work.asks]


def _verdict(work: Work, ask: Ask, columns: Columns) -> Verdict:
    if ask.either:
        parts = [_verdict(work, each, columns) for each in ask.either]
        known = [part.reached for part in parts if part.reached is not None]
        reached = any(known) if known else None
        return Verdict(" or ".join(p.text for p in parts), "; ".join(p.measured for p in parts), reached)
    if ask.against is None:
        time = median(columns, ask.subject)
        if time is None:
            return Verdict(ask.text, "not measured", None)
        value = in_unit(work, time)  # of demands in the row's unit, none is a rate
        return Verdict(ask.text, f"{value:.3g} {work.unit}", value <= ask.factor)
    against = best_peer(columns) if ask.against == "best peer" else ask.against
    found = ratio(columns, ask.subject, against) if against else None
    if found is None:
        return Verdict(ask.text, "not measured", None)
    return Verdict(ask.text, f"{found:.2f} x the time of {against}", found <= ask.factor)
