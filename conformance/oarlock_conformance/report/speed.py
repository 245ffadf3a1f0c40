"""The sections on speed: models with their history, the roofline, what the device and standard kernels reach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oarlock_conformance.certificate import Document
from oarlock_conformance.figures import Figure, figures_in, shown
from oarlock_conformance.report.history import Entry, past
from oarlock_conformance.report.markup import Markup, element, join, table, tag, text
from oarlock_conformance.report.plot import Point, Roof, roofline, sparkline

__all__ = ["models_section", "performance_section"]

Case = dict[str, Any]


def models_section(document: Document, history: Sequence[Entry]) -> Markup:
    """A row per model: right or wrong, how long, against what the device reaches and against the baseline."""
    cases = [case for case in document["cases"] if case["level"] == "models" and case["id"].startswith("model.")]
    if not cases:
        return Markup("")
    rows = [
        (
            case["id"].removeprefix("model."),
            tag(case["state"], case["kind"] if case["state"] == "failed" and case["kind"] == "slower" else ""),
            _figure(case, "latency"),
            _change(case, "latency"),
            _spark(document, history, case, "latency"),
            _share(case["details"].get("share")),
            _figure(case, "throughput"),
            _figure(case, "memory"),
            _plain(case["details"].get("largest_difference"), "{:.2g}"),
            _plain(case["details"].get("compile_s"), "{:,.1f} s"),
        )
        for case in cases
    ]
    heads = (
        "model", "", "a run", "baseline", "history", "of the limit", "throughput", "memory", "off by", "to compile",
    )  # fmt: skip
    return join([_filled(heads, rows, (2, 3, 6, 7, 8, 9)), _note(document)])


def _note(document: Document) -> Markup:
    words = (
        "A run: median and spread (between the quartiles). Of the limit: the time that the operations or the bytes of "
        "its kernels take at the rates measured beside it, as a part of a run. Off by: the largest difference from the "
        "recorded outputs. "
    )
    return element("p", words, _baseline_words(document), class_="soft small")


def _baseline_words(document: Document) -> str:
    baseline = document["baseline"]
    if baseline is None:
        return "There was no baseline to compare with."
    if baseline["unused"]:
        return f"The baseline {baseline['source']} was not compared with: {baseline['unused']}."
    return (
        f"Baseline: {baseline['source']} of {baseline['created'][:10]}; worse by more than three times the spread and "
        f"15 %, beyond what the host itself became slower, is a failure."
    )


def performance_section(document: Document, history: Sequence[Entry]) -> Markup:
    """The roofline, what the device reaches, and the standard kernels under it."""
    cases = {case["id"]: case for case in document["cases"] if case["level"] == "performance"}
    limits = [case for name, case in cases.items() if name.startswith("limit.")]
    kernels = [case for name, case in cases.items() if name.startswith("kernel.")]
    if not limits and not kernels:
        return Markup("")
    bandwidth, rate = _reached(cases)
    parts: list[Markup] = []
    points = [_point(case) for case in kernels if "figures" in case["details"]]
    if points and bandwidth and rate:
        half = _median(cases, "limit.matrix-float16")
        rates = [Roof("float32", rate), *([Roof("float16", half, True)] if half else [])]
        parts.append(element("div", roofline(points, Roof("memory", bandwidth), rates), class_="wide"))
    left = join([element("h3", "What the device reaches"), _limit_table(document, limits, history)])
    right = join([element("h3", "Standard kernels"), _kernel_table(document, kernels, bandwidth, rate, history)])
    words = (
        "Medians and spreads (between the quartiles). The roof is the best rate of memory, and of matrix products, "
        "that anything here reached; a kernel's share is that of the one that binds it. Figures are recorded; none is "
        "a threshold. "
    )
    note = element("p", words, _baseline_words(document), class_="soft small")
    return join([*parts, element("div", element("div", left), element("div", right), class_="columns"), note])


def _limit_table(document: Document, cases: Sequence[Case], history: Sequence[Entry]) -> Markup:
    rows = []
    for case in cases:
        name = _LIMIT_NAMES.get(case["id"], case["id"].removeprefix("limit."))
        found = figures_in(case["details"])
        if not found:
            rows.append((name, tag(case["state"]), "", ""))
        for key in found:
            label = name if len(found) == 1 else f"{name}, {key.replace('_', ' ')}"
            rows.append((label, _figure(case, key), _change(case, key), _spark(document, history, case, key)))
    return _filled(("", "", "baseline", "history"), rows, (1, 2))


def _kernel_table(
    document: Document, cases: Sequence[Case], bandwidth: float, rate: float, history: Sequence[Entry]
) -> Markup:
    rows = []
    for case in cases:
        name = element("span", case["id"].removeprefix("kernel."), class_="nowrap")
        if "figures" not in case["details"]:
            rows.append((name, tag(case["state"]), "", "", "", ""))
            continue
        point = _point(case)
        roof = min(rate, point.intensity * bandwidth) if bandwidth and rate else 0.0
        moved = f"{shown(point.rate / point.intensity)} GB/s" if roof < rate else f"{shown(point.rate)} GFLOP/s"
        share = _share(point.rate / roof if roof else None)
        rows.append(
            (name, _figure(case, "time"), moved, share, _change(case, "time"), _spark(document, history, case, "time"))
        )
    return _filled(("", "a run", "rate", "of the roof", "baseline", "history"), rows, (1, 2, 4))


def _filled(heads: Sequence[str], rows: Sequence[Sequence[object]], numbers: Sequence[int]) -> Markup:
    """A table without the columns that are empty, such as those of a baseline that there is not."""
    kept = [i for i in range(len(heads)) if any(row[i] for row in rows)]
    chosen = [[row[i] for i in kept] for row in rows]
    return table([heads[i] for i in kept], chosen, [kept.index(i) for i in numbers if i in kept], full=True)


_LIMIT_NAMES = {
    "limit.copy_in": "copy to the device",
    "limit.copy_out": "copy to the host",
    "limit.copy": "copy on the device",
    "limit.memory": "kernel that adds arrays",
    "limit.launch": "launch",
    "limit.matrix-float32": "matrix product, float32",
    "limit.matrix-float16": "matrix product, float16",
}


def _reached(cases: dict[str, Case]) -> tuple[float, float]:
    """The best bandwidth (GB/s) and float32 rate (GFLOP/s) that anything of the level reached; 0 where unknown."""
    kernels = [
        _point(case) for name, case in cases.items() if name.startswith("kernel.") and "figures" in case["details"]
    ]
    bandwidths = [_median(cases, "limit.copy"), _median(cases, "limit.memory")]
    bandwidths += [point.rate / point.intensity for point in kernels if point.name in ("add", "sum")]
    rates = [_median(cases, "limit.matrix-float32"), *(point.rate for point in kernels if "matmul" in point.name)]
    return max(bandwidths), max(rates)


def _median(cases: dict[str, Case], name: str) -> float:
    found = figures_in(cases[name]["details"]) if name in cases else {}
    return found["rate"].median if "rate" in found else 0.0


def _point(case: Case) -> Point:
    details = case["details"]
    seconds = details["figures"]["time"]["median"] / 1e3
    name = case["id"].removeprefix("kernel.")
    return Point(name, details["flops"] / details["bytes"], details["flops"] / seconds / 1e9)


def _figure(case: Case, name: str) -> Markup:
    found = figures_in(case["details"]).get(name)
    if found is None:
        return text("")
    spread = element("span", f" ± {shown(found.spread)}", class_="soft") if found.spread else Markup("")
    return element("span", shown(found.median), spread, f" {found.unit}", title=f"{found.runs} runs")


def _change(case: Case, name: str) -> Markup:
    """How a figure stands to the baseline's; both numbers where one is worse."""
    item = case["details"].get("figures", {}).get(name, {})
    before = item.get("baseline")
    if not before or not before["median"]:
        return Markup("")
    change = item["median"] / before["median"] - 1
    better = (change < 0) == (item["better"] == "lower")
    kind = "worse" if item["worse"] else "better" if better and abs(change) > 0.15 else "soft"
    old = Figure(before["median"], before["spread"], item["runs"], item["unit"], item["better"])
    return element("span", f"{change:+.0%}", class_=kind, title=f"it was {old} ± {shown(old.spread)}")


def _spark(document: Document, history: Sequence[Entry], case: Case, name: str) -> Markup:
    found = past(history, document, case["id"], name)
    return sparkline([value for _, value, _ in found], [f"{when[:16]}: {shown(v)} {unit}" for when, v, unit in found])


def _share(value: float | None) -> Markup:
    if value is None:
        return Markup("")
    width = f"width:{min(100.0, 100 * value):.0f}%"
    meter = element("span", element("i", style=width), class_="meter plain")
    return element("span", meter, f" {value:.0%}", class_="nowrap")


def _plain(value: float | None, form: str) -> Markup:
    return text("" if value is None else form.format(value))
