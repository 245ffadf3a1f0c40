"""Waivers: read strictly, applied to failures alone, and themselves judged: expired or unneeded ones fail."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from oarlock.errors import ConfigError
from oarlock_conformance.case import Case, Outcome, State
from oarlock_conformance.waivers import FILE, Waiver, apply_waivers, for_device, read_waivers

ENTRY = """
[[waiver]]
case = "tanh/float32/*"
kind = "known-failure"
reason = "the vendor's tanh loses bits"
owner = "numerics"
expires = 2027-06-30
"""
TODAY = date(2026, 11, 30)
CASES = [Case(f"tanh/float32/{i}", "operators", "elementwise", "tanh") for i in range(3)]


def written(folder: Path, text: str) -> Path:
    path = folder / FILE
    path.write_text(text, encoding="utf-8")
    return path


def test_no_file_is_no_waivers(tmp_path: Path) -> None:
    assert read_waivers(tmp_path / FILE) == ()


def test_entry_is_read(tmp_path: Path) -> None:
    (waiver,) = read_waivers(written(tmp_path, ENTRY))
    assert (waiver.number, waiver.case, waiver.kind, waiver.expires) == (
        1, "tanh/float32/*", "known-failure", "2027-06-30",
    )  # fmt: skip
    assert Waiver.from_json(waiver.to_json()) == waiver


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('owner = "numerics"\n', "", "has no owner"),
        ('reason = "the vendor\'s tanh loses bits"', 'reason = " "', "reason must be a text"),
        ("2027-06-30", '"2027-06-30"', "must be a date"),
        ("known-failure", "wontfix", "kind 'wontfix'"),
        ("[[waiver]]", "[waiver]", r"write entries as \[\[waiver\]\]"),
        ("owner", "team = 1\nowner", "unknown 'team'"),
        ("owner", 'devices = ["acme"]\nowner', "devices must be a list of names"),
        ("owner", "drivers = [7]\nowner", "drivers must be a list of patterns"),
        ("[[waiver]]", "[[waiver", "cannot be read"),
    ],
)
def test_bad_file_is_refused_with_its_place(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_waivers(written(tmp_path, ENTRY.replace(old, new)))


def test_devices_choose(tmp_path: Path) -> None:
    waivers = read_waivers(written(tmp_path, ENTRY + 'devices = ["acme:1"]\n' + ENTRY))
    assert [waiver.number for waiver in for_device(waivers, "acme:0", "driver 1")] == [2]
    assert [waiver.number for waiver in for_device(waivers, "acme:1", "driver 1")] == [1, 2]


def test_drivers_choose(tmp_path: Path) -> None:
    waivers = read_waivers(written(tmp_path, ENTRY + 'drivers = ["*soft*", "acme 2.*"]\n' + ENTRY))
    assert [waiver.number for waiver in for_device(waivers, "acme:0", "acme 3.0")] == [2]
    assert [waiver.number for waiver in for_device(waivers, "acme:0", "acme 2.7")] == [1, 2]
    assert Waiver.from_json(waivers[0].to_json()) == waivers[0]


def judged(states: list[State], expires: str = "2027-06-30", complete: bool = True, run: int = 3) -> dict[str, Outcome]:
    """Outcomes after one waiver for all of tanh, of which the first ``run`` cases were chosen."""
    waiver = Waiver(1, "tanh/*", "waiver", "why", "who", expires)
    outcomes = {case.id: Outcome(case.id, state) for case, state in zip(CASES, states, strict=False)}
    return apply_waivers([waiver], CASES, CASES[:run], outcomes, complete, TODAY)


def test_failures_are_waived_and_passes_are_not() -> None:
    found = judged(["failed", "passed", "error"])
    assert [found[case.id].state for case in CASES] == ["waived", "passed", "waived"]
    assert found["waiver.1/tanh/*"].state == "passed"
    assert found[CASES[2].id].details["waived"] == {"state": "error", "waiver": "waiver.1/tanh/*"}


def test_expired_waiver_fails_and_waives_nothing() -> None:
    found = judged(["failed", "passed", "passed"], "2026-11-29")
    assert found[CASES[0].id].state == "failed"
    assert found["waiver.1/tanh/*"].state == "failed"
    assert "expired on 2026-11-29" in found["waiver.1/tanh/*"].reason


def test_waiver_holds_on_its_last_day() -> None:
    assert judged(["failed", "passed", "passed"], "2026-11-30")[CASES[0].id].state == "waived"


def test_unexpected_pass_fails() -> None:
    found = judged(["passed", "passed", "passed"])["waiver.1/tanh/*"]
    assert (found.state, "unexpected pass" in found.reason) == ("failed", True)


def test_part_of_the_cases_says_nothing() -> None:
    assert judged(["passed"], run=1)["waiver.1/tanh/*"].state == "unsupported"


@pytest.mark.parametrize(("complete", "state"), [(True, "failed"), (False, "unsupported")])
def test_pattern_without_a_case_is_stale(complete: bool, state: State) -> None:
    waiver = Waiver(1, "sinh/*", "waiver", "why", "who", "2027-06-30")
    outcomes = {case.id: Outcome(case.id, "passed") for case in CASES}
    found = apply_waivers([waiver], CASES, CASES, outcomes, complete, TODAY)["waiver.1/sinh/*"]
    assert found.state == state


def test_unavailable_is_not_waived() -> None:
    assert judged(["unavailable", "failed", "passed"])[CASES[0].id].state == "unavailable"
