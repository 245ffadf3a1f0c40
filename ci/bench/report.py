"""Writes the report: a page with the tables, the numbers as JSON, and the plots."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ci.bench.judge import Verdict, best_peer, in_unit, judge, median, ratio
from ci.bench.peers import PEERS
from ci.bench.works import Work

__all__ = ["markdown", "write"]

_MARK = {True: "yes", False: "**no**", None: "not measured"}
_HEAD = """# Benchmarks

Oarlock and its peers side by side: each peer has a process of its own and {threads} threads; all are ready at once and
take turns, in changing order, so that drift of the machine meets all alike. A number is the median over the rounds of
the medians of turns; a ratio is the median over the rounds of ratios within a round. Every result was compared with a
float64 reference before it was timed; what differed is an error here, not a number. The limit is a streaming copy, a
read or a loop of multiply-adds in C, measured in the same rounds. The command is `python -m ci.bench`
([how it works](../../ci/bench/README.md)).
"""


def write(folder: Path, works: Mapping[str, Work], rows: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Write ``index.md``, ``results.json`` and the plots to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps({**about, "rows": list(rows.values())}, indent=1) + "\n")
    from ci.bench.plot import plot

    plots = plot(folder, works, rows)
    (folder / "index.md").write_text(markdown(works, rows, about, plots))


def markdown(
    works: Mapping[str, Work], rows: Mapping[str, Any], about: Mapping[str, Any], plots: Sequence[str] = ()
) -> str:
    """The page."""
    measured = {name: work for name, work in works.items() if name in rows}
    parts = [_HEAD.format(threads=about["threads"])]
    parts += [f"![{name.removesuffix('.svg')}]({name})\n" for name in plots]
    parts += ["## Reached\n", _asked(measured, rows)]
    for group in dict.fromkeys(work.group for work in measured.values()):
        chosen = {name: work for name, work in measured.items() if work.group == group}
        parts += [f"## {group.capitalize()}\n", _times(chosen, rows)]
    parts += ["## Remarks\n", _remarks(measured, rows, about["revision"]), "## Measured on\n", _about(about)]
    return "\n".join(parts)


def _table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---"] * len(header)
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *lines)) + "\n"


def _asked(works: Mapping[str, Work], rows: Mapping[str, Any]) -> str:
    lines = []
    for name, work in works.items():
        verdicts: list[Verdict] = judge(work, rows[name]["columns"])
        lines += [[work.title, v.text, v.measured, _MARK[v.reached]] for v in verdicts]
    reached = sum(line[3] == "yes" for line in lines)
    return f"{reached} of {len(lines)} demands.\n\n" + _table(["work", "asked", "measured", "reached"], lines)


def _times(works: Mapping[str, Work], rows: Mapping[str, Any]) -> str:
    present = {column for name in works for column, data in rows[name]["columns"].items() if "cannot" not in data}
    names = [name for name in PEERS if name in present]
    lines = []
    for name, work in works.items():
        columns = rows[name]["columns"]
        best = best_peer(columns)
        cells = [_cell(work, columns, column, column == best) for column in names]
        lines.append([f"{work.title} ({work.unit})", *cells, _ratio(columns, "limit"), _ratio(columns, best)])
    return _table(["work", *names, "oarlock / limit", "oarlock / best peer"], lines)


def _cell(work: Work, columns: Mapping[str, Any], column: str, best: bool) -> str:
    if column not in columns or "cannot" in columns[column]:
        return "–"
    time = median(columns, column)
    if time is None:
        return "error"
    text = f"{in_unit(work, time):.3g}"
    return f"**{text}**" if best else text


def _ratio(columns: Mapping[str, Any], against: str | None) -> str:
    found = ratio(columns, "oarlock", against) if against else None
    return "–" if found is None else f"{found:.2f}"


def _remarks(works: Mapping[str, Work], rows: Mapping[str, Any], revision: str) -> str:
    lines = []
    for name, work in works.items():
        entry = rows[name]
        for column, data in entry["columns"].items():
            if "error" in data:
                lines.append(f"- {work.title}, {column}: error: {data['error']}")
            elif data.get("faults", 0) >= 100:
                lines.append(f"- {work.title}, {column}: {data['faults']:.0f} page faults a call")
        if entry.get("revision", revision) != revision:
            lines.append(f"- {work.title}: measured at revision {entry['revision']}")
        lost = entry.get("lost", {})
        if lost.get("others", 0) > 0.02 or lost.get("outside", 0) > 0.02:
            lines.append(
                f"- {work.title}: **disturbed**: while a peer ran, other peers took {lost['others']:.1%} of the "
                f"processors and the rest of the machine {lost['outside']:.1%}"
            )
    return "\n".join(lines or ["None."]) + "\n"


def _about(about: Mapping[str, Any]) -> str:
    lines = [f"- {key}: {value}" for key, value in about["host"].items()]
    lines += [f"- revision: {about['revision']}", f"- date: {about['date']}"]
    for peer, told in about["peers"].items():
        pools = ", ".join(
            f"{pool['internal_api']} {pool.get('version') or ''} {pool.get('architecture', '')} x{pool['num_threads']}"
            for pool in told.get("pools", [])
        )
        lines.append(f"- {peer}: {told.get('version', told.get('error'))}" + (f" ({pools})" if pools else ""))
    return "\n".join(lines) + "\n"
