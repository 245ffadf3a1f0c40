"""What vendors and releases run in CI: the gate's steps and verdict, and workflow files whose commands exist."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from oarlock.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted([*(ROOT / "ci" / "vendor").glob("*.yml"), *(ROOT / "templates" / "shared").rglob("tox.ini.jinja")])


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, dict[str, int], list[tuple[str, ...]]]:
    """The gate with commands that only say their exit status, by the first two words; and the calls that it made."""
    spec = importlib.util.spec_from_file_location("release_gate", ROOT / "ci" / "release_gate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(importlib.import_module("sys").modules, "release_gate", module)
    spec.loader.exec_module(module)
    statuses: dict[str, int] = {}
    calls: list[tuple[str, ...]] = []

    def oarlock(*words: str) -> int:
        calls.append(words)
        return statuses.get(" ".join(words[:2]), statuses.get(words[0], 0))

    monkeypatch.setattr(module, "oarlock", oarlock)
    return module, statuses, calls


def test_gate_certifies_compares_and_renders(gate: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, _, calls = gate
    last, report = tmp_path / "last", tmp_path / "certs"
    last.mkdir()
    (last / "cpu-0.json").write_text("{}")
    (last / "history.jsonl").write_text('{"device": "cpu:0"}\n')
    words = ["cpu", "sim:1", "--last", str(last), "--report", str(report), "--", "--quick"]
    assert module.main(words) == 0
    baseline = ("--baseline", str(last / "cpu-0.json"))
    assert calls == [
        ("certify", "cpu", "--report", str(report), *baseline, "--quick"),
        ("certify", "sim:1", "--report", str(report), "--quick"),
        ("compare", str(last), str(report)),
        ("matrix", str(report), "--output", str(report / "matrix.html")),
    ]
    assert (report / "history.jsonl").read_text() == '{"device": "cpu:0"}\n'
    assert "the release may go" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({"certify sim": 1}, "NOT CONFORMANT"),
        ({"certify sim": 3}, "NOT HERE"),
        ({"certify sim": -9}, "exit status -9"),
        ({"compare": 1}, "WORSE"),
        ({"matrix": 2}, "NOT RENDERED"),
    ],
)
def test_gate_goes_on_after_a_failure_and_holds_the_release(
    status: dict[str, int], told: str, gate: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, statuses, calls = gate
    statuses.update(status)
    assert module.main(["sim", "cpu", "--last", str(tmp_path), "--report", str(tmp_path / "certs")]) == 1
    assert [words[0] for words in calls] == ["certify", "certify", "compare", "matrix"]
    output = capsys.readouterr().out
    assert told in output
    assert "held back by 1 of 4" in output


def test_first_release_compares_with_nothing(gate: Any, tmp_path: Path) -> None:
    module, _, calls = gate
    assert module.main(["sim", "--report", str(tmp_path)]) == 0
    assert [words[0] for words in calls] == ["certify", "matrix"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_commands_in_workflow_files_exist(path: Path) -> None:
    found = 0
    for line in path.read_text("utf-8").splitlines():
        match = re.match(r"\s*(?:- |run: |test .*\|\| )*oarlock (certify|compare|doctor|matrix)\b(.*)", line)
        if match is None:
            continue
        found += 1
        name, rest = match.groups()
        rest = re.sub(r"\$\{LAST:\+(.*?)\}", r"\1", rest)
        rest = re.sub(r"\$OPTIONS|\{posargs\}", "--quick" if name == "certify" else "", rest)
        rest = re.sub(r"\$\([^)]*\)|\$\{[^}]*\}|\{[^}]*\}|\$\w+", "x", rest)
        command = next(command for command in COMMANDS if command.name == name)
        parser = argparse.ArgumentParser(exit_on_error=False)
        importlib.import_module(command.module).add_arguments(parser)
        parser.parse_args(shlex.split(rest))
    assert found


def test_workflow_files_are_yaml_that_hangs_together() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with the extra `new`")
    github = yaml.safe_load((ROOT / "ci" / "vendor" / "github-certify.yml").read_text("utf-8"))
    inputs = set(github[True]["workflow_call"]["inputs"])  # YAML 1.1 reads `on` as true
    text = (ROOT / "ci" / "vendor" / "github-certify.yml").read_text("utf-8")
    assert set(re.findall(r"inputs\.(\w+)", text)) == inputs
    assert [step for step in github["jobs"]["certify"]["steps"] if "upload-artifact" in step.get("uses", "")]
    gitlab = yaml.safe_load((ROOT / "ci" / "vendor" / "gitlab-certify.yml").read_text("utf-8"))[".oarlock-certify"]
    assert {"DEVICE", "PACKAGE", "OPTIONS", "LAST"} <= set(gitlab["variables"])
    assert gitlab["artifacts"]["when"] == "always"
