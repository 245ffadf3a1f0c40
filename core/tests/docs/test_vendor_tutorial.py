"""The vendors' tutorial is true: each step's package is installed, and its commands print what the page shows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
STEPS = [1, 2, 3, 4, pytest.param(5, marks=pytest.mark.proof), 6]
LINES = 225
"""Code lines that the adapter may have."""


@pytest.mark.parametrize("step", STEPS)
def test_commands_of_step_print_what_is_shown(tutorial, vendor, step):
    for part in tutorial[: step + 1]:
        vendor.install(part)
    assert vendor.text.startswith(f"{step}. ")
    vendor.run_script()
    vendor.run_shown()


def test_adapter_is_small(tutorial, monkeypatch, vendor):
    monkeypatch.syspath_prepend(str(ROOT / "ci"))
    from count_lines import code_lines

    for part in tutorial:
        vendor.install(part)
    files = {name: text for name, text in vendor.files.items() if name.endswith(".py") and "driver" not in name}
    assert 100 < sum(code_lines(text) for text in files.values()) < LINES
    sys.modules.pop("count_lines", None)


def test_table_names_the_files_of_each_step(tutorial):
    from_page = (ROOT / "docs/vendors/tutorial.md").read_text(encoding="utf-8")
    rows = [line for line in from_page.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert [int(row[2]) for row in rows] == [1, 2, 3, 4, 6]
    for row, part in zip(rows, [part for part in tutorial[1:] if "# file:" in part], strict=True):
        told = {name.strip().strip("`") for name in row.split("|")[2].split(",")}
        assert told == {line.split()[-1].rpartition("/")[2] for line in part.splitlines() if line.startswith("# file:")}
