"""The suite finds planted faults: every saboteur fails a case of the surface that it breaks, the healthy one none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oarlock.cli import main
from oarlock_conformance.case import Options
from oarlock_conformance.certify import Certification, Request, certify

HERE = Path(__file__).parent
RUN = HERE / "saboteurs" / "run.py"


def table(*words: str) -> dict[str, object]:
    """What run.py prints as JSON."""
    done = subprocess.run([sys.executable, str(RUN), "--json", *words], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr[-2000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found


def check(found: dict[str, object]) -> None:
    """Every fault was caught."""
    rows = found["rows"]
    assert isinstance(rows, list)
    assert not found["unhealthy"]
    assert [row["name"] for row in rows if not row["caught"]] == []


def test_part_of_the_planted_faults_is_caught(part: str) -> None:
    check(table("--shard", part))


@pytest.mark.proof
def test_every_planted_fault_is_caught(proven: Callable[[str], dict[str, object]]) -> None:
    check(proven("saboteurs"))


def test_there_are_enough_saboteurs() -> None:
    from oarlock_saboteurs import SABOTEURS
    from surfaces import SURFACES

    assert len(SABOTEURS) >= 80
    assert {item.surface for item in SABOTEURS.values()} <= set(SURFACES)


def test_unknown_saboteur_ends_with_2() -> None:
    done = subprocess.run([sys.executable, str(RUN), "--only", "no_such"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no saboteur is called no_such" in done.stderr


@pytest.fixture(scope="module")
def certified(saboteurs: str) -> dict[str, Certification]:
    """Saboteurs that need a process of their own, certified on a few launches."""
    options = Options(quick=True, deadline_s=8.0)

    def run(name: str) -> Certification:
        return certify(
            Request(f"{saboteurs}{name}", levels=("runtime",), only="launch.grid/[relb]*", jobs=1, options=options)
        )

    names = ("crashes", "hangs", "talks", "ends_badly")
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
