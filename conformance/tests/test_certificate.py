"""The certificate: every case once, a verdict that follows from them, a document of its schema, safe pages."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from oarlock.errors import DeviceError
from oarlock_conformance.case import STATES, Case, Options, Outcome, State
from oarlock_conformance.certificate import content_hash
from oarlock_conformance.certify import SCHEMA, Certification, Request, certify
from oarlock_conformance.report import write_report
from oarlock_conformance.report.cases import script_hash
from oarlock_conformance.report.coverage import coverage, numerics
from oarlock_conformance.runner import DeviceAbsent, Plan, groups_of

DEVICE: dict[str, Any] = {
    "id": "acme:0", "name": "Acme <b>1</b>", "vendor": "acme", "driver": "4.2", "memory": 1 << 30,
    "capabilities": ["streams"], "failure_scope": "stream", "is_accelerator": True, "notes": ["a & b"],
    "target": {
        "language": "c99", "arch": "a", "flags": [], "compute": ["float32"], "storage": [["bool", "uint8"]],
        "flush_to_zero": [], "index_dtype": "int32", "abilities": [], "limits": {"max_grid": [1, 2, 3]},
    },
    "fingerprint": "f00d", "device_hash": "de", "driver_hash": "d0",
    "adapter": {
        "name": "acme", "version": "1", "contract": [1, 0], "distribution": "d 1", "module": "m", "hash": "00",
        "files": {"__init__.py": "00"},
    },
}  # fmt: skip
ALL_WELL: dict[str, tuple[State, str, str]] = {
    "memory.copy/offset": ("passed", "", ""),
    "add/float32/0": ("passed", "", ""),
    "add/float64/0": ("unsupported", "", "float64 is not stored"),
    "model.ocr": ("passed", "", ""),
}


def case_of(identity: str, reason: str) -> Case:
    level, group = ("runtime", "memory") if "memory" in identity else ("operators", "elementwise")
    if "model" in identity:
        level, group = "models", "ocr"
    return Case(identity, level, group, f"the contract <of> {identity}", reason)  # type: ignore[arg-type]


def certification(outcomes: dict[str, tuple[State, str, str]], allow_unavailable: bool = False) -> Certification:
    cases = [case_of(name, reason if state == "unsupported" else "") for name, (state, _, reason) in outcomes.items()]
    groups = groups_of(cases)
    found = {name: Outcome(name, state, 0.5, kind, reason, {}) for name, (state, kind, reason) in outcomes.items()}
    found.update({group.process.id: Outcome(group.process.id, "passed") for group in groups})
    if "add/float32/0" in found:
        details = {"ulp": {"ulp": 0.5, "allowed": 2.0, "used": 0.25}}
        found["add/float32/0"] = replace(found["add/float32/0"], details=details)
    request = Request(
        "acme", ("runtime", "operators", "models"), options=Options(quick=True), allow_unavailable=allow_unavailable
    )
    every = (*cases, *(group.process for group in groups))
    return Certification(request, Plan(DEVICE, tuple(cases)), every, found, 12.0, "2026-01-02T03:04:05+00:00")


def changed(identity: str, state: State, kind: str = "", reason: str = "") -> dict[str, tuple[State, str, str]]:
    return {**ALL_WELL, identity: (state, kind, reason)}


def fits(value: Any, schema: dict[str, Any], where: str = "$") -> None:
    """The part of JSON Schema that the certificate's uses."""
    kinds = {
        "object": dict, "array": list, "string": str, "boolean": bool, "number": (int, float), "integer": int,
        "null": type(None),
    }  # fmt: skip
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        assert any(isinstance(value, kinds[name]) for name in names), where
        assert "boolean" in names or not isinstance(value, bool), where
    assert "const" not in schema or value == schema["const"], where
    assert "enum" not in schema or value in schema["enum"], where
    for name in schema.get("required", ()) if isinstance(value, dict) else ():
        assert name in value, f"{where}.{name}"
    if isinstance(value, dict):
        for name, item in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if inner:
                fits(item, inner, f"{where}.{name}")
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            fits(item, schema["items"], f"{where}[{number}]")


def test_all_well_is_conformant() -> None:
    found = certification(ALL_WELL)
    assert found.conformant
    assert found.count("operators") == {**dict.fromkeys(STATES, 0), "passed": 1, "unsupported": 1}
    assert found.state == "conformant in part", "programs and more were not run"
    assert found.count("processes")["passed"] == 3


@pytest.mark.parametrize(
    ("identity", "state"),
    [("memory.copy/offset", "failed"), ("add/float32/0", "error"), ("model.ocr", "unavailable")],
)
def test_anything_wrong_is_not_conformant(identity: str, state: State) -> None:
    found = certification(changed(identity, state, "value", "wrong"))
    assert not found.conformant
    assert [case.id for case, _ in found.problems] == [identity]


