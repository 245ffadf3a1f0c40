"""Measured figures: median and spread of several runs, and whether one is worse than another beyond the noise."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

__all__ = ["Better", "Figure", "at_pace", "figure_of", "figures_in", "pace", "shown", "worse"]

Better: TypeAlias = Literal["lower", "higher"]

SPREADS = 3.0
"""A difference counts from so many times the larger spread of the two on ..."""
LEAST = 0.15
"""... and from this part of the older figure on, for runs that happen to lie close together."""


_PACE_SIZE, _PACE_RUNS = 1_000_000, 5
_PACED = 1.1
"""A host that is slower by less counts as being as fast."""
_UNPACED = ("MiB",)


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured: the ``median`` of ``runs`` runs and their ``spread`` (between the quartiles), in ``unit``."""

    median: float
    spread: float
    runs: int
    unit: str
    better: Better

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{shown(self.median)} {self.unit}"


def figure_of(samples: Sequence[float], unit: str, better: Better) -> Figure:
    """The figure of some samples; at least one."""
    if len(samples) == 1:
        return Figure(samples[0], 0.0, 1, unit, better)
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Figure(statistics.median(samples), high - low, len(samples), unit, better)


def figures_in(details: Mapping[str, Any]) -> dict[str, Figure]:
    """The figures among a case's details, by name."""
    return {
        name: Figure(**{key: item[key] for key in ("median", "spread", "runs", "unit", "better")})
        for name, item in details.get("figures", {}).items()
    }


def worse(old: Figure, new: Figure) -> bool:
    """Whether ``new`` is worse than ``old`` by more than the noise of both."""
    change = new.median - old.median if old.better == "lower" else old.median - new.median
    return change > noise(old, new)


def pace() -> float:
    """Seconds that this host takes for a fixed piece of work, now: noted beside what is measured, so that a machine
    that is busy, or clocked down, is not taken for a slow device. Long enough to lose its turn when others want it."""
    values = np.random.default_rng(0).random(_PACE_SIZE)
    start = time.perf_counter()
    for _ in range(_PACE_RUNS):
        np.sort(values)
    return (time.perf_counter() - start) / _PACE_RUNS


def at_pace(figure: Figure, before: float, now: float) -> Figure:
    """A figure as it would be if the host went as fast as ``before`` (0: unknown): only ever better than it is."""
    slower = now / before if before > 0 and now > 0 else 1.0
    if slower <= _PACED or figure.unit in _UNPACED:
        return figure
    factor = 1 / slower if figure.better == "lower" else slower
    return replace(figure, median=figure.median * factor, spread=figure.spread * factor)


def noise(old: Figure, new: Figure) -> float:
    """The change from which on two figures differ."""
    return max(SPREADS * max(old.spread, new.spread), LEAST * abs(old.median))


def shown(value: float) -> str:
    """A number with three or four figures, as a person reads it."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"
