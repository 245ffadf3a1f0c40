"""Draws the plots of the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ci.bench.judge import in_unit, median, ratio
from ci.bench.peers import PEERS
from ci.bench.works import Work

__all__ = ["plot"]

_MARKERS = "|xovs^DP*<>h"


def plot(folder: Path, works: Mapping[str, Work], rows: Mapping[str, Any]) -> list[str]:
    """Write what can be drawn of ``rows`` to ``folder``; returns the files' names."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "oarlock"  # the same numbers give the same file
    made = []
    if _ratios(folder / "ratios.svg", works, rows):
        made.append("ratios.svg")
    if _growth(folder / "growth.svg", works, rows):
        made.append("growth.svg")
    return made


def _ratios(path: Path, works: Mapping[str, Work], rows: Mapping[str, Any]) -> bool:
    """Each column's time over Oarlock's, a line for each work."""
    from matplotlib import pyplot

    compared = [name for name, work in works.items() if name in rows and not work.series and work.kind != "plan"]
    names = [name for name in compared if ratio(rows[name]["columns"], "oarlock", "oarlock")]
    if not names:
        return False
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.32 * len(names)), layout="constrained")
    for marker, column in zip(_MARKERS, PEERS, strict=True):
        found = [(ratio(rows[name]["columns"], column, "oarlock"), -line) for line, name in enumerate(names)]
        points = [(x, y) for x, y in found if x is not None]
        if points and column != "oarlock":
            size = 90 if column == "limit" else 30
            axes.scatter(*zip(*points, strict=True), marker=marker, s=size, label=column, zorder=3)
    axes.axvline(1, color="black", linewidth=1, zorder=2)
    axes.set_xscale("log")
    axes.set_xlabel("time / Oarlock's (right: slower)")
    axes.set_yticks([-line for line in range(len(names))], [works[name].title for name in names], fontsize=8)
    axes.grid(axis="x", which="both", alpha=0.3)
    axes.legend(fontsize=7, ncols=4, loc="lower center", bbox_to_anchor=(0.4, 1.0))
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return True


def _growth(path: Path, works: Mapping[str, Work], rows: Mapping[str, Any]) -> bool:
    """A panel for each series: time over extent, a line for each column."""
    from matplotlib import pyplot

    points = [work for name, work in works.items() if name in rows and work.series]
    series = list(dict.fromkeys(work.series for work in points))
    if not series:
        return False
    figure, panels = pyplot.subplots(
        1, len(series), figsize=(4.2 * len(series), 4), layout="constrained", squeeze=False
    )
    for panel, title in zip(panels[0], series, strict=True):
        for marker, column in zip(_MARKERS, PEERS, strict=True):
            found = [(w, median(rows[w.name]["columns"], column)) for w in points if w.series == title]
            line = [(work.extent, in_unit(work, time)) for work, time in found if time is not None]
            if line:
                panel.plot(*zip(*line, strict=True), marker=marker, label=column, linewidth=1, markersize=5)
        panel.set(xscale="log", yscale="log", title=title, xlabel="times the smallest")
        panel.grid(which="both", alpha=0.3)
        panel.legend(fontsize=7)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return True
