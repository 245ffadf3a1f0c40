"""The release page: every certified device beside the others, by level, model, data type, speed and waivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from oarlock import dtypes
from oarlock.errors import ConfigError
from oarlock_conformance.case import LEVELS
from oarlock_conformance.certificate import SCHEMA, Document, file_name, read_certificate
from oarlock_conformance.figures import figures_in
from oarlock_conformance.report.markup import Markup, element, html_page, join, table, tag, text

__all__ = ["matrix_page", "read_certificates", "summary"]

_KINDS = {
    "conformant": "passed", "conformant in part": "unsupported", "not conformant": "failed",
    "unavailable": "unavailable",
}  # fmt: skip


def read_certificates(folder: Path) -> list[Document]:
    """The certificates in a folder, by device; raises ConfigError where there is none, or one cannot be read."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: it is no folder; certificates are written by `oarlock certify ... --report DIR`")
    found = [read_certificate(path) for path in sorted(folder.glob("*.json"))]
    if not found:
        raise ConfigError(f"{folder}: it holds no certificates (*.json)")
    return sorted(found, key=lambda document: document["device"]["id"])


def summary(documents: Sequence[Document]) -> dict[str, Any]:
    """The matrix as JSON."""
    return {
        "schema": SCHEMA,
        "devices": [
            {
                "device": document["device"]["id"],
                "name": document["device"]["name"],
                "adapter": document["device"]["adapter"]["version"],
                "created": document["created"],
                "quick": document["request"]["quick"],
                "state": document["verdict"]["state"],
                "reasons": document["verdict"]["reasons"],
                "counts": document["counts"],
                "waivers": len(document["waivers"]),
                "models": {name: case["state"] for name, case in _models(document).items()},
            }
            for document in documents
        ],
    }


def matrix_page(documents: Sequence[Document], pages: Path) -> str:
    """The HTML text; a device links to its own page where that lies in the folder ``pages``, beside this one."""
    style = files("oarlock_conformance.report").joinpath("page.css").read_text("utf-8")
    good = sum(document["verdict"]["state"] == "conformant" for document in documents)
    head = element(
        "header",
        element(
            "div",
            element("p", "Oarlock release matrix", class_="soft"),
            element("h1", f"{good} of {len(documents)} devices conformant"),
            element("p", f"certified {_dates(documents)}, Oarlock {_versions(documents)}", class_="soft"),
        ),
    )
    sections = [
        ("Levels", _levels(documents, pages)),
        ("What is wrong", _problems(documents)),
        ("Models", _model_table(documents)),
        ("Data types", _dtype_table(documents)),
        ("Speed", _speed_table(documents)),
        ("Waivers and known failures", _waivers(documents)),
    ]
    body = join(element("section", element("h2", name), content) for name, content in sections if content)
    return html_page("Oarlock release matrix", style, element("main", head, body))


def _levels(documents: Sequence[Document], pages: Path) -> Markup:
    names = [name for name in (*LEVELS, "processes") if any(name in document["counts"] for document in documents)]
    rows = []
    for document in documents:
        device, counts = document["device"], document["counts"]
        page = f"{file_name(device['id'])}.html"
        label = element("a", device["id"], href=page) if (pages / page).is_file() else element("b", device["id"])
        adapter = device["adapter"]
        what = element(
            "div", ", ".join(part for part in (device["name"], device["driver"]) if part), class_="soft small"
        )
        setting = "quick" if document["request"]["quick"] else "full"
        state = document["verdict"]["state"]
        cells = [_level(counts.get(name)) for name in names]
        rows.append((join([label, what]), tag(_KINDS[state], state), adapter["version"], *cells, setting))
    return table(("device", "", "adapter", *names, "setting"), rows, full=True)


def _level(count: dict[str, int] | None) -> Markup:
    if count is None:
        return element("span", "not run", class_="soft")
    applicable = sum(count.values()) - count["unsupported"]
    bad = count["failed"] + count["error"] + count["unavailable"]
    words = f"{count['passed']:,}/{applicable:,}"
    waived = element("div", f"{count['waived']:,} waived", class_="soft small") if count["waived"] else Markup("")
    return join([element("span", words, class_="worse" if bad else "better"), waived])


