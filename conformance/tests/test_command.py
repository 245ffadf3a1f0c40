"""The command: exit statuses, files, progress, and what it says of a device that is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oarlock.cli import main


def run(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(["certify", *words])
    output, errors = capsys.readouterr()
    return status, output, errors


def test_conformant_part_ends_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("sim", "--quick", "--level", "runtime", "--only", "launch.grid/*", "--report", str(tmp_path))
    status, output, errors = run(*words, capsys=capsys)
    assert status == 0
    assert "conformant" in output
    assert "5/5" in errors or "6/6" in errors
    assert {path.name for path in tmp_path.iterdir()} == {"sim-0.json", "sim-0.xml", "sim-0.html"}
    document = json.loads((tmp_path / "sim-0.json").read_text("utf-8"))
    assert document["verdict"] == {"conformant": True, "reasons": []}
    assert document["device"]["adapter"]["hash"]
    assert {case["state"] for case in document["cases"]} == {"passed"}


@pytest.mark.parametrize("name", ["simm", "sim:7", "sim:x"])
def test_mistyped_device_ends_with_2(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, output, errors = run(name, "--quick", "--level", "runtime", capsys=capsys)
    assert status == 2
    assert not output
    assert f'no device "{name}' in errors


def test_pattern_without_a_case_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("sim", "--quick", "--level", "runtime", "--only", "no.such/*", "--report", str(tmp_path))
    status, _, errors = run(*words, capsys=capsys)
    assert status == 2
    assert "no case" in errors
    assert not list(tmp_path.iterdir())
