"""The vendors' pages are true: their code runs in the tutorial's package, their commands print what they show."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from oarlock.hal import DeviceInfo
from oarlock.target import Limits, Target

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(page for page in (ROOT / "docs" / "vendors").glob("*.md") if page.name != "tutorial.md")
STEPS = 4
"""Up to this step of the tutorial the package goes that the pages add to."""


def name_of(page: Path) -> str:
    return page.name


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_and_commands_of_page(page, tutorial, vendor):
    for part in tutorial[: STEPS + 1]:
        vendor.install(part)
    vendor.install(page.read_text(encoding="utf-8"))
    vendor.run_script()
    vendor.run_shown()


@pytest.mark.parametrize("page", [*PAGES, ROOT / "docs/vendors/tutorial.md"], ids=name_of)
def test_cases_on_page_exist(page):
    from oarlock_conformance.cases import level
    from oarlock_conformance.registry import RUNTIME

    level("runtime")
    areas = {case.partition("/")[0].partition(".")[0] for case in RUNTIME}
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    told = {case for case in re.findall(r"`([a-z]+\.[a-z_]+/[a-z_]+)`", text) if case.partition(".")[0] in areas}
    assert told <= set(RUNTIME), f"no such case: {sorted(told - set(RUNTIME))}"


@pytest.mark.parametrize("kind", [Target, Limits, DeviceInfo])
def test_every_field_is_explained(kind):
    text = (ROOT / "docs/vendors/target.md").read_text(encoding="utf-8")
    part = text.split(f"\n## {kind.__name__}\n")[1].split("\n## ")[0]
    told = {name for row in re.findall(r"^\| (`.*?) \|", part, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert told == {field.name for field in fields(kind)}
