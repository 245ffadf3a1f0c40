"""The tables of the operators level: what was covered, and how exact it is."""

from __future__ import annotations

from collections import Counter
from typing import Any

from oarlock import dtypes
from oarlock.ops import RECORDS
from oarlock_conformance.report.markup import Markup, element, join

__all__ = ["coverage", "coverage_table", "numerics", "numerics_table"]

Document = dict[str, Any]
_PLAIN = 1000
"""A limit of more ulp than this belongs to a result near zero of larger terms: its share is told instead."""
_FLOATS = [dtype.name for dtype in dtypes.ALL if dtype.is_float]
_SHORT = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64"}


def coverage(document: Document) -> dict[tuple[str, str], Counter[str]]:
    """States of the cases of each (record, dtype)."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for case in document["cases"]:
        parts = case["id"].split("/")
        if case["level"] == "operators" and len(parts) == 3 and parts[0] in RECORDS:
            kind = "refused" if parts[2] == "refused" and case["state"] == "passed" else case["state"]
            found.setdefault((parts[0], parts[1]), Counter())[kind] += 1
    return found


def coverage_table(document: Document) -> Markup:
    """Operators by dtypes: how many cases passed, or how many did not."""
    found = coverage(document)
    if not found:
        return Markup("")
    names = [dtype.name for dtype in dtypes.ALL]
    head = element("thead", element("tr", element("th", ""), *(element("th", _short(name)) for name in names)))
    rows: list[Markup] = []
    family = ""
    covered = [record for record in RECORDS.values() if any((record.name, name) in found for name in names)]
    families = list(dict.fromkeys(record.family for record in covered))
    for record in sorted(covered, key=lambda record: families.index(record.family)):
        if record.family != family:
            family = record.family
            rows.append(element("tr", element("th", family, class_="family", colspan=len(names) + 1)))
        claims = {dtype.name for dtype in record.dtypes}
        cells = [_cell(found.get((record.name, name)), name in claims) for name in names]
        rows.append(element("tr", element("th", record.name, class_="row", title=record.summary), *cells))
    legend = element(
        "p",
        "A figure is the number of cases that passed; in red, how many of how many did not. A dash: the device does "
        "not store the type, and refuses it. A dot: left out by the quick setting. Empty: not taken.",
        class_="soft small",
    )
    return join([legend, element("div", element("table", head, *rows, class_="grid"), class_="wide")])


def _cell(states: Counter[str] | None, claimed: bool) -> Markup:
    if states is None:
        return element("td", "·" if claimed else "", class_="none")
    bad = states["failed"] + states["error"]
    if bad:
        return element("td", f"{bad}/{bad + states['passed']}", class_="failed", title="cases that did not pass")
    if states["passed"]:
        return element("td", states["passed"], class_="passed")
    words = "not stored by the device, and refused" if states["refused"] else "not stored by the device"
    return element("td", "–", class_="unsupported", title=words)


def numerics(document: Document) -> dict[str, dict[str, dict[str, float]]]:
    """The case with the largest error per operator and float dtype: ulp, what is allowed there, the largest share."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for case in document["cases"]:
        figures = case["details"].get("ulp")
        name, *rest = case["id"].split("/", 2)
        if figures is None or len(rest) < 2 or rest[0] not in _FLOATS:
            continue
        dtype = rest[0]
        before = found.setdefault(name, {}).get(dtype)
        if before is None or figures["used"] > before["used"]:
            found[name][dtype] = figures
    return found


def numerics_table(document: Document) -> Markup:
    """Largest errors in ulp."""
    found = numerics(document)
    if not found:
        return Markup("")
    names = [name for name in _FLOATS if any(name in row for row in found.values())]
    head = element("tr", element("th", "operator"), *(element("th", name, class_="number") for name in names))
    rows = [
        element("tr", element("td", record), *(_error(row.get(name)) for name in names))
        for record, row in found.items()
    ]
    note = (
        "The error that used most of what is allowed, in ulp of the exact result, and the suite's limit there. Where a "
        "result is near zero because larger terms cancel, an ulp says little: the share of the bound is told."
    )
    body = element("div", element("table", head, *rows, class_="full"), class_="wide")
    return join([element("p", note, class_="soft small"), body])


def _error(figures: dict[str, float] | None) -> Markup:
    if figures is None:
        return element("td", "", class_="number")
    share = figures["used"]
    level = "over" if share > 1 else "near" if share > 0.75 and figures["ulp"] > 0.5 else ""
    meter = element("span", element("i", style=f"width:{min(100.0, 100 * share):.0f}%"), class_=f"meter {level}")
    exact = f"{_number(figures['ulp'])} of {_number(figures['allowed'])}"
    words = exact if figures["allowed"] <= _PLAIN else f"{100 * share:.0f} % of the bound"
    return element("td", words, meter, class_="number", title=f"{exact} ulp: {100 * share:.0f} % of what is allowed")


def _number(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}" if value < 1e6 else f"{value:.1e}"


def _short(name: str) -> str:
    return _SHORT.get(name, name)
