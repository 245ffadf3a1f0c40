"""The tuner: what it searches and in which order, what it keeps, and that programs then use it."""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import oarlock as ol
from oarlock.codegen.schedule import RULES, Schedule
from oarlock.config import config
from oarlock.ir import Operation
from oarlock.runtime import Device
from oarlock.runtime.plan import Plan
from oarlock.runtime.tuning import known
from oarlock.runtime.tuning.bench import Bench, Running
from oarlock.runtime.tuning.known import database, forget, schedules_of, shipped
from oarlock.runtime.tuning.search import Refused
from oarlock.runtime.tuning.store import Store
from oarlock.runtime.tuning.subjects import Work, works_of
from oarlock.runtime.tuning.tuner import Limits, Listener, tune, whole

from .conftest import program, t


def two_products() -> Operation:
    """A large and a small product, and a softmax."""

    def body(b: Any, x: Any, y: Any, z: Any) -> Any:
        return b("softmax", b("matmul", b("matmul", x, y), z), axis=1)

    return program([t(64, 96), t(96, 96), t(96, 40)], body)


class Told:
    """A trial without a device: seconds by what is multiplied, and by the schedule."""

    def __init__(self, key: str, schedule: Schedule) -> None:
        self.key, self.schedule = key, schedule

    @property
    def identity(self) -> Hashable:
        return self.schedule

    def sample(self) -> float:
        base = 5.0 if "float32[96,96]" in self.key else 2.0 if "dot_general" in self.key else 0.5
        return base * (0.5 if (self.schedule.rows, self.schedule.vectors) == (4, 2) else 1.0)


class Paper:
    """A bench without a device, which counts what it builds."""

    built = 0

    def __init__(self, work: Work, device: Device) -> None:
        self.work = work
        self.default = Told(work.key, RULES)

    def build(self, schedule: Schedule) -> Told:
        Paper.built += schedule != RULES
        return Told(self.work.key, schedule)


@pytest.fixture
def store(cpu: Device) -> Store:
    Paper.built = 0
    return Store(database())


def test_heaviest_is_searched_first_and_results_are_kept(cpu: Device, store: Store) -> None:
    report = tune(two_products(), cpu, store, make_bench=Paper)
    names = [item.result.subject.split(" #")[0] for item in report.tuned]
    assert names[:2] == ["dot_general float32[64,96] float32[96,96]", "dot_general float32[64,96] float32[96,40]"]
    assert "reduce_max" in names[2]
    assert [item.result.schedule for item in report.tuned[:3]] == [Schedule(rows=4, vectors=2)] * 2 + [RULES]
    assert report.tuned[0].share > 0.6 and report.tuned[0].result.ratio == pytest.approx(0.5)
    assert 0.4 < report.gain() < 0.5
    assert store.read() == [item.result for item in report.tuned]


def test_search_goes_on_where_it_was(cpu: Device, store: Store) -> None:
    first = tune(two_products(), cpu, store, make_bench=Paper)
    built = Paper.built
    again = tune(two_products(), cpu, store, make_bench=Paper)
    assert Paper.built == built and all(item.known for item in again.tuned)
    assert [item.result for item in again.tuned] == [item.result for item in first.tuned]
    tune(two_products(), cpu, store, Limits(again=True), make_bench=Paper)
    assert Paper.built == 2 * built


def test_time_that_is_over_leaves_the_rest_for_later(cpu: Device, store: Store) -> None:
    report = tune(two_products(), cpu, store, Limits(seconds=1e-9), make_bench=Paper)
    assert report.left and not report.tuned and store.read() == []


def test_interruption_keeps_what_there_is_and_raises(cpu: Device, store: Store) -> None:
    class Interrupted(Paper):
        def build(self, schedule: Schedule) -> Told:
            if schedule.cache_kib:
                raise KeyboardInterrupt
            return super().build(schedule)

    with pytest.raises(KeyboardInterrupt):
        tune(two_products(), cpu, store, make_bench=Interrupted)
    (result,) = store.read()
    assert result.schedule == Schedule(rows=4, vectors=2) and not result.finished
    assert not any(item.known for item in tune(two_products(), cpu, store, make_bench=Paper).tuned)


def test_light_subjects_are_left_alone(cpu: Device, store: Store) -> None:
    report = tune(two_products(), cpu, store, Limits(share=0.2), make_bench=Paper)
    assert len(report.tuned) == 2 and report.small >= 1


def test_listener_is_told(cpu: Device, store: Store) -> None:
    events: list[str] = []

    class Ears(Listener):
        def profiled(self, done: int, total: int) -> None:
            events.append(f"profiled {done}/{total}")

        def searching(self, number: int, total: int, key: str, share: float, trials: int, ratio: float) -> None:
            events.append(f"searching {number} {trials} {ratio:.1f}")

        def tuned(self, number: int, total: int, item: Any) -> None:
            events.append(f"tuned {number}")

    tune(two_products(), cpu, store, listener=Ears(), make_bench=Paper)
    assert "searching 1 0 1.0" in events and "tuned 1" in events
    assert any(event.startswith("searching 1") and event.endswith("0.5") for event in events)


