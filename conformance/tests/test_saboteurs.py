"""The suite finds planted faults: every saboteur fails a case of the surface that it breaks, the healthy one none."""

from __future__ import annotations

import fnmatch
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oarlock.cli import main
from oarlock.errors import OarlockError
from oarlock.runtime import open_device
from oarlock_conformance.case import Level, Options, Outcome
from oarlock_conformance.cases import level
from oarlock_conformance.certify import Certification, Request, certify

sys.path.insert(0, str(Path(__file__).parent / "saboteurs"))
from oarlock_saboteurs import SABOTEURS

sys.path.pop(0)

SURFACES: dict[str, tuple[Level, tuple[str, ...]]] = {
    "copies": ("runtime", ("memory.cop*", "memory.arrays/*")),
    "memory": ("runtime", ("memory.allocate/*", "memory.free/*")),
    "fill": ("runtime", ("memory.fill/*",)),
    "info": ("runtime", ("memory.info/*",)),
    "launch": ("runtime", ("launch.*",)),
    "program": ("runtime", ("program.*",)),
    "plan": ("runtime", ("plan.*",)),
    "stream": ("runtime", ("stream.*", "launch.order/*", "memory.copy_out/after_kernel")),
    "event": ("runtime", ("event.wait/*", "event.query/*", "event.record/*", "event.destroy/*")),
    "time": ("runtime", ("event.elapsed/*",)),
    "numerics": ("operators", ("reduce_*/float32/*", "add/float32/*", "tanh/float32/*", "multiply/float32/*")),
}
OPTIONS = Options(quick=True, deadline_s=40.0)
VALUES = sorted(name for name, item in SABOTEURS.items() if item.surface in SURFACES)


class Found(Exception):
    """A case did not pass."""


class FirstCatch:
    """Ends a run at the first case that does not pass."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def start(self, *cases: str) -> None: ...

    def beat(self) -> None: ...

    def end(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if outcome.state != "passed":
            raise Found


def cases_of(device: str, surface: str) -> tuple[Level, list[str]]:
    """The cases of a surface that apply to a device."""
    name, patterns = SURFACES[surface]
    planned = level(name).plan(open_device(device), OPTIONS)
    ids = [case.id for case in planned if not case.unsupported]
    return name, [case for case in ids if any(fnmatch.fnmatchcase(case, pattern) for pattern in patterns)]


def first_catch(device: str, surface: str) -> list[Outcome]:
    """Outcomes of the cases of a surface, up to the first that does not pass."""
    name, ids = cases_of(device, surface)
    report = FirstCatch()
    try:
        level(name).run(device, ids, OPTIONS, False, report)
    except Found:
        pass
    except OarlockError as error:  # the device is so broken that the bench cannot be set up
        report.outcomes.append(Outcome(ids[0], "failed", kind="exception", reason=str(error)))
    return report.outcomes


@pytest.mark.parametrize("name", VALUES)
def test_planted_fault_is_caught(name: str, saboteurs: str, uncached: None) -> None:
    outcomes = first_catch(f"{saboteurs}{name}:0", SABOTEURS[name].surface)
    last = outcomes[-1]
    assert last.state in ("failed", "error"), f"{len(outcomes)} cases passed: {SABOTEURS[name].fault}"
    assert last.kind in ("value", "exception", "leak")
    assert last.reason


def test_there_are_enough_saboteurs() -> None:
    assert len(SABOTEURS) >= 30
    assert {item.surface for item in SABOTEURS.values()} == {*SURFACES, "process"}


@pytest.fixture(scope="module")
def certified(saboteurs: str) -> dict[str, Certification]:
    """Saboteurs that need a process of their own, certified on a few launches."""
    options = Options(quick=True, deadline_s=8.0)
    names = [name for name, item in SABOTEURS.items() if item.surface == "process"]

    def run(name: str) -> Certification:
        return certify(Request(f"{saboteurs}{name}", ("runtime",), "launch.grid/[relb]*", 1, options))

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(run, names), strict=True))


def states(certification: Certification, kinds: Sequence[str] = ("failed", "error")) -> dict[str, tuple[str, str]]:
    return {
        case.id: (o.state, o.kind)
        for case in certification.cases
        if (o := certification.outcomes[case.id]).state in kinds
    }


@pytest.mark.parametrize(("name", "kind", "word"), [("crashes", "crash", "SIGSEGV"), ("hangs", "time-out", "8 s")])
def test_crash_and_hang_belong_to_their_case(
    name: str, kind: str, word: str, certified: dict[str, Certification]
) -> None:
    found = certified[name]
    assert states(found) == {"launch.grid/row": ("error", kind)}
    assert word in found.outcomes["launch.grid/row"].reason
    passed = states(found, ("passed",))
    assert {"launch.grid/box", "launch.grid/empty", "launch.grid/limit"} <= set(passed)  # what came after still ran
    assert not found.conformant


@pytest.mark.parametrize(
    ("name", "kind", "word"), [("talks", "output", "3 buffers in use"), ("ends_badly", "exit", "status 3")]
)
def test_noise_and_bad_end_belong_to_their_group(
    name: str, kind: str, word: str, certified: dict[str, Certification]
) -> None:
    found = certified[name]
    assert states(found) == {"process/runtime.launch": ("error", kind)}
    assert word in found.outcomes["process/runtime.launch"].reason
    assert not found.conformant


def test_failing_device_ends_with_1(saboteurs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    only = "memory.copy_out/offset"
    words = (f"{saboteurs}copy_out_ignores_offset", "--quick", "--level", "runtime", "--only", only, "--json")
    assert main(["certify", *words, "--report", str(tmp_path)]) == 1
    document = json.loads(capsys.readouterr().out)
    case = next(case for case in document["cases"] if case["state"] == "failed")
    assert case["id"] == only
    assert "copy_out(src_offset=1, 1 bytes)" in case["reason"]
    assert case["contract"] == "copy_out reads len(dst) bytes of src from src_offset, in bytes"
