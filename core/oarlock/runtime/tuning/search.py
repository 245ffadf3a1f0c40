"""The search: which of a few schedules is fastest, by measuring each side by side with the best so far.

It knows neither devices nor kernels: a trial is something that can be timed. One parameter is changed at a time, so
trials grow with the sum of the choices, not with their product. Machines drift and are shared, so two schedules take
turns, and one is better only by both: the lowest times of each, to which others can only add, and the median of the
ratios of neighbours, beyond its standard error.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from oarlock.codegen.schedule import RULES, Schedule
from oarlock.errors import ConfigError

__all__ = ["Duel", "Found", "Refused", "Search", "Trial", "duel"]

LEAST = 0.03
"""A gain that is kept is at least this part of the default's time."""
BETTER = 0.01
"""The search goes on from what is better by this part."""
FIRST, CLEARLY = 3, 1.05
"""From so many pairs on a schedule is given up that takes so much longer than the best, beyond the noise."""
PAIRS, LAST_PAIRS = 9, 15
PATIENT, CALM = 5, 0.02
"""Pairs are added, up to so many times as many, until the noise is no more than that."""
PATIENCE = 6
"""So many schedules in turn that bring nothing end the search along one parameter."""


class Refused(Exception):
    """A schedule that cannot be used here: the reason, and whether it gave ``wrong`` results."""

    def __init__(self, reason: str, wrong: bool = False) -> None:
        super().__init__(reason)
        self.wrong = wrong


class Trial(Protocol):
    """A schedule, compiled. Equal ``identity``: the same kernels."""

    @property
    def identity(self) -> Hashable: ...
    def sample(self) -> float:
        """Seconds of one run, measured now."""
        ...


@dataclass(frozen=True, slots=True)
class Duel:
    """Two trials side by side: the lowest ``seconds`` of each, the median of the ratios of ``neighbours``, and its
    ``noise``, two standard errors."""

    seconds: float
    against: float
    neighbours: float
    noise: float

    @property
    def ratio(self) -> float:
        """The first's part of the second's time."""
        return self.seconds / max(self.against, 1e-12)

    def wins(self, least: float) -> bool:
        """Whether the first is faster by at least ``least``, and more often than by chance."""
        return self.ratio < 1 - least and self.neighbours < 1 - self.noise


@dataclass(frozen=True, slots=True)
class Found:
    """What a search ended with. ``finished`` is False where it was cut short; ``interrupted``: by the keyboard."""

    schedule: Schedule
    seconds: float
    default_seconds: float
    noise: float
    trials: int
    finished: bool
    interrupted: bool
    refused: tuple[tuple[Schedule, str, bool], ...]
    """Schedules that could not be used, why, and whether they computed something wrong."""


def duel(one: Trial, other: Trial, fewest: int, clearly: float = float("inf")) -> Duel:
    """Time two trials in turns, ``fewest`` times each, and up to PATIENT times as often until the noise is small.

    It ends early where the first is slower by more than ``clearly``, beyond the noise.
    """
    mine: list[float] = []
    theirs: list[float] = []
    while True:
        for trial, times in ((one, mine), (other, theirs))[:: 1 if len(mine) % 2 else -1]:
            times.append(trial.sample())
        if len(mine) < FIRST:
            continue
        ratios = [a / max(b, 1e-12) for a, b in zip(mine, theirs, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        found = Duel(_lowest(mine), _lowest(theirs), middle, 1.86 * (high - low) / len(ratios) ** 0.5)
        calm = found.noise <= CALM and len(mine) >= fewest
        slower = min(found.ratio, found.neighbours - found.noise) > clearly
        if calm or slower or len(mine) >= PATIENT * fewest:
            return found


def _lowest(times: Sequence[float]) -> float:
    """The mean of the lowest three."""
    return sum(sorted(times)[:FIRST]) / FIRST


@dataclass(slots=True)
class _Walk:
    """How far a search has come."""

    champion: Trial
    best: Schedule = RULES
    trials: int = 0
    refused: list[tuple[Schedule, str, bool]] = field(default_factory=list)


@dataclass(slots=True)
class Search:
    """A search among the ``space``'s changes; ``build`` compiles and checks a schedule, or raises Refused."""

    space: Sequence[Sequence[Mapping[str, Any]]]
    build: Callable[[Schedule], Trial]
    most_trials: int
    out_of_time: Callable[[], bool] = lambda: False
    tell: Callable[[int, float], None] = lambda trials, ratio: None
    """Told after each trial how many there were, and the best's part of the default's time so far."""

    def run(self) -> Found:
        """Search; raises what ``build`` raises for the default. An interruption ends it with what there is so far."""
        default = self.build(RULES)
        walk = _Walk(default)
        finished, interrupted = False, False
        try:
            finished = self._walk(walk)
        except KeyboardInterrupt:
            interrupted = True
        last = duel(walk.champion, default, LAST_PAIRS if walk.champion is not default else PAIRS)
        won = walk.champion is not default and last.wins(LEAST)
        return Found(
            schedule=walk.best if won else RULES,
            seconds=last.seconds if won else last.against,
            default_seconds=last.against,
            noise=last.noise,
            trials=walk.trials,
            finished=finished,
            interrupted=interrupted,
            refused=tuple(walk.refused),
        )

    def _walk(self, walk: _Walk) -> bool:
        """Try the changes one by one; False where time ran out."""
        seen = {walk.champion.identity}
        part, misses = 1.0, 0
        current: Sequence[Mapping[str, Any]] = ()
        for axis, change in self._changes(walk):
            if axis is not current:
                current, misses = axis, 0
            if misses >= PATIENCE:
                continue
            if walk.trials >= self.most_trials:
                return True
            if self.out_of_time():
                return False
            schedule = _changed(walk.best, change)
            trial = self._built(schedule, walk) if schedule is not None else None
            if schedule is None or trial is None or trial.identity in seen:
                continue
            seen.add(trial.identity)
            walk.trials += 1
            misses += 1
            outcome = duel(trial, walk.champion, PAIRS, CLEARLY)
            if outcome.wins(BETTER):
                walk.best, walk.champion = schedule, trial
                misses, part = 0, part * outcome.ratio
            self.tell(walk.trials, part)
        return True

    def _built(self, schedule: Schedule, walk: _Walk) -> Trial | None:
        try:
            return self.build(schedule)
        except Refused as error:
            walk.refused.append((schedule, str(error), error.wrong))
            return None

    def _changes(self, walk: _Walk) -> Iterator[tuple[Sequence[Mapping[str, Any]], Mapping[str, Any]]]:
        """Each change with its axis, and all once more where the first walk has found something."""
        yield from ((axis, change) for axis in self.space for change in axis)
        if walk.best != RULES:
            yield from ((axis, change) for axis in self.space for change in axis)


def _changed(schedule: Schedule, change: Mapping[str, Any]) -> Schedule | None:
    """A schedule with a change; None where there is none such."""
    try:
        return Schedule.from_json(replace(schedule, **change).to_json())
    except ConfigError:
        return None
