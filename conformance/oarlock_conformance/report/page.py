"""The certificate as one HTML page that needs nothing else: read at a glance, drilled into below."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from oarlock_conformance.case import STATES
from oarlock_conformance.certificate import Document
from oarlock_conformance.report.cases import cases_section, script, script_hash
from oarlock_conformance.report.coverage import coverage_table, numerics_table
from oarlock_conformance.report.history import Entry
from oarlock_conformance.report.markup import Markup, element, html_page, join, table, tag, text
from oarlock_conformance.report.speed import models_section, performance_section

__all__ = ["page"]

_KINDS = {"conformant": "good", "conformant in part": "part", "not conformant": "bad", "unavailable": "warn"}
_SHOWN = 8
"""Problems that are shown at once."""
_LONG = 60
"""Characters of a text that is folded."""


def page(document: Document, history: Sequence[Entry] = ()) -> str:
    """The HTML text of a certificate's document; ``history`` are the lines of history.jsonl."""
    device = document["device"]
    style = files("oarlock_conformance.report").joinpath("page.css").read_text("utf-8")
    sections = [
        ("problems", "What is wrong", _problems(document)),
        ("waivers", "Waivers and known failures", _waivers(document)),
        ("models", "Models", models_section(document, history)),
        ("performance", "Performance", performance_section(document, history)),
        ("coverage", "Operators and data types", coverage_table(document)),
        ("numerics", "Numerics", numerics_table(document)),
        ("device", "Device", _device(document)),
        ("unsupported", "Not supported, and on the host", _unsupported(document)),
        ("cases", "All cases", cases_section(document)),
        ("environment", "Environment and hashes", _environment(document)),
    ]
    shown = [(key, name, content) for key, name, content in sections if content]
    links = element("nav", *(element("a", name, href=f"#{key}") for key, name, _ in shown))
    body = join(element("section", element("h2", name), content, id=key) for key, name, content in shown)
    main = element("main", _header(document), links, _levels(document), body, _footer(document))
    return html_page(f"{device['id']}: {document['verdict']['state']}", style, join([main, script()]), script_hash())


def _header(document: Document) -> Markup:
    device, verdict, request = document["device"], document["verdict"], document["request"]
    setting = "quick setting" if request["quick"] else "full setting"
    only = f", only cases that match {request['only']}" if request["only"] else ""
    driver = ", ".join(part for part in (device.get("vendor", ""), device["driver"]) if part)
    left = element(
        "div",
        element("p", "Oarlock certificate", class_="soft"),
        element("h1", f"{device['id']}  {device['name']}"),
        element("p", driver or "not opened", class_="soft"),
        element("p", "; ".join(device.get("notes", ())), class_="soft small"),
    )
    state = verdict["state"]
    waived = sum(count["waived"] for count in document["counts"].values())
    words = ", ".join(request["levels"]) + (f"; {_number(waived, 'case')} waived" if waived else "")
    right = element(
        "div",
        element("b", state[0].upper() + state[1:]),
        element("div", "; ".join(verdict["reasons"]) if verdict["reasons"] else words),
        element("div", f"{_date(document['created'])}, {setting}{only}, {_span(document['seconds'])}", class_="small"),
        class_=f"verdict {_KINDS[state]}",
    )
    return element("header", left, right)


def _levels(document: Document) -> Markup:
    return element("div", *(_level(name, count) for name, count in document["counts"].items()), class_="levels")


def _level(name: str, count: dict[str, int]) -> Markup:
    applicable = sum(count.values()) - count["unsupported"]
    total = max(1, sum(count.values()))
    pieces = [
        element("i", class_=state, style=f"width:{100 * count[state] / total:.3f}%") for state in STATES if count[state]
    ]
    words = [f"{count[state]:,} {state}" for state in STATES if count[state] or state in ("failed", "error")]
    return element(
        "div",
        element("div", element("span", name), tag(_worst(count)), class_="name"),
        element(
            "div",
            f"{count['passed']:,} ",
            element("span", f"of {applicable:,}"),
            class_="figure",
        ),
        element("div", *pieces, class_="bar"),
        element("div", *(element("span", word) for word in words), class_="counts"),
        class_="level",
    )


def _worst(count: dict[str, int]) -> str:
    """The state that a part's card shows."""
    if count["failed"] or count["error"]:
        return "failed"
    return next((state for state in ("unavailable", "waived", "passed") if count[state]), "unsupported")


def _problems(document: Document) -> Markup:
    bad = [case for case in document["cases"] if case["state"] in ("failed", "error", "unavailable")]
    if not bad:
        waived = any(case["state"] == "waived" for case in document["cases"])
        return element(
            "p", f"Nothing: every case that applies to the device passed{' or is waived' if waived else ''}."
        )
    first, rest = bad[:_SHOWN], bad[_SHOWN:]
    parts = [_problem(case) for case in first]
    if rest:
        parts.append(element("details", element("summary", f"and {len(rest):,} more"), *map(_problem, rest)))
    return join(parts)


def _problem(case: dict[str, Any]) -> Markup:
    rows: list[Markup] = [element("dt", "contract"), element("dd", case["contract"])]
    if case.get("reproduce"):
        rows += [element("dt", "reproduce"), element("dd", element("code", case["reproduce"]))]
    return element(
        "div",
        element("span", case["id"], class_="id"),
        " ",
        tag(case["state"], case["kind"] or case["state"]),
        element("pre", case["reason"]),
        element("dl", *rows),
        class_="problem",
    )


