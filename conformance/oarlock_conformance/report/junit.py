"""The certificate as JUnit XML: a suite per group, for CI systems."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

__all__ = ["junit"]

_KINDS = {
    "failed": "failure", "error": "error", "unavailable": "error", "unsupported": "skipped", "waived": "skipped",
}  # fmt: skip
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(document: dict[str, Any]) -> str:
    """The XML text of a certificate's document. Unsupported and waived cases are skipped tests, with the
    reason; unavailable ones are errors (skipped where the request allows them)."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for case in document["cases"]:
        groups.setdefault((case["level"], case["group"]), []).append(case)
    root = ElementTree.Element("testsuites", name=f"oarlock certify {document['device']['id']}")
    allowed = bool(document["request"]["allow_unavailable"])
    for (level, group), cases in groups.items():
        suite = ElementTree.SubElement(root, "testsuite", name=f"{level}.{group}", timestamp=document["created"])
        counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
        for case in cases:
            kind = _add(suite, case, allowed)
            counts["tests"] += 1
            if kind:
                counts[{"failure": "failures", "error": "errors", "skipped": "skipped"}[kind]] += 1
        suite.attrib.update({name: str(count) for name, count in counts.items()})
        suite.set("time", f"{sum(case['seconds'] for case in cases):.3f}")
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _add(suite: ElementTree.Element, case: dict[str, Any], allowed: bool) -> str:
    """Add a test; returns how it did not pass ("" where it did)."""
    place = f"{case['level']}.{case['group']}"
    item = ElementTree.SubElement(suite, "testcase", name=case["id"], classname=place, time=f"{case['seconds']:.3f}")
    kind = _KINDS.get(case["state"], "")
    if case["state"] == "unavailable" and allowed:
        kind = "skipped"
    if kind:
        reason = _FORBIDDEN.sub("�", case["reason"])
        first = (reason.splitlines() or [""])[0][:300]
        child = ElementTree.SubElement(item, kind, message=f"{case['state']}: {first}")
        if kind != "skipped":
            child.set("type", case["kind"])
            child.text = f"{reason}\ncontract: {case['contract']}\nreproduce: {case.get('reproduce', '')}"
    return kind
