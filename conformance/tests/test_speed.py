"""Figures, baselines and history: slower counts beyond the noise alone, is measured again, and is not forgotten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oarlock.errors import ConfigError
from oarlock.runtime import open_device
from oarlock_conformance import certify as module
from oarlock_conformance.baseline import Baseline, Before, baseline_of, became_worse, judge
from oarlock_conformance.case import Case, Failure, Options, Outcome
from oarlock_conformance.cases.models import flops_of
from oarlock_conformance.cases.performance import plan as performance_plan
from oarlock_conformance.cases.performance import run as run_performance
from oarlock_conformance.cases.performance.measure import rate_of, samples_of
from oarlock_conformance.certify import Certification, Request, certify
from oarlock_conformance.environment import about_host
from oarlock_conformance.figures import Figure, figure_of, pace, shown, worse
from oarlock_conformance.report import write_report
from oarlock_conformance.report.history import add_history, past, read_history
from oarlock_conformance.report.plot import Point, Roof, roofline, sparkline
from oarlock_conformance.runner import Plan


def ms(median: float, spread: float = 0.1) -> Figure:
    return Figure(median, spread, 9, "ms", "lower")


def test_figure_is_median_and_quartiles() -> None:
    found = figure_of([5, 1, 2, 3, 4], "ms", "lower")
    assert (found.median, found.spread, found.runs) == (3, 2, 5)
    assert figure_of([7], "ms", "lower").spread == 0


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (ms(10), ms(11.4), False),  # within 15 %
        (ms(10), ms(11.6), True),
        (ms(10, 1), ms(12.9, 0.1), False),  # within three spreads of the older
        (ms(10, 0.1), ms(12.9, 1), False),  # and of the newer
        (ms(10, 1), ms(13.1, 0.1), True),
        (ms(10), ms(5), False),
        (Figure(10, 0.1, 9, "GB/s", "higher"), Figure(8.4, 0.1, 9, "GB/s", "higher"), True),
        (Figure(10, 0.1, 9, "GB/s", "higher"), Figure(20, 0.1, 9, "GB/s", "higher"), False),
    ],
)
def test_worse_is_beyond_the_noise(old: Figure, new: Figure, expected: bool) -> None:
    assert worse(old, new) is expected


def test_numbers_are_shown_with_three_figures() -> None:
    assert [shown(x) for x in (0, 0.01234, 1.234, 123.4, 12345.6)] == ["0", "0.0123", "1.23", "123", "12,346"]


def outcome(figure: Figure) -> Outcome:
    return Outcome("model.ocr", "passed", 1.0, details={"figures": {"latency": figure.to_json()}})


def test_slower_fails_with_both_numbers() -> None:
    found = judge(outcome(ms(31.8)), Baseline("b", "2026-01-01", "", {"model.ocr": {"latency": Before(ms(24.1))}}))
    assert (found.state, found.kind) == ("failed", "slower")
    assert "24.1 ms -> 31.8 ms (+32 %, 77.0 x the spread of 9 runs)" in found.reason
    assert found.details["figures"]["latency"]["worse"] is True


def test_as_fast_passes_beside_the_baseline() -> None:
    found = judge(outcome(ms(24.2)), Baseline("b", "2026-01-01", "", {"model.ocr": {"latency": Before(ms(24.1))}}))
    assert found.state == "passed"
    assert found.details["figures"]["latency"]["baseline"] == {"median": 24.1, "spread": 0.1, "pace": 0.0}


@pytest.mark.parametrize(("before", "now", "expected"), [(0.01, 0.01, True), (0.01, 0.02, False), (0.02, 0.01, True)])
def test_slow_host_is_no_slow_device(before: float, now: float, expected: bool) -> None:
    assert became_worse(Before(ms(10), before), ms(20), now) is expected


def test_memory_does_not_depend_on_the_pace() -> None:
    old, new = (Figure(size, 0.0, 1, "MiB", "lower") for size in (10.0, 20.0))
    assert became_worse(Before(old, 0.01), new, 0.02)
    assert 0 < pace() < 10


DEVICE: dict[str, Any] = {
    "id": "acme:0", "name": "Acme", "vendor": "v", "driver": "1", "memory": 1 << 30, "device_hash": "de",
    "driver_hash": "d0", "notes": [], "capabilities": [], "failure_scope": "stream", "is_accelerator": True,
    "fingerprint": "f", "target": {
        "language": "c99", "arch": "a", "flags": [], "compute": ["float32"], "storage": [], "flush_to_zero": [],
        "index_dtype": "int32", "abilities": [], "limits": {},
    },
    "adapter": {"name": "acme", "version": "1", "contract": [1, 0], "distribution": "d", "module": "m", "hash": "0"},
}  # fmt: skip
CASE = Case("model.ocr", "models", "ocr", "it is right, and not slower")


def measured(monkeypatch: pytest.MonkeyPatch, folder: Path, *medians: float) -> Certification:
    """A certification in which the model takes ``medians``, one after the other, however often it is run."""
    left = list(medians)

    def groups(device: str, groups: list[Any], options: Options, jobs: int, tell: Any) -> None:
        for group in groups:
            tell(outcome(ms(left.pop(0))))
            tell(Outcome(group.process.id, "passed"))

    monkeypatch.setattr(module, "run_groups", groups)
    monkeypatch.setattr(module, "_now", lambda: f"2026-01-0{len(read_history(folder)) + 1}T00:00:00+00:00")
    found = certify(Request("acme", ("models",), report=folder), plan=Plan(DEVICE, (CASE,)))
    assert not left, "it was measured as often as expected"
    write_report(found, folder)
    return found


def test_slower_is_measured_again_and_not_forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert measured(monkeypatch, tmp_path, 10).state == "conformant in part"
    assert measured(monkeypatch, tmp_path, 20, 10.5).conformant, "the second try was as fast as before"
    slow = measured(monkeypatch, tmp_path, 20, 20, 20)
    assert slow.outcomes[CASE.id].kind == "slower"
    assert not measured(monkeypatch, tmp_path, 20, 20, 20).conformant, "a slow certificate does not become the baseline"
    assert measured(monkeypatch, tmp_path, 10).conformant


def test_history_is_kept_and_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for median in (10.0, 11.0, 10.5):
        document = measured(monkeypatch, tmp_path, median).to_json()
    history = read_history(tmp_path)
    assert [value for _, value, _ in past(history, document, CASE.id, "latency")] == [10.0, 11.0, 10.5]
    add_history(tmp_path, document)
    assert len(read_history(tmp_path)) == 3, "the same certificate again is no new line"
    page = (tmp_path / "acme-0.html").read_text("utf-8")
    assert 'class="spark"' in page and "10.5" in page


def test_broken_history_is_refused(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text("{\n")
    with pytest.raises(ConfigError, match="it is no history"):
        read_history(tmp_path)


def test_other_machine_is_no_baseline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    document = measured(monkeypatch, tmp_path, 10).to_json()
    host = about_host()
    assert baseline_of(document, "b", DEVICE, host).figures
    assert "processor was" in baseline_of(document, "b", DEVICE, {**host, "processor": "another"}).unused
    assert "name was Acme" in baseline_of(document, "b", {**DEVICE, "name": "Acme 2"}, host).unused


def test_baseline_that_is_asked_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the certificate"):
        certify(Request("acme", ("models",), baseline=tmp_path / "none.json"), plan=Plan(DEVICE, (CASE,)))


def test_samples_are_bounded() -> None:
    calls = []
    found = samples_of(lambda: calls.append(1), lambda: None, 5, 10.0)
    assert len(found) == 5 and len(calls) > 5
    assert len(samples_of(lambda: None, lambda: None, 100, 0.0)) == 3


def test_rate_that_cannot_be_is_refused() -> None:
    assert rate_of(2e9, [1.0, 2.0, 4.0], "GB/s").median == 1.0
    with pytest.raises(Failure, match="cannot be"):
        rate_of(2e9, [1.0, 0.0], "GB/s")


def test_pictures_are_well_formed() -> None:
    points = [Point("add", 0.08, 0.5), Point("matmul", 100, 12.0), Point("matmul-2", 110, 12.0)]
    picture = roofline(points, Roof("memory", 9.0), [Roof("float32", 12.0), Roof("float16", 3.0, True)])
    assert picture.count("<circle") == 3 and "NaN" not in picture
    assert sparkline([1.0], ["a"]) == ""


class Told:
    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome] = {}

    def start(self, *cases: str) -> None: ...

    def beat(self) -> None: ...

    def end(self, outcome: Outcome) -> None:
        self.outcomes[outcome.case] = outcome


def test_limits_are_measured() -> None:
    names = ["limit.copy_in", "limit.copy", "limit.memory", "limit.launch", "kernel.sum"]
    told = Told()
    run_performance("sim", names, Options(quick=True), False, told)
    assert {name: told.outcomes[name].state for name in names} == dict.fromkeys(names, "passed")
    assert told.outcomes["limit.copy"].details["figures"]["rate"]["median"] > 0
    planned = {case.id for case in performance_plan(open_device("sim"), Options(quick=True))}
    assert {*names, "limit.matrix-float32", "kernel.convolution"} <= planned


def test_operations_of_a_program_are_counted() -> None:
    from oarlock import dtypes
    from oarlock.ir import TensorType
    from oarlock_conformance.cases.operators.build import build_function

    types = [TensorType(dtypes.float32, shape) for shape in ((2, 3, 4), (2, 4, 5), (1, 4, 8, 8), (6, 2, 3, 3))]
    convolution: dict[str, Any] = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 2}
    product: dict[str, Any] = {"batch": ((0,), (0,)), "contract": ((2,), (1,)), "dtype": dtypes.float32}
    function = build_function(
        types, lambda b, x, y, image, w: [b("dot_general", x, y, **product), b("convolution", image, w, **convolution)]
    )
    assert flops_of(function) == 2 * 2 * 3 * 5 * 4 + 2 * (6 * 6 * 6) * (2 * 3 * 3)
    assert json.dumps(flops_of(function))
