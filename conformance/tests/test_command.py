"""The commands: exit statuses, files, resuming, and what they say of a device that is not there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock import registry
from oarlock.cli import main
from oarlock_conformance.certificate import sealed


def run(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(list(words))
    output, errors = capsys.readouterr()
    return status, output, errors


def certify(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    return run("certify", *words, "--quick", "--level", "runtime", capsys=capsys)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the certificate of a small part of the suite."""
    folder = tmp_path_factory.mktemp("report")
    words = ["certify", "sim", "--quick", "--level", "runtime", "--only", "launch.grid/*", "--shuffle", "7"]
    assert main([*words, "--report", str(folder)]) == 0
    return folder


def document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "sim-0.json").read_text("utf-8"))
    return found


def test_conformant_part_leaves_its_files(report: Path) -> None:
    assert {path.name for path in report.iterdir()} == {f"sim-0.{s}" for s in ("json", "xml", "html", "journal.jsonl")}
    found = document(report)
    assert found["verdict"] == {"state": "conformant in part", "conformant": True, "reasons": []}
    assert found["device"]["adapter"]["hash"] and found["device"]["adapter"]["files"]
    assert {case["state"] for case in found["cases"]} == {"passed"}


def test_finished_run_is_resumed_without_running(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {case["id"]: case["seconds"] for case in document(report)["cases"]}
    status, output, _ = certify("sim", "--only", "launch.grid/*", "--report", str(report), "--resume", capsys=capsys)
    assert status == 0
    assert f"resumed: {len(before)} outcomes" in output
    assert {case["id"]: case["seconds"] for case in document(report)["cases"]} == before


@pytest.mark.parametrize("name", ["simm", "sim:7", "sim:x"])
def test_mistyped_device_ends_with_2_before_anything_runs(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, output, errors = certify("sim", name, "--report", str(tmp_path / "new"), capsys=capsys)
    assert status == 2
    assert not output
    assert f'no device "{name}' in errors
    assert not (tmp_path / "new").exists()


def test_pattern_without_a_case_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, errors = certify("sim", "--only", "no.such/*", "--report", str(tmp_path), capsys=capsys)
    assert status == 2
    assert "no case" in errors
    assert not list(tmp_path.iterdir())


ADAPTER = """
from oarlock.errors import DeviceError
from oarlock.hal import Adapter
from oarlock.plugin import hookimpl

class Absent(Adapter):
    def devices(self): {body}
    def open(self, index): raise DeviceError("never")
    def compile(self, target, source, entries): return b""

@hookimpl
def oarlock_adapter(): return Absent()
"""


@pytest.fixture
def acme(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """An installed adapter whose ``devices`` does what the test says."""
    site = tmp_path / "site"
    (site / "acme-1.0.dist-info").mkdir(parents=True)
    (site / "acme_oar.py").write_text(ADAPTER.format(body=request.param), "utf-8")
    (site / "acme-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (site / "acme-1.0.dist-info" / "entry_points.txt").write_text("[oarlock.adapters]\nacme = acme_oar\n")
    sys.path.insert(0, str(site))
    registry.forget()
    yield "acme"
    sys.path.remove(str(site))
    registry.forget()


@pytest.mark.parametrize(
    ("acme", "status", "state"),
    [
        ('raise DeviceError("libacme.so.4: cannot open shared object file")', 3, "unavailable"),
        ("return []", 3, "unavailable"),
        ("return 1 / 0", 1, "not conformant"),
    ],
    indirect=["acme"],
)
def test_absent_device_is_unavailable_and_a_broken_one_fails(
    acme: str, status: int, state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, output, _ = certify(acme, "--report", str(tmp_path / "out"), "--json", capsys=capsys)
    assert found == status
    told = json.loads(output)
    assert (told["verdict"]["state"], told["verdict"]["conformant"]) == (state, False)
    assert [case["id"] for case in told["cases"]] == ["device/opens"]
    assert (tmp_path / "out" / "acme-0.html").is_file()


PACKAGE = """
from oarlock.plugin import hookimpl

@hookimpl
def oarlock_adapter():
    from oarlock_sim import oarlock_adapter
    return oarlock_adapter()
"""


def test_waivers_lie_in_the_package_of_the_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "oarlock_acme"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE, "utf-8")
    entry = 'case = "{}"\nkind = "waiver"\nreason = "why"\nowner = "who"\nexpires = 9999-12-31\n'
    text = "".join(f"[[waiver]]\n{entry.format(case)}" for case in ("launch.grid/*", "memory.*"))
    (package / "waivers.toml").write_text(text, "utf-8")
    info = tmp_path / "oarlock_acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: oarlock-acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[oarlock.adapters]\nacme = oarlock_acme\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.forget()
    words = ("acme", "--only", "launch.grid/*", "--report", str(tmp_path / "out"), "--json")
    status, output, _ = certify(*words, capsys=capsys)
    registry.forget()
    found = json.loads(output)
    assert status == 1, "the cases that the first entry covers pass: it must go"
    assert [(entry["case"], entry["state"]) for entry in found["waivers"]] == [
        ("launch.grid/*", "failed"), ("memory.*", "unsupported"),
    ]  # fmt: skip
    assert "unexpected pass" in found["waivers"][0]["problem"]
    assert found["device"]["adapter"]["module"] == "oarlock_acme"


def changed(report: Path, folder: Path, **changes: Any) -> Path:
    """A copy of the certificate in which its first case has other values; its seal is right."""
    found = document(report)
    found["cases"][0].update(changes)
    folder.mkdir(exist_ok=True)
    path = folder / "sim-0.json"
    path.write_text(json.dumps(sealed(found)), "utf-8")
    return path


def test_certificate_is_verified(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, output, _ = run("verify", str(report / "sim-0.json"), "--sample", "2", "--json", capsys=capsys)
    found = json.loads(output)
    assert (status, found["good"]) == (0, True), output
    assert {item["what"] for item in found["findings"]} >= {
        "certificate",
        "adapter",
        "suite",
        "core",
        "driver",
        "device",
    }
    assert len(found["cases"]) == 2


def test_forged_outcome_is_found(report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forged = changed(report, tmp_path, state="failed", reason="never happened")
    status, output, _ = run("verify", str(forged), "--sample", "9", capsys=capsys)
    assert status == 1
    assert "the certificate says failed, now passed" in output
    assert "NOT as the certificate says" in output


def test_changed_document_and_files_are_found(report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(report)
    found["device"]["adapter"]["files"]["__init__.py"] = "0" * 16
    found["device"]["adapter"]["hash"] = "0" * 64
    path = tmp_path / "sim-0.json"
    path.write_text(json.dumps(found), "utf-8")
    status, output, _ = run("verify", str(path), "--sample", "0", capsys=capsys)
    assert status == 1
    assert "the document was changed" in output
    assert "1 files of oarlock_sim differ: __init__.py" in output


def test_comparison_tells_what_became_worse(report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worse = changed(report, tmp_path, state="failed", kind="value", reason="off by one")
    status, output, _ = run("compare", str(report / "sim-0.json"), str(worse), capsys=capsys)
    assert status == 1
    assert "newly failing: passed -> failed: off by one   regression" in output
    assert run("compare", str(worse), str(report / "sim-0.json"), capsys=capsys)[0] == 0
    status, output, _ = run("compare", str(report), str(tmp_path), "--json", capsys=capsys)
    assert status == 1
    assert json.loads(output)[0]["regressions"] == 1


def figures(median: float) -> dict[str, Any]:
    return {"figures": {"latency": {"median": median, "spread": 0.5, "runs": 9, "unit": "ms", "better": "lower"}}}


def test_comparison_tells_both_numbers(report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = changed(report, tmp_path / "old", details=figures(24.1))
    new = changed(report, tmp_path / "new", details=figures(31.8))
    status, output, _ = run("compare", str(old), str(new), capsys=capsys)
    assert status == 1
    assert "slower: latency 24.1 ms -> 31.8 ms" in output
    status, output, _ = run("compare", str(new), str(old), capsys=capsys)
    assert (status, "faster: latency 31.8 ms -> 24.1 ms" in output) == (0, True)


def test_comparison_of_two_devices_is_refused(report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = document(report)
    other["device"]["id"] = "cpu:0"
    (tmp_path / "cpu-0.json").write_text(json.dumps(other), "utf-8")
    status, _, errors = run("compare", str(report / "sim-0.json"), str(tmp_path / "cpu-0.json"), capsys=capsys)
    assert (status, "of sim:0 and of cpu:0" in errors) == (2, True)
    status, _, errors = run("compare", str(report), str(tmp_path), capsys=capsys)
    assert (status, "there is no sim-0.json" in errors) == (2, True)


def test_matrix_shows_every_device(report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = report / "matrix.html"
    status, output, _ = run("matrix", str(report), "-o", str(page), "--json", capsys=capsys)
    assert (status, json.loads(output)["devices"][0]["state"]) == (0, "conformant in part")
    text = page.read_text("utf-8")
    assert 'href="sim-0.html"' in text and "conformant in part" in text and "<script" not in text
    page.unlink()
    status, _, errors = run("matrix", str(tmp_path), capsys=capsys)
    assert (status, "no certificates" in errors) == (2, True)


def test_something_else_is_no_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_text('{"schema": "oarlock.certificate/1"}')
    for words in (("verify", "x.json"), ("compare", "x.json", "x.json")):
        status, _, errors = run(words[0], *(str(tmp_path / word) for word in words[1:]), capsys=capsys)
        assert (status, "no certificate of this version" in errors) == (2, True)
