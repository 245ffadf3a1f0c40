"""The tuner: measures what a program spends its time with, and searches a faster schedule for each such subject."""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from oarlock.codegen.schedule import Schedule
from oarlock.errors import DeviceLostError, OarlockError
from oarlock.ir import Operation
from oarlock.registry.versions import CORE_VERSION
from oarlock.runtime.device import Device
from oarlock.runtime.tuning.bench import Bench
from oarlock.runtime.tuning.known import driver_key, forget, target_key
from oarlock.runtime.tuning.search import LAST_PAIRS, Duel, Found, Search, duel
from oarlock.runtime.tuning.store import Result, Store
from oarlock.runtime.tuning.subjects import Work, works_of

__all__ = ["Limits", "Listener", "Report", "Tuned", "tune", "whole"]

MakeBench = Callable[[Work, Device], Bench]


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a search goes: ``seconds`` for all (None: no end), ``trials`` for each subject, subjects that take at
    least the part ``share`` of the time; those that are ``again`` searched although they were before."""

    seconds: float | None = None
    trials: int = 64
    share: float = 0.01
    again: bool = False


class Listener:
    """Is told how a search goes; does nothing by itself."""

    def profiled(self, done: int, total: int) -> None:
        """``done`` of ``total`` subjects have been timed as they are."""

    def searching(self, number: int, total: int, key: str, share: float, trials: int, ratio: float) -> None:
        """Subject ``number`` of ``total``: so many trials so far, the best takes the part ``ratio`` of the rules'."""

    def tuned(self, number: int, total: int, item: Tuned) -> None:
        """A subject is done."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """What came of one subject: its result, the part of the program's time it takes, whether it was ``known`` from
    before, and the schedules that were refused: (schedule, reason, whether it computed something wrong)."""

    result: Result
    count: int
    share: float
    known: bool
    refused: tuple[tuple[Schedule, str, bool], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            **self.result.to_json(),
            "count": self.count,
            "share": self.share,
            "known": self.known,
            "refused": [
                {"schedule": s.to_json(), "reason": reason, "wrong": wrong} for s, reason, wrong in self.refused
            ],
        }


@dataclass(slots=True)
class Report:
    """What a call of ``tune`` did. ``small`` counts subjects below the least share, ``left`` those that time did not
    suffice for; ``changed`` are the keys of those that are something else alone, or cannot run alone."""

    tuned: list[Tuned] = field(default_factory=list)
    small: int = 0
    left: int = 0
    changed: list[str] = field(default_factory=list)

    def gain(self) -> float:
        """The part of the time of all subjects that is saved, by their own times."""
        before = sum(t.count * t.result.default_ns for t in self.tuned)
        after = sum(t.count * t.result.best_ns for t in self.tuned)
        return 1 - after / before if before else 0.0


def tune(
    function: Operation,
    device: Device,
    store: Store,
    limits: Limits = Limits(),
    fixed: Sequence[int] = (),
    listener: Listener | None = None,
    make_bench: MakeBench = Bench,
) -> Report:
    """Search schedules for the subjects of ``function``, the heaviest first; each result is written when it is found.

    ``fixed`` are the positions of arguments that are the same in every run. Raises TuningError where ``store`` cannot
    be used, and KeyboardInterrupt once what was found so far is written.
    """
    work = _Tuning(device, store, limits, listener or Listener(), make_bench)
    try:
        return work.run(function, fixed)
    finally:
        forget(device)


def whole(function: Operation, device: Device, fixed: Sequence[int] = ()) -> Duel | None:
    """The whole program by the schedules that are known, against the rules; None where these are the same."""
    bench = Bench(Work("", function, tuple(fixed), 1, (), None), device)
    known = bench.running(None)
    if known.identity == bench.default.identity:
        return None
    known.runs = bench.default.runs
    known.sample()
    return duel(known, bench.default, LAST_PAIRS)


class _Tuning:
    def __init__(self, device: Device, store: Store, limits: Limits, listener: Listener, make_bench: MakeBench) -> None:
        self.device, self.store, self.limits, self.listener, self.make_bench = (
            device, store, limits, listener, make_bench,
        )  # fmt: skip
        self.target, self.driver = target_key(device.target), driver_key(device)
        found = store.read(self.target, self.driver)
        self.known = {r.subject: r for r in found if r.version == CORE_VERSION and r.finished and not limits.again}
        self.end = math.inf if limits.seconds is None else time.monotonic() + limits.seconds

    def out_of_time(self) -> bool:
        return time.monotonic() >= self.end

    def run(self, function: Operation, fixed: Sequence[int]) -> Report:
        report = Report()
        works, report.changed = works_of(function, self.device, fixed)
        weights = self.weigh(works, report)
        all_of_it = sum(weights.values()) or 1.0
        order = sorted((w for w in works if w.key in weights), key=lambda work: -weights[work.key])
        heavy = [work for work in order if weights[work.key] >= self.limits.share * all_of_it]
        report.small = len(order) - len(heavy)
        for number, work in enumerate(heavy, 1):
            share = weights[work.key] / all_of_it
            if work.key in self.known:
                item = Tuned(self.known[work.key], work.count, share, True)
            elif self.out_of_time():
                report.left += 1
                continue
            else:
                item = self.search(work, number, len(heavy), share)
            report.tuned.append(item)
            self.listener.tuned(number, len(heavy), item)
        return report

    def weigh(self, works: Sequence[Work], report: Report) -> dict[str, float]:
        """The seconds that each subject takes in a run of the program, as the rules have it."""
        weights: dict[str, float] = {}
        for done, work in enumerate(works):
            self.listener.profiled(done, len(works))
            if work.key in self.known:
                weights[work.key] = work.count * self.known[work.key].default_ns * 1e-9
                continue
            if self.out_of_time():
                report.left += 1
                continue
            try:
                default = self.make_bench(work, self.device).default
            except DeviceLostError:
                raise
            except OarlockError:
                report.changed.append(work.key)
                continue
            weights[work.key] = work.count * min(default.sample() for _ in range(3))
        self.listener.profiled(len(works), len(works))
        return weights

    def search(self, work: Work, number: int, total: int, share: float) -> Tuned:
        """Search, and write what was found."""
        bench = self.make_bench(work, self.device)

        def tell(trials: int, ratio: float) -> None:
            self.listener.searching(number, total, work.key, share, trials, ratio)

        tell(0, 1.0)
        found = Search(work.space, bench.build, self.limits.trials, self.out_of_time, tell).run()
        result = self.result(work, found)
        self.store.write(result)
        if found.interrupted:
            raise KeyboardInterrupt
        return Tuned(result, work.count, share, False, found.refused)

    def result(self, work: Work, found: Found) -> Result:
        return Result(
            subject=work.key,
            target=self.target,
            driver=self.driver,
            schedule=found.schedule,
            best_ns=round(found.seconds * 1e9),
            default_ns=round(found.default_seconds * 1e9),
            noise=round(found.noise, 4),
            trials=found.trials,
            finished=found.finished,
            date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            version=CORE_VERSION,
        )