def test_unavailable_may_be_allowed_but_is_no_pass() -> None:
    outcomes = {**changed("model.ocr", "unavailable", "unavailable", "no network"), "model.two": ("passed", "", "")}
    found = certification(outcomes, allow_unavailable=True)  # type: ignore[arg-type]
    assert found.conformant
    assert found.count("models")["unavailable"] == 1
    assert found.to_json()["request"]["allow_unavailable"] is True


def test_a_level_without_a_pass_is_not_conformant() -> None:
    found = certification(changed("memory.copy/offset", "unsupported", "", "capability x is not declared"))
    assert "runtime: no case passed" in found.reasons


def test_document_fits_its_schema() -> None:
    schema = json.loads(files("oarlock_conformance").joinpath("certificate.schema.json").read_text("utf-8"))
    document = json.loads(json.dumps(certification(changed("add/float32/0", "failed", "value", "off")).to_json()))
    fits(document, schema)
    assert document["schema"] == SCHEMA
    assert len({case["id"] for case in document["cases"]}) == len(document["cases"])
    failed = next(case for case in document["cases"] if case["state"] == "failed")
    assert failed["reproduce"] == "oarlock certify acme:0 --level operators --only 'add/float32/0' --quick"


def test_absent_device_has_a_certificate_of_the_schema(tmp_path: Path) -> None:
    found = certify(Request("sim", report=tmp_path), plan=DeviceAbsent("libacme.so.4: cannot open"))
    document = found.to_json()
    schema = json.loads(files("oarlock_conformance").joinpath("certificate.schema.json").read_text("utf-8"))
    fits(document, schema)
    assert document["verdict"] == {
        "state": "unavailable", "conformant": False, "reasons": ["libacme.so.4: cannot open"],
    }  # fmt: skip
    assert [case["state"] for case in document["cases"]] == ["unavailable"]
    assert "libacme.so.4" in write_report(found, tmp_path)[-1].read_text("utf-8")


def test_broken_device_is_not_conformant() -> None:
    found = certify(Request("sim"), plan=DeviceError("the driver said 7"))
    assert found.state == "not conformant"
    assert found.outcomes["device/opens"].state == "error"


def test_seal_covers_every_value() -> None:
    document = certification(ALL_WELL).to_json()
    assert content_hash(document) == document["content_hash"]
    changed = json.loads(json.dumps(document))
    changed["cases"][0]["state"] = "failed"
    assert content_hash(changed) != document["content_hash"]


def test_tables_follow_the_cases() -> None:
    document = certification(ALL_WELL).to_json()
    assert coverage(document)["add", "float64"]["unsupported"] == 1
    assert coverage(document)["add", "float32"]["passed"] == 1
    assert numerics(document) == {"add": {"float32": {"ulp": 0.5, "allowed": 2.0, "used": 0.25}}}


def test_page_is_escaped_and_needs_nothing_else(tmp_path: Path) -> None:
    bad = '<script>alert("x")</script> & more \x00'
    *_, page = write_report(certification(changed("add/float32/0", "failed", "value", bad)), tmp_path / "new")
    text = page.read_text("utf-8")
    assert page.name == "acme-0.html"
    assert text.count("<script") == 1, "its own search, and nothing that a case says"
    assert f"script-src &#x27;{script_hash()}&#x27;" in text
    assert "&lt;script&gt;" in text
    assert "Acme &lt;b&gt;1&lt;/b&gt;" in text
    assert not re.search(r"""\s(src|href)=["'](?!#)|@import|url\(""", text)
    for piece in (
        "Not conformant",
        "operators: 1 failed",
        "the contract &lt;of&gt; add/float32/0",
        "--only &#x27;add/float32/0&#x27;",
    ):
        assert piece in text


def test_junit_is_read_by_a_parser(tmp_path: Path) -> None:
    outcomes = {
        **changed("memory.copy/offset", "failed", "value", "bytes \x01\ud800 <&> differ"),
        "model.ocr": ("unavailable", "unavailable", "no network"),
    }
    found = certification(outcomes)  # type: ignore[arg-type]
    from oarlock_conformance.report.junit import junit

    root = ElementTree.fromstring(junit(found.to_json()))
    suites = {suite.get("name"): suite for suite in root}
    assert suites["runtime.memory"].get("failures") == "1"
    assert suites["operators.elementwise"].get("skipped") == "1"
    assert suites["models.ocr"].get("errors") == "1"
    failure = root.find(".//failure")
    assert failure is not None
    assert "reproduce: oarlock certify" in (failure.text or "")
