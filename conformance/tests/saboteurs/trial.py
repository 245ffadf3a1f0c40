"""Trials: the cases of a surface on a healthy simulator and on a broken one, in processes of their own."""

from __future__ import annotations

import fnmatch
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from oarlock_saboteurs import HEALTHY, SABOTEURS, Saboteur
from surfaces import SURFACES, Surface

from oarlock import registry
from oarlock.config import config
from oarlock.errors import OarlockError
from oarlock_conformance.case import Case, Options, Outcome
from oarlock_conformance.environment import suite_hash
from oarlock_conformance.runner import groups_of, make_plan, run_groups

__all__ = ["PREFIX", "Row", "Table", "chosen", "installed", "run_table"]

PREFIX = "broken_"
_CACHE = "OARLOCK_CACHE_DIR"
_CAUGHT_BY = {"value": "value", "exception": "error", "leak": "leak", "crash": "crash", "time-out": "time-out"}


@contextmanager
def installed(site: Path) -> Iterator[Path]:
    """Install the broken adapters as a distribution in the folder ``site``, for this process and its children; their
    kernels are kept by themselves, in the cache folder."""
    info = site / "oarlock_saboteurs-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "reached").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: oarlock-saboteurs\nVersion: 1.0\n")
    entries = "\n".join(f"{PREFIX}{name} = oarlock_saboteurs:{name}" for name in (*SABOTEURS, *HEALTHY))
    (info / "entry_points.txt").write_text(f"[oarlock.adapters]\n{entries}\n")
    (site / "kernels").write_text(str(config.cache_dir.resolve() / "saboteurs"))
    before, cached = list(sys.path), os.environ.get(_CACHE)
    sys.path[:0] = [str(site), str(Path(__file__).parent)]
    os.environ[_CACHE] = str(site / "cache")  # each adapter begins with a cold cache of the core's
    registry.forget()
    try:
        yield site
    finally:
        sys.path[:] = before
        os.environ.pop(_CACHE)
        if cached is not None:
            os.environ[_CACHE] = cached
        registry.forget()


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one saboteur. ``cases``: cases run, ``first``: the first that did not pass; ``by``: "value",
    "error", "time-out", "leak" or "crash"; ``reached``: how often the fault was active. ``failing``: cases that did
    not pass (with --full all are run, else there is one)."""

    name: str
    surface: str
    fault: str
    cases: int
    first: str
    by: str
    reason: str
    reached: int
    failing: int
    seconds: float

    @property
    def caught(self) -> bool:
        return bool(self.first) and self.reached > 0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "caught": self.caught}


@dataclass(frozen=True, slots=True)
class Table:
    """All rows; ``healthy``: per surface the cases that passed on the healthy simulator, and the seconds they took;
    ``unhealthy``: what did not pass there, which spoils the table."""

    rows: tuple[Row, ...]
    healthy: dict[str, tuple[int, float]]
    unhealthy: tuple[str, ...]
    seconds: float
    jobs: int

    @property
    def good(self) -> bool:
        return not self.unhealthy and all(row.caught for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        rows = [row.to_json() for row in self.rows]
        return {
            "planted": len(rows),
            "caught": sum(row.caught for row in self.rows),
            "crash_only": [row.name for row in self.rows if row.caught and row.by == "crash"],
            "unhealthy": list(self.unhealthy),
            "suite_hash": suite_hash(),
            "seconds": round(self.seconds, 1),
            "jobs": self.jobs,
            "healthy": {k: {"cases": count, "seconds": round(s, 1)} for k, (count, s) in self.healthy.items()},
            "rows": rows,
        }


def chosen(names: Sequence[str], shard: tuple[int, int]) -> list[Saboteur]:
    """Saboteurs by patterns of their name or surface (none: all), and of those part ``shard`` = (number from 0, parts);
    neighbours share a surface."""
    found = sorted((item for item in SABOTEURS.values() if not names or _named(item, names)), key=_place)
    number, parts = shard
    return found[len(found) * number // parts : len(found) * (number + 1) // parts]


def _named(item: Saboteur, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(text, pattern) for text in (item.name, item.surface) for pattern in patterns)


def _place(item: Saboteur) -> tuple[int, str]:
    return list(SURFACES).index(item.surface), item.name


Tell = Callable[[str], None]


def run_table(saboteurs: Sequence[Saboteur], site: Path, options: Options, jobs: int, full: bool, tell: Tell) -> Table:
    """Try every saboteur; ``full``: on all surfaces and to the end, not only to the first catch on its own."""
    start = time.perf_counter()
    names = list(SURFACES) if full else list(dict.fromkeys(item.surface for item in saboteurs))
    trials = _Trials(site, options, full, tell)
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        list(pool.map(trials.check_healthy, names))
        rows = list(pool.map(trials.try_one, saboteurs))
    return Table(tuple(rows), trials.healthy, tuple(trials.unhealthy), time.perf_counter() - start, jobs)


class _Caught(Exception):
    """A case did not pass, and that is enough."""


class _Trials:
    """What the trials of one table share: the plans of healthy devices, and what passed there."""

    def __init__(self, site: Path, options: Options, full: bool, tell: Tell) -> None:
        self.site = site
        self.options = options
        self.full = full
        self.tell = tell
        self.healthy: dict[str, tuple[int, float]] = {}
        self.unhealthy: list[str] = []
        self.sick: set[str] = set()
        self._plans: dict[tuple[str, str], tuple[Case, ...]] = {}
        self._lock = threading.Lock()

    def check_healthy(self, name: str) -> None:
        """Run a surface on its healthy simulator: everything must pass."""
        surface = SURFACES[name]
        start = time.perf_counter()
        cases = self._healthy_cases(surface)
        outcomes = _run(f"{PREFIX}{surface.healthy}:0", cases, self.options, False)
        bad = [f"{name}: {o.case}: {o.kind}: {o.reason}" for o in outcomes if o.state != "passed"]
        if not cases:
            bad.append(f"{name}: no case matches {', '.join(surface.patterns)}")
        self.healthy[name] = (len(cases), time.perf_counter() - start)
        if bad:
            self.sick.add(name)
        self.unhealthy += bad
        self.tell(f"healthy   {name}: {len(cases)} cases, {len(bad)} not passed, {self.healthy[name][1]:.1f} s")

    def try_one(self, item: Saboteur) -> Row:
        """Run a saboteur's surface on it, to the first catch."""
        start = time.perf_counter()
        if item.surface in self.sick:
            text = "the healthy simulator does not pass this surface"
            return Row(item.name, item.surface, item.fault, 0, "", "", text, 0, 0, 0.0)
        tally = self.site / "reached" / item.name
        tally.unlink(missing_ok=True)
        names = list(SURFACES) if self.full else [item.surface]
        outcomes = [outcome for name in names for outcome in self._outcomes(item, SURFACES[name])]
        bad = [outcome for outcome in outcomes if outcome.state != "passed"]
        first = bad[0] if bad else Outcome("", "passed")
        reached = tally.stat().st_size if tally.exists() else 0
        row = Row(
            item.name, item.surface, item.fault, sum(not o.case.startswith("process/") for o in outcomes), first.case,
            _by(first), first.reason[:300], reached, len(bad), round(time.perf_counter() - start, 2),
        )  # fmt: skip
        word = f"by {row.by} in {row.first}" if row.caught else "NOT CAUGHT" if reached else "NOT REACHED"
        self.tell(f"{'caught' if row.caught else 'missed':9} {item.name} ({item.surface}): {word}, {row.seconds:.1f} s")
        return row

    def _outcomes(self, item: Saboteur, surface: Surface) -> list[Outcome]:
        device = f"{PREFIX}{item.name}:0"
        try:
            if surface.level == "runtime" and _declares_itself(item):  # what it declares may be the fault
                planned = make_plan(device, (surface.level,), self.options).cases
                cases: Sequence[Case] = [case for case in planned if surface.holds(case)]
            else:
                cases = self._healthy_cases(surface)
        except OarlockError as error:
            return [Outcome("(opening the device)", "failed", kind="exception", reason=str(error))]
        return _run(device, cases, self.options, not self.full)

    def _healthy_cases(self, surface: Surface) -> tuple[Case, ...]:
        key = (surface.healthy, surface.level)
        with self._lock:
            if key not in self._plans:
                self._plans[key] = make_plan(f"{PREFIX}{surface.healthy}:0", (surface.level,), self.options).cases
        return tuple(case for case in self._plans[key] if surface.holds(case))


def _declares_itself(item: Saboteur) -> bool:
    """Whether a saboteur says something else of its devices than a healthy adapter does."""
    found = type(item.make()).devices
    return all(found is not type(known.make()).devices for known in HEALTHY.values())


def _run(device: str, cases: Sequence[Case], options: Options, stop: bool) -> list[Outcome]:
    """Outcomes of cases, by the suite's own runner; ``stop`` at the first that does not pass."""
    outcomes: list[Outcome] = []

    def tell(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if stop and outcome.state != "passed":
            raise _Caught

    try:
        for group in groups_of(cases):
            run_groups(device, [group], options, 1, tell)
    except _Caught:
        pass
    return outcomes


def _by(outcome: Outcome) -> str:
    """How a case caught a fault."""
    if outcome.state == "passed":
        return ""
    if outcome.kind == "exception" and "DeviceTimeoutError" in outcome.reason[:40]:
        return "time-out"
    return _CAUGHT_BY.get(outcome.kind, "error")


@contextmanager
def temporary_site() -> Iterator[Path]:
    """The broken adapters, installed in a folder that is gone afterwards."""
    with TemporaryDirectory(prefix="oarlock-saboteurs-") as folder, installed(Path(folder, "site")) as site:
        yield site
