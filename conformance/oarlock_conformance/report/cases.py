"""The list of all cases, folded by group, with a search that needs no script from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from importlib.resources import files
from typing import Any

from oarlock_conformance.case import STATES
from oarlock_conformance.certificate import Document
from oarlock_conformance.report.markup import Markup, element, join, table, tag

__all__ = ["cases_section", "script", "script_hash"]


def script() -> Markup:
    """The search, as an element."""
    return element("script", Markup(_source()))


def script_hash() -> str:
    """What a content security policy calls it: no other script may run on the page."""
    return f"sha256-{base64.b64encode(hashlib.sha256(_source().encode()).digest()).decode()}"


def _source() -> str:
    return files("oarlock_conformance.report").joinpath("page.js").read_text("utf-8")


def cases_section(document: Document) -> Markup:
    """A search, then the groups."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for case in document["cases"]:
        groups.setdefault((case["level"], case["group"]), []).append(case)
    counts = Counter(case["state"] for case in document["cases"])
    options = [element("option", "any state", value=" ")]
    options += [element("option", f"{state} ({counts[state]:,})", value=state) for state in STATES if counts[state]]
    levels = [element("option", "any level", value=" ")]
    levels += [element("option", level, value=level) for level in dict.fromkeys(level for level, _ in groups)]
    search = element(
        "form",
        element("input", id="find", type="search", placeholder="find: add float16, memory.copy, timed out ...",
                aria_label="words that a case must have"),
        element("select", *options, id="state", aria_label="state"),
        element("select", *levels, id="level", aria_label="level"),
        element("span", f"{len(document['cases']):,} cases", id="found", class_="soft small"),
        class_="search",
    )  # fmt: skip
    return join([search, element("div", *(_group(*key, cases) for key, cases in groups.items()), id="groups")])


def _group(level: str, name: str, cases: list[dict[str, Any]]) -> Markup:
    counts = Counter(case["state"] for case in cases)
    tags = join(join([" ", tag(state, f"{counts[state]:,} {state}")]) for state in STATES if counts[state])
    seconds = sum(case["seconds"] for case in cases if not case["id"].startswith("process/"))
    summary = element("summary", f"{level}, {name} ", tags, element("span", f"  {seconds:.1f} s", class_="soft small"))
    rows = [(case["id"], tag(case["state"]), f"{case['seconds']:.2f}", _what(case)) for case in cases]
    body = table(("case", "", "s", "contract"), rows, numbers=(2,), full=True)
    return element("details", summary, body, class_="group", data_level=level)


def _what(case: dict[str, Any]) -> Markup:
    """The sentence that is checked, and why it did not pass."""
    if case["state"] == "passed" or not case["reason"]:
        return join([case["contract"]])
    return join([case["contract"], element("div", case["reason"], class_="soft reason")])