# --- on the device ----------------------------------------------------------------------------------------------------


def names_of(plan: Plan) -> list[str]:
    return [str(call.function.attributes["name"]) for call in plan.lowered.calls]


def test_programs_use_what_was_found_unless_told_not_to(
    cpu: Device, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = names_of(Plan(two_products(), cpu))
    assert schedules_of(cpu) is None and whole(two_products(), cpu) is None
    tune(two_products(), cpu, store, make_bench=Paper)
    found = names_of(Plan(two_products(), cpu))
    assert found != rules
    outcome = whole(two_products(), cpu)
    assert outcome is not None and outcome.seconds > 0
    monkeypatch.setattr(config, "tuned", False)
    assert names_of(Plan(two_products(), cpu)) == rules


def test_real_search_ends_and_keeps_results(cpu: Device, store: Store) -> None:
    report = tune(two_products(), cpu, store, Limits(trials=2))
    assert report.tuned and len(store.read()) == len(report.tuned)
    for item in report.tuned:
        assert item.result.trials <= 2 and item.result.best_ns > 0 and not item.refused


def test_wrong_schedule_is_refused_and_never_kept(cpu: Device, store: Store) -> None:
    wrong = program([t(64, 96), t(96, 96)], lambda b, x, y: b("add", b("matmul", x, y), b("matmul", x, y)))
    right = program([t(64, 96), t(96, 96)], lambda b, x, y: b("matmul", x, y))

    class Planted(Bench):
        def running(self, choice: Any) -> Running:
            planted = choice is not None and hasattr(self, "expected")
            return Running(Plan(wrong, cpu), self.operands) if planted else super().running(choice)

    report = tune(right, cpu, store, make_bench=Planted)
    (item,) = [each for each in report.tuned if each.result.subject.startswith("dot_general")]
    assert item.result.schedule == RULES and item.result.trials == 0 and item.refused
    assert all(was_wrong and "off by" in reason for _, reason, was_wrong in item.refused)


def test_results_within_the_tolerance_are_accepted(cpu: Device) -> None:
    function = program([t(64, 96), t(96, 96)], lambda b, x, y: b("matmul", x, y))
    work = next(w for w in works_of(function, cpu)[0] if w.operator is not None)
    bench = Bench(work, cpu)
    (expected,) = bench.expected
    bench._compare([expected * (1 + 1e-7)])
    with pytest.raises(Refused, match="off by"):
        bench._compare([expected * (1 + 1e-3)])
    broken = expected.copy()
    broken[3, 5] = float("nan")
    with pytest.raises(Refused, match="in 1 of"):
        bench._compare([broken])


def test_broken_database_is_told_once_and_programs_run(cpu: Device) -> None:
    database().parent.mkdir(parents=True)
    database().write_bytes(b"nothing like a database" * 100)
    with pytest.warns(RuntimeWarning, match="tune --clear.*as the rules say"):
        names = names_of(Plan(two_products(), cpu))
    assert names_of(Plan(two_products(), cpu)) == names


def test_shipped_schedules_apply_to_their_target_and_the_users_come_first(
    cpu: Device, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tune(two_products(), cpu, store, make_bench=Paper)
    store.clear()
    first, second = (item.result for item in report.tuned[:2])
    file = tmp_path / "found.json"
    file.write_text(json.dumps({"results": [first.to_json(), {**second.to_json(), "target": "another"}]}))
    monkeypatch.setattr(known, "_SHIPPED", file)
    assert shipped(first.target, first.driver) == {first.subject: Schedule(rows=4, vectors=2)}
    forget(cpu)
    assert schedules_of(cpu) is not None
    store.write(replace(first, schedule=RULES))
    forget(cpu)
    assert schedules_of(cpu) is None, "the user's own measurement says that the rules are as good here"


def test_what_is_shipped_can_be_read() -> None:
    records = json.loads(Path(known.__file__).with_name("shipped.json").read_text())["results"]
    assert records
    for record in records:
        assert Schedule.from_json(record["schedule"]) != RULES
        assert record["best_ns"] < 0.97 * record["default_ns"]


def test_one_program_for_many_sizes_stays_one(cpu: Device, store: Store) -> None:
    """Schedules are known for exact sizes; asking for them must not tie a program to the sizes of its example."""
    tune(two_products(), cpu, store, make_bench=Paper)
    assert schedules_of(cpu) is not None
    squares = ol.jit(lambda x: ol.sum(x * x, axis=1), symbolic={"x": {0: "rows"}})
    with ol.device("cpu"):
        for rows in (300, 301, 4000):
            assert squares(ol.ones((rows, 64))).shape == (rows,)
    assert squares.compiles == 1
