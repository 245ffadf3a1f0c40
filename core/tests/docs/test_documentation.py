"""The documentation is true: its Python runs, its commands and links lead somewhere, made pages are up to date."""

from __future__ import annotations

import argparse
import importlib
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from oarlock.cli import COMMANDS
from oarlock.config import Config
from oarlock.hal import Adapter, Driver
from oarlock.runtime.abilities import _METHODS

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
RUNNABLE = [page for page in PAGES if page.name == "README.md" or page.parent.name == "guide"]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[tuple[int, str]]:
    """(line number, text) of the fenced blocks in one of ``languages``."""
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, match.start(2)), match[2]) for match in _BLOCK.finditer(text) if match[1] in languages]


def commands(page: Path) -> list[list[str]]:
    """The words of every ``oarlock`` command on the page: in blocks without Python, and in the text."""
    text = page.read_text(encoding="utf-8")
    lines = [line for _, block in blocks(page, "console", "") for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", _BLOCK.sub("", text))
    parts = [part.split("#")[0].strip().removeprefix("$ ") for line in lines for part in line.split("&&")]
    return [part.split() for part in parts if part.startswith("oarlock ")]


def options_of(command: str) -> set[str]:
    """The options of a command."""
    module = next(item.module for item in COMMANDS if item.name == command)
    parser = argparse.ArgumentParser()
    importlib.import_module(module).add_arguments(parser)
    return {option for action in parser._actions for option in action.option_strings}


@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_python_on_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {"__name__": "documentation"}
    for line, block in blocks(page, "python"):
        exec(compile("\n" * line + block, name_of(page), "exec"), space)


def test_guide_has_python():
    assert sum(len(blocks(page, "python")) for page in RUNNABLE) > 10


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name_of)
def test_commands_on_page_exist(page):
    known = {command.name for command in COMMANDS}
    for words in commands(page):
        if words[1].startswith("-"):
            continue
        assert words[1] in known, f"{name_of(page)}: no command {' '.join(words)}"
        options = options_of(words[1])
        for word in words[2:]:
            option = word.split("=")[0].strip("[].,")
            if option.startswith("--"):
                assert option in options, f"{name_of(page)}: {words[1]} has no {option}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    text = re.sub(r"`[^`\n]*`", "", _BLOCK.sub("", page.read_text(encoding="utf-8")))
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), f"{name_of(page)}: {target}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
            assert anchor in anchors, f"{name_of(page)}: {target}"


@pytest.mark.parametrize("script", ["make_walk.py", "make_contract.py"])
def test_made_page_is_up_to_date(script):
    done = subprocess.run(
        [sys.executable, ROOT / "ci" / script, "--check"], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def test_index_lists_every_page():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = {(ROOT / "docs" / target.split("#")[0]).resolve() for target in re.findall(r"\]\(([^)#]+)\)", index)}
    there = {page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "docs" or page.name != "index.md"}
    assert there == listed


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "decisions").glob("*.md")), ids=name_of)
def test_decision_has_its_parts(page):
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {int(page.name[:4])}. ")
    assert all(f"**{part}.**" in text for part in ("Context", "Decision", "Consequence"))


def test_options_of_models_page_exist():
    told = set(re.findall(r"--[a-z]+", (ROOT / "docs/guide/models.md").read_text(encoding="utf-8")))
    assert told <= options_of("run") | options_of("inspect") | options_of("tune")


def test_settings_are_those_there_are():
    told = set(re.findall(r"`OARLOCK_([A-Z_]+)` \|", (ROOT / "docs/guide/install.md").read_text(encoding="utf-8")))
    assert told == {field.name.upper() for field in fields(Config)}


def test_vendors_page_names_the_contract():
    text = (ROOT / "docs/vendors/index.md").read_text(encoding="utf-8")
    twelve = Adapter.__abstractmethods__ | Driver.__abstractmethods__
    table = text.split("## The twelve methods")[1].split("\n\n")[1]
    assert len(twelve) == 12
    assert twelve == set(re.findall(r"`([a-z_]+)`", table))
    optional = text.split("## Optional interfaces")[1].split("\n## ")[0]
    assert all(f"`{capability}`" in optional for capability in _METHODS)
