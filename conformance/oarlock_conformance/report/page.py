"""The certificate as one HTML page that needs nothing else: read at a glance, drilled into below."""

from __future__ import annotations

from collections import Counter
from importlib.resources import files
from typing import Any

from oarlock_conformance.case import STATES
from oarlock_conformance.report.coverage import coverage_table, numerics_table
from oarlock_conformance.report.markup import Markup, element, join, table, tag, text

__all__ = ["page"]

Document = dict[str, Any]
_SHOWN = 8
"""Problems that are shown at once."""
_LONG = 60
"""Characters of a text that is folded."""


def page(document: Document) -> str:
    """The HTML text of a certificate's document."""
    device = document["device"]
    style = files("oarlock_conformance.report").joinpath("page.css").read_text("utf-8")
    title = f"{device['id']}: {'conformant' if document['verdict']['conformant'] else 'not conformant'}"
    head = join(
        [
            Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            element("title", title),
            element("style", Markup(style)),
        ]
    )
    sections = [
        ("problems", "What is wrong", _problems(document)),
        ("models", "Models", _models(document)),
        ("coverage", "Operators and data types", coverage_table(document)),
        ("numerics", "Numerics", numerics_table(document)),
        ("device", "Device", _device(document)),
        ("unsupported", "Not supported", _unsupported(document)),
        ("cases", "All cases", _cases(document)),
        ("environment", "Environment", _environment(document)),
    ]
    shown = [(key, name, content) for key, name, content in sections if content]
    links = element("nav", *(element("a", name, href=f"#{key}") for key, name, _ in shown))
    body = join(element("section", element("h2", name), content, id=key) for key, name, content in shown)
    main = element("main", _header(document), links, _levels(document), body, _footer(document))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{main}</body></html>\n'


def _header(document: Document) -> Markup:
    device, verdict, request = document["device"], document["verdict"], document["request"]
    setting = "quick setting" if request["quick"] else "full setting"
    only = f", only cases that match {request['only']}" if request["only"] else ""
    left = element(
        "div",
        element("p", "Oarlock certificate", class_="soft"),
        element("h1", f"{device['id']}  {device['name']}"),
        element("p", f"{device['vendor']}, {device['driver']}", class_="soft"),
        element("p", "; ".join(device["notes"]), class_="soft small"),
    )
    good = verdict["conformant"]
    right = element(
        "div",
        element("b", "Conformant" if good else "Not conformant"),
        element("div", "; ".join(verdict["reasons"]) if not good else ", ".join(request["levels"])),
        element("div", f"{_date(document['created'])}, {setting}{only}, {_span(document['seconds'])}", class_="small"),
        class_=f"verdict {'good' if good else 'bad'}",
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
    bad = count["failed"] + count["error"] + count["unavailable"]
    return element(
        "div",
        element("div", element("span", name), tag("failed" if bad else "passed"), class_="name"),
        element(
            "div",
            f"{count['passed']:,} ",
            element("span", f"of {applicable:,} {'ended well' if name == 'processes' else 'passed'}"),
            class_="figure",
        ),
        element("div", *pieces, class_="bar"),
        element("div", *(element("span", word) for word in words), class_="counts"),
        class_="level",
    )


def _problems(document: Document) -> Markup:
    bad = [case for case in document["cases"] if case["state"] in ("failed", "error", "unavailable")]
    if not bad:
        return element("p", "Nothing: every case that applies to the device passed.")
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


def _models(document: Document) -> Markup:
    cases = [case for case in document["cases"] if case["level"] == "models" and case["id"].startswith("model.")]
    if not cases:
        return Markup("")
    rows = []
    for case in cases:
        details = case["details"]
        rows.append(
            (
                case["id"].removeprefix("model."),
                tag(case["state"]),
                _figure(details.get("largest_difference"), ".2g"),
                _figure(details.get("ms"), ",.1f"),
                _figure(details.get("compile_s"), ",.1f"),
                case["reason"],
            )
        )
    heads = ("model", "", "largest difference", "ms a run", "s to compile", "")
    note = "Run times are recorded, not judged; other processes of the certification may run at the same time."
    return join([table(heads, rows, numbers=(2, 3, 4), full=True), element("p", note, class_="soft small")])


def _device(document: Document) -> Markup:
    device, target = document["device"], document["device"]["target"]
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
    parts: list[Markup] = []
    if rows:
        parts.append(element("p", "Cases that ask for what the device does not declare; they are no passes."))
        parts.append(table(("level", "reason", "cases"), rows, numbers=(2,)))
    else:
        parts.append(element("p", "Every case applies to this device."))
    parts.append(element("p", f"Operators that run on the host by declaration: {hosted}."))
    return join(parts)


def _cases(document: Document) -> Markup:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for case in document["cases"]:
        groups.setdefault((case["level"], case["group"]), []).append(case)
    return join(_group(level, name, cases) for (level, name), cases in groups.items())


def _group(level: str, name: str, cases: list[dict[str, Any]]) -> Markup:
    counts = Counter(case["state"] for case in cases)
    tags = join(join([" ", tag(state, f"{counts[state]:,} {state}")]) for state in STATES if counts[state])
    seconds = sum(case["seconds"] for case in cases if not case["id"].startswith("process/"))
    summary = element("summary", f"{level}, {name} ", tags, element("span", f"  {seconds:.1f} s", class_="soft small"))
    rows = [(case["id"], tag(case["state"]), f"{case['seconds']:.2f}", case["contract"]) for case in cases]
    return element("details", summary, table(("case", "", "s", "contract"), rows, numbers=(2,)))


def _environment(document: Document) -> Markup:
    host, adapter = document["environment"], document["device"]["adapter"]
    versions = ", ".join(f"{name} {number}" for name, number in host["packages"].items())
    rows = [
        ("adapter", f"{adapter['name']} {adapter['version']} ({adapter['distribution']}, {adapter['module']})"),
        ("contract", f"adapter {_dotted(adapter['contract'])}, core {_dotted(host['contract'])}"),
        ("driver", document["device"]["driver"]),
        ("Oarlock", host["oarlock"]),
        ("hash of the adapter", element("code", adapter["hash"])),
        ("hash of the core", element("code", host["core_hash"])),
        ("hash of the suite", element("code", host["suite_hash"])),
        ("Python", f"{host['implementation']} {host['python']}"),
        ("packages", versions),
        ("host", f"{host['system']}, {host['machine']}, {host['processor']}"),
        ("request", ", ".join(f"{key} {value}" for key, value in document["request"].items() if value not in ("", []))),
    ]
    return table(("", ""), rows)


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


def _figure(value: float | None, form: str) -> Markup:
    return text("" if value is None else format(value, form))


def _dotted(version: list[int]) -> str:
    return ".".join(map(str, version))


def _date(created: str) -> str:
    return created.partition("T")[0]


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