def _waivers(document: Document) -> Markup:
    """Every entry of the adapter's waivers.toml, with the failures that it excuses."""
    if not document["waivers"]:
        return element("p", "None.")
    reasons = {case["id"]: case["reason"] for case in document["cases"]}
    rows = []
    for entry in document["waivers"]:
        why = element("div", entry["problem"], class_="worse") if entry["problem"] else Markup("")
        covered = [element("div", element("b", case), ": ", _folded(reasons.get(case, ""))) for case in entry["covers"]]
        state = {"passed": "waived"}.get(entry["state"], entry["state"])
        what = join([element("code", entry["case"]), *covered, why])
        rows.append(
            (
                what,
                tag(state, entry["kind"]),
                entry["reason"],
                entry["owner"],
                element("span", entry["expires"], class_="nowrap"),
            )
        )
    return table(("cases", "", "reason", "owner", "until"), rows, full=True)


def _device(document: Document) -> Markup:
    device = document["device"]
    if "target" not in device:
        return Markup("")
    target = device["target"]
    stored = dict(target["storage"])
    about = [
        ("memory", f"{device['memory'] / 2**30:.1f} GiB"),
        ("language, architecture", f"{target['language']}, {target['arch']}"),
        ("compiler flags", _folded(" ".join(target["flags"]) or "none")),
        ("computes", ", ".join(target["compute"])),
        ("stores as another type", ", ".join(f"{name} as {as_}" for name, as_ in stored.items()) or "none"),
        ("flushes subnormals", ", ".join(target["flush_to_zero"]) or "no"),
        ("index type", target["index_dtype"]),
        ("abilities", ", ".join(target["abilities"]) or "none"),
        ("capabilities", ", ".join(device["capabilities"]) or "none"),
        ("a failure spoils", f"the {device['failure_scope']}"),
        ("counts as accelerator", "yes" if device["is_accelerator"] else "no"),
        ("target's fingerprint", element("code", device["fingerprint"])),
    ]
    limits = [(name.replace("_", " "), _limit(value)) for name, value in target["limits"].items()]
    left = join([element("h3", "What it says of itself"), table(("", ""), about)])
    right = join([element("h3", "Limits"), table(("", ""), limits, numbers=(1,))])
    return element("div", element("div", left), element("div", right), class_="columns")


def _unsupported(document: Document) -> Markup:
    skipped = [case for case in document["cases"] if case["state"] == "unsupported"]
    counts = Counter((case["level"], case["reason"]) for case in skipped)
    rows = [(level, reason, f"{count:,}") for (level, reason), count in sorted(counts.items())]
    hosted = ", ".join(document["host_records"]) or "none"
    ran = [case["reason"] for case in document["cases"] if case["kind"] == "fallback"]
    fallbacks = "; ".join(ran) or "none"
    parts: list[Markup] = []
    if rows:
        parts.append(element("p", "Cases that ask for what the device does not declare; they are no passes."))
        parts.append(table(("level", "reason", "cases"), rows, numbers=(2,)))
    else:
        parts.append(element("p", "Every case applies to this device."))
    parts.append(
        element("p", f"They run on the host by declaration, for the size of what they give depends on data: {hosted}.")
    )
    parts.append(element("p", f"Fallbacks to the host, which are failures: {fallbacks}."))
    return join(parts)


def _environment(document: Document) -> Markup:
    device, host, adapter = document["device"], document["environment"], document["device"]["adapter"]
    versions = ", ".join(f"{name} {number}" for name, number in host["packages"].items())
    request = {key: value for key, value in document["request"].items() if value not in ("", [], None)}
    contract = _dotted(adapter["contract"]) if "contract" in adapter else "unknown"
    rows = [
        ("adapter", f"{adapter['name']} {adapter['version']} ({adapter['distribution']}, {adapter['module']})"),
        ("contract", f"adapter {contract}, core {_dotted(host['contract'])}"),
        ("driver", device["driver"] or "unknown"),
        ("Oarlock", host["oarlock"]),
        ("hash of the adapter", element("code", adapter.get("hash", ""))),
        ("hash of the suite", element("code", host["suite_hash"])),
        ("hash of the core", element("code", host["core_hash"])),
        ("hash of the driver", element("code", device.get("driver_hash", ""))),
        ("hash of the device", element("code", device.get("device_hash", ""))),
        ("hash of this certificate", element("code", document["content_hash"])),
        ("Python", f"{host['implementation']} {host['python']}"),
        ("packages", versions),
        ("host", f"{host['system']}, {host['machine']}, {host['processor']}, {host['cores']} cores"),
        ("request", ", ".join(f"{key} {value}" for key, value in request.items())),
    ]
    if document["resumed"]:
        rows.append(("resumed", f"{document['resumed']:,} outcomes are of a run that was interrupted"))
    return table(("", ""), [row for row in rows if row[1] != element("code", "")])


def _footer(document: Document) -> Markup:
    words = f"{document['schema']}, made {document['created']}. The same facts are in the JSON file beside this page."
    return element("footer", words)


def _limit(value: object) -> str:
    if isinstance(value, list):
        return " x ".join(f"{part:,}" for part in value)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:,}" if isinstance(value, int) and value < 2**60 else "unlimited"


def _folded(words: str) -> Markup:
    """A long text behind its beginning."""
    if len(words) <= _LONG:
        return text(words)
    return element("details", element("summary", f"{words[:_LONG]} ..."), words)


def _dotted(version: list[int]) -> str:
    return ".".join(map(str, version))


def _date(created: str) -> str:
    return created.partition("T")[0]


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
