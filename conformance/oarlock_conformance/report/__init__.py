"""Writes a certification: JSON for programs, JUnit for CI, and one HTML page for people."""

from __future__ import annotations

import json
from pathlib import Path

from oarlock_conformance.certificate import file_name
from oarlock_conformance.certify import Certification
from oarlock_conformance.report.history import add_history, read_history
from oarlock_conformance.report.junit import junit
from oarlock_conformance.report.page import page

__all__ = ["write_report"]


def write_report(certification: Certification, folder: Path) -> tuple[Path, Path, Path]:
    """Write ``<device>.json``, ``<device>.xml`` and ``<device>.html`` to ``folder``, and a line to ``history.jsonl``.

    Raises OSError where that cannot be done.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = file_name(certification.plan.device["id"])
    document = certification.to_json()
    add_history(folder, document)
    paths = (folder / f"{name}.json", folder / f"{name}.xml", folder / f"{name}.html")
    texts = (json.dumps(document, indent=1) + "\n", junit(document), page(document, read_history(folder)))
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    return paths
