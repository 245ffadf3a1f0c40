"""The search, on trials whose times are made up: what is faster is found, noise is not, and what is wrong is left."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from dataclasses import replace

import pytest

from oarlock.codegen.schedule import RULES, Schedule
from oarlock.runtime.tuning.search import CLEARLY, FIRST, PAIRS, PATIENCE, PATIENT, Found, Refused, Search, duel

SPACE = (
    ({"form": "packed"}, {"form": "tiles"}),
    ({"rows": 4, "vectors": 3}, {"rows": 8, "vectors": 1}, {"rows": 2, "vectors": 2}),
    ({"blocks": 64}, {"blocks": 128}),
)


class Timed:
    """A schedule that takes the time that ``clock`` gives for it."""

    def __init__(self, schedule: Schedule, clock: Callable[[Schedule], float]) -> None:
        self.schedule, self.clock, self.samples = schedule, clock, 0

    @property
    def identity(self) -> Hashable:
        return self.schedule

    def sample(self) -> float:
        self.samples += 1
        return self.clock(self.schedule)


def search(clock: Callable[[Schedule], float], trials: int = 100, **options) -> tuple[Found, list[Timed]]:
    made: list[Timed] = []

    def build(schedule: Schedule) -> Timed:
        made.append(Timed(schedule, clock))
        return made[-1]

    return Search(SPACE, build, trials, **options).run(), made


def cost(schedule: Schedule) -> float:
    """A default that is slow: its rows and blocks are better elsewhere."""
    seconds = 1.0
    seconds *= {4: 0.6, 8: 0.8}.get(schedule.rows, 1.0)
    seconds *= {64: 0.9, 128: 1.2}.get(schedule.blocks, 1.0)
    return seconds * (1.5 if schedule.form else 1.0)


def test_slow_default_is_improved_along_each_parameter() -> None:
    found, _ = search(cost)
    assert found.schedule == Schedule(rows=4, vectors=3, blocks=64)
    assert found.seconds == pytest.approx(0.54) and found.default_seconds == 1.0
    assert found.finished and not found.refused


def test_fast_default_stays() -> None:
    found, made = search(lambda schedule: 1.0 if schedule == RULES else 1.02)
    assert found.schedule == RULES and found.seconds == found.default_seconds == 1.0
    assert found.trials == sum(map(len, SPACE)) == len(made) - 1


def test_gain_below_the_least_is_not_kept() -> None:
    assert search(lambda schedule: 0.98 if schedule.blocks == 64 else 1.0)[0].schedule == RULES


def test_clearly_slower_schedule_is_given_up_after_a_few_samples() -> None:
    _, made = search(lambda schedule: 1.0 if schedule == RULES else 2 * CLEARLY)
    assert {trial.samples for trial in made[1:]} == {FIRST}


def test_parameter_is_left_after_many_trials_in_vain() -> None:
    space = (tuple({"blocks": n} for n in range(1, 40)), ({"lanes": 8},))
    tried: list[Schedule] = []

    def build(schedule: Schedule) -> Timed:
        tried.append(schedule)
        return Timed(schedule, lambda s: 0.5 if s.lanes == 8 else 1.0)

    assert Search(space, build, 100).run().schedule == Schedule(lanes=8)
    assert sum(1 for s in tried if s.blocks and not s.lanes) == PATIENCE


def test_equal_kernels_are_timed_once() -> None:
    class Same(Timed):
        identity = "the same"

    found = Search(SPACE, lambda schedule: Same(schedule, cost), 100).run()
    assert found.trials == 0 and found.schedule == RULES


def test_refused_schedules_are_reported_and_left() -> None:
    def build(schedule: Schedule) -> Timed:
        if schedule.rows == 4:
            raise Refused("result 0 is off by 3", wrong=True)
        return Timed(schedule, cost)

    found = Search(SPACE, build, 100).run()
    assert found.schedule == Schedule(rows=8, vectors=1, blocks=64)
    assert (Schedule(rows=4, vectors=3), "result 0 is off by 3", True) in found.refused


def test_trials_end_the_search_and_time_leaves_it_unfinished() -> None:
    found, _ = search(cost, trials=3)
    assert found.trials == 3 and found.finished and found.schedule == Schedule(rows=4, vectors=3)
    left = iter([False] * 4)
    found, _ = search(cost, out_of_time=lambda: next(left, True))
    assert found.trials == 4 and not found.finished and found.schedule == Schedule(rows=4, vectors=3)


def test_interruption_keeps_what_was_found() -> None:
    def build(schedule: Schedule) -> Timed:
        if schedule.blocks:
            raise KeyboardInterrupt
        return Timed(schedule, cost)

    found = Search(SPACE, build, 100).run()
    assert found.interrupted and not found.finished and found.schedule == Schedule(rows=4, vectors=3)


def noisy(seed: int, part: float) -> Callable[[Schedule], float]:
    """Times that others disturb often and much; ``blocks=64`` takes ``part`` of the default's."""
    generator = random.Random(seed)

    def clock(schedule: Schedule) -> float:
        quiet = (part if schedule.blocks == 64 else 1.0) * generator.uniform(1.0, 1.05)
        return quiet * (1 + generator.expovariate(1.0) if generator.random() < 0.6 else 1.0)

    return clock


def test_noise_is_no_gain() -> None:
    wins = [seed for seed in range(60) if search(noisy(seed, 1.0))[0].schedule != RULES]
    assert len(wins) <= 1, wins


def test_gain_is_found_in_noise() -> None:
    found = [search(noisy(seed, 0.7))[0].schedule.blocks for seed in range(60)]
    assert found.count(64) >= 54


def test_duel_takes_turns_and_stops_when_it_is_calm() -> None:
    order: list[str] = []

    def clock(name: str) -> Callable[[Schedule], float]:
        return lambda schedule: order.append(name) or 1.0

    assert duel(Timed(RULES, clock("a")), Timed(RULES, clock("b")), PAIRS).ratio == 1.0
    assert len(order) == 2 * PAIRS and "".join(order).startswith("baabba")
    restless = noisy(1, 1.0)
    trial = Timed(RULES, restless)
    duel(trial, Timed(RULES, restless), PAIRS)
    assert trial.samples == PATIENT * PAIRS


@pytest.mark.parametrize(
    "record",
    [{"rows": 3000}, {"rows": True}, {"nothing": 1}, {"form": "best"}, {"lanes": 12}, {"rows": 32, "vectors": 8}],
)
def test_impossible_schedules_are_refused(record: dict[str, object]) -> None:
    from oarlock.errors import ConfigError

    with pytest.raises(ConfigError, match="schedule|tile"):
        Schedule.from_json(record)


def test_schedule_survives_json() -> None:
    schedule = replace(RULES, form="row", vectors=256, stream="never")
    assert Schedule.from_json(schedule.to_json()) == schedule and Schedule.from_json({}) == RULES