def _problems(documents: Sequence[Document]) -> Markup:
    rows = [
        (document["device"]["id"], "; ".join(document["verdict"]["reasons"]))
        for document in documents
        if document["verdict"]["reasons"]
    ]
    return table(("device", "reasons"), rows, full=True) if rows else element("p", "Nothing.")


def _models(document: Document) -> dict[str, Any]:
    return {
        case["id"].removeprefix("model."): case
        for case in document["cases"]
        if case["level"] == "models" and case["id"].startswith("model.")
    }


def _model_table(documents: Sequence[Document]) -> Markup:
    found = [_models(document) for document in documents]
    names = dict.fromkeys(name for each in found for name in each)
    rows = [(name, *(_model(each.get(name)) for each in found)) for name in names]
    return _by_device("model", documents, rows)


def _model(case: dict[str, Any] | None) -> Markup:
    if case is None:
        return text("")
    figure = figures_in(case["details"]).get("latency")
    if case["state"] == "passed" and figure is not None:
        return element("span", str(figure), title=f"± {figure.spread:.3g}, {figure.runs} runs")
    return join([tag(case["state"], case["kind"] or case["state"]), " ", str(figure or "")])


def _dtype_table(documents: Sequence[Document]) -> Markup:
    """Cases of the operators level that passed, of those that apply, by data type."""
    rows = []
    for dtype in dtypes.ALL:
        cells = []
        for document in documents:
            states = Counter(
                case["state"] for case in document["cases"]
                if case["level"] == "operators" and case["id"].split("/")[1:2] == [dtype.name]
                and not case["id"].endswith("/refused")
            )  # fmt: skip
            cells.append(_dtype(states))
        if any(cells):
            rows.append((dtype.name, *cells))
    return _by_device("data type", documents, rows)


def _dtype(states: Counter[str]) -> Markup:
    applicable = sum(states.values()) - states["unsupported"]
    if not applicable:
        return element("span", "not stored", class_="soft") if states else Markup("")
    bad = states["failed"] + states["error"]
    return element("span", f"{states['passed']:,}/{applicable:,}", class_="worse" if bad else "better")


def _speed_table(documents: Sequence[Document]) -> Markup:
    found = [
        {
            (case["id"], name): figure
            for case in document["cases"]
            if case["level"] == "performance"
            for name, figure in figures_in(case["details"]).items()
        }
        for document in documents
    ]
    keys = dict.fromkeys(key for each in found for key in each)
    rows = []
    for case, name in keys:
        label = case if name in ("rate", "time") else f"{case}, {name.replace('_', ' ')}"
        rows.append((label, *(str(each[case, name]) if (case, name) in each else "" for each in found)))
    return _by_device("", documents, rows)


def _by_device(head: str, documents: Sequence[Document], rows: Sequence[Sequence[object]]) -> Markup:
    heads = (head, *(document["device"]["id"] for document in documents))
    wide = len(documents) > 2
    return table(heads, rows, numbers=range(1, len(heads)), full=wide) if rows else Markup("")


def _waivers(documents: Sequence[Document]) -> Markup:
    rows = [
        (document["device"]["id"], element("code", entry["case"]), entry["kind"], entry["reason"], entry["owner"],
         entry["expires"], tag({"passed": "waived"}.get(entry["state"], entry["state"])))
        for document in documents
        for entry in document["waivers"]
    ]  # fmt: skip
    heads = ("device", "cases", "kind", "reason", "owner", "until", "")
    return table(heads, rows, full=True) if rows else element("p", "None.")


def _dates(documents: Sequence[Document]) -> str:
    days = sorted({document["created"][:10] for document in documents})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def _versions(documents: Sequence[Document]) -> str:
    return ", ".join(sorted({document["environment"]["oarlock"] for document in documents}))
