"""The journal: what is written can be resumed, a cut line is dropped, and one of another run is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oarlock.errors import ConfigError
from oarlock_conformance import certify as module
from oarlock_conformance.case import Case, Options, Outcome
from oarlock_conformance.certify import Certification, Request, certify
from oarlock_conformance.journal import Journal
from oarlock_conformance.runner import Group, Plan, groups_of

BINDING = {"suite_hash": "a" * 64, "device": "acme:0"}


def test_outcomes_come_back(tmp_path: Path) -> None:
    path = tmp_path / "out" / "acme-0.journal.jsonl"
    journal = Journal.begin(path, BINDING)
    outcome = Outcome("add/float32/0", "failed", 0.25, "value", "off by 1", {"ulp": {"ulp": 3.0}})
    journal.add(outcome)
    journal.close()
    again, found = Journal.resume(path, BINDING)
    assert found == {outcome.case: outcome}
    again.add(Outcome("add/float32/1", "passed"))
    again.close()
    assert len(Journal.resume(path, BINDING)[1]) == 2


def test_line_that_was_cut_off_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal.begin(path, BINDING)
    journal.add(Outcome("a", "passed"))
    journal.close()
    path.write_text(path.read_text("utf-8") + '{"case": "b", "sta', encoding="utf-8")
    again, found = Journal.resume(path, BINDING)
    again.add(Outcome("c", "passed"))
    again.close()
    assert set(found) == {"a"}
    assert set(Journal.resume(path, BINDING)[1]) == {"a", "c"}


def test_journal_of_another_run_is_refused_with_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    Journal.begin(path, BINDING).close()
    with pytest.raises(
        ConfigError, match=r"suite_hash was aaaaaaaaaaaa\.\.\., is bbbbbbbbbbbb\.\.\..*without --resume"
    ):
        Journal.resume(path, {**BINDING, "suite_hash": "b" * 64})


def test_something_else_is_no_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text("hello\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no journal"):
        Journal.resume(path, BINDING)


DEVICE: dict[str, Any] = {
    "id": "acme:0", "name": "Acme", "vendor": "", "driver": "1", "memory": 1, "device_hash": "de", "driver_hash": "d0",
    "adapter": {"hash": "00"},
}  # fmt: skip
CASES = tuple(
    Case(f"{group}.thing/{number}", "runtime", group, "it works") for group in ("memory", "stream") for number in (0, 1)
)


class Groups:
    """Stands for the processes: every case passes, until ``stop`` cases were told."""

    def __init__(self, stop: int = 100) -> None:
        self.stop = stop
        self.ran: list[str] = []

    def __call__(self, device: str, groups: list[Group], options: Options, jobs: int, tell: Any) -> None:
        for group in groups:
            for case in (*group.cases, group.process):
                if len(self.ran) == self.stop:
                    raise KeyboardInterrupt
                self.ran.append(case.id)
                tell(Outcome(case.id, "passed", 0.1))


def run(folder: Path, groups: Groups, monkeypatch: pytest.MonkeyPatch, **request: Any) -> Certification:
    monkeypatch.setattr(module, "run_groups", groups)
    return certify(Request("acme", ("runtime",), report=folder, **request), plan=Plan(DEVICE, CASES))


def test_interrupted_run_goes_on_with_the_groups_that_were_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, Groups(stop=4), monkeypatch)
    later = Groups()
    found = run(tmp_path, later, monkeypatch, resume=True)
    assert later.ran == ["stream.thing/0", "stream.thing/1", "process/runtime.stream"]
    assert found.resumed == 3
    assert [case.id for case in found.cases].count("memory.thing/0") == 1
    assert found.conformant and set(found.outcomes) == {case.id for case in found.cases}


def test_other_options_refuse_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, Groups(), monkeypatch)
    with pytest.raises(ConfigError, match="option quick was false, is true"):
        run(tmp_path, Groups(), monkeypatch, resume=True, options=Options(quick=True))


def test_without_resume_everything_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, Groups(), monkeypatch)
    again = Groups()
    assert run(tmp_path, again, monkeypatch).resumed == 0
    assert len(again.ran) == 6
    lines = (tmp_path / "acme-0.journal.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == 7 and json.loads(lines[0])["binding"]["device"] == "acme:0"


def test_shuffled_order_is_another_with_the_same_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = []
    for seed in (1, 1, 2, 3, 4, 5):
        groups = Groups()
        found = run(tmp_path, groups, monkeypatch, shuffle=seed)
        orders.append(tuple(groups.ran))
        assert [case.id for case in found.cases[:4]] == [case.id for case in CASES], "the certificate keeps its order"
    assert orders[0] == orders[1]
    assert len(set(orders)) > 2
    assert {frozenset(order) for order in orders} == {frozenset(orders[0])}
    assert len(groups_of(CASES)) == 2
