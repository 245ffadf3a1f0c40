"""Pictures as inline SVG that follow the page's colours: the roofline, and the line of a figure's history."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from oarlock_conformance.figures import shown
from oarlock_conformance.report.markup import Markup, element, join

__all__ = ["Point", "Roof", "roofline", "sparkline"]

_WIDTH, _HEIGHT = 720, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 24, 30, 46
_LETTER = 7.4
"""Pixels of a letter of a name."""
_Box: TypeAlias = "tuple[float, float, float, float]"


@dataclass(frozen=True, slots=True)
class Roof:
    """A limit: a rate in GFLOP/s, or a bandwidth in GB/s."""

    name: str
    value: float
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """A kernel: operations per byte, and GFLOP/s."""

    name: str
    intensity: float
    rate: float


@dataclass(frozen=True, slots=True)
class _Axes:
    """Logarithmic axes: whole powers of ten."""

    x: tuple[int, int]
    y: tuple[int, int]

    def at(self, x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + (math.log10(x) - self.x[0]) / (self.x[1] - self.x[0]) * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - (math.log10(y) - self.y[0]) / (self.y[1] - self.y[0]) * (_HEIGHT - _TOP - _BOTTOM),
        )


def roofline(points: Sequence[Point], bandwidth: Roof, rates: Sequence[Roof]) -> Markup:
    """Operations a second over operations per byte, under what memory and arithmetic reach."""
    values = [point.rate for point in points] + [roof.value for roof in rates]
    axes = _Axes(_decades([point.intensity for point in points] + [rates[0].value / bandwidth.value]), _decades(values))
    parts = [*_grid(axes), *_roofs(axes, bandwidth, rates), *_points(axes, points, [r.value for r in rates])]
    words = "Roofline: " + ", ".join(f"{p.name} {shown(p.rate)} GFLOP/s" for p in points)
    return element("svg", *parts, class_="plot", viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=words)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _grid(axes: _Axes) -> list[Markup]:
    parts = []
    for power in range(axes.x[0], axes.x[1] + 1):
        x, _ = axes.at(10.0**power, 10.0 ** axes.y[0])
        parts.append(_line(x, _TOP, x, _HEIGHT - _BOTTOM, "grid"))
        parts.append(_words(x, _HEIGHT - _BOTTOM + 18, _power(power), "tick", "middle"))
    for power in range(axes.y[0], axes.y[1] + 1):
        _, y = axes.at(10.0 ** axes.x[0], 10.0**power)
        parts.append(_line(_LEFT, y, _WIDTH - _RIGHT, y, "grid"))
        parts.append(_words(_LEFT - 8, y + 4, _power(power), "tick", "end"))
    parts.append(_words((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, "operations per byte", "axis", "middle"))
    parts.append(_words(4, _TOP - 12, "GFLOP/s", "axis"))
    return parts


def _roofs(axes: _Axes, bandwidth: Roof, rates: Sequence[Roof]) -> list[Markup]:
    """The slope of memory up to the first rate, and each rate as a level."""
    parts = []
    low, high = 10.0 ** axes.x[0], 10.0 ** axes.x[1]
    floor = 10.0 ** axes.y[0]
    start = max(low, floor / bandwidth.value)
    top = rates[0].value
    knee = min(high, top / bandwidth.value)
    parts.append(_line(*axes.at(start, start * bandwidth.value), *axes.at(knee, knee * bandwidth.value), "roof"))
    x, y = axes.at(start, start * bandwidth.value)
    end_x, end_y = axes.at(knee, knee * bandwidth.value)
    turn = math.degrees(math.atan2(end_y - y, end_x - x))
    name = element(
        "text", f"{bandwidth.name} {shown(bandwidth.value)} GB/s", class_="roof-name", text_anchor="middle",
        transform=f"translate({x + (end_x - x) * 0.4 - 6:.1f} {y + (end_y - y) * 0.4 - 8:.1f}) rotate({turn:.1f})",
    )  # fmt: skip
    parts.append(name)
    for roof in rates:
        from_x = min(high, roof.value / bandwidth.value)
        kind = "roof dashed" if roof.dashed else "roof"
        parts.append(_line(*axes.at(from_x, roof.value), *axes.at(high, roof.value), kind))
        x, y = axes.at(from_x, roof.value)
        parts.append(_words(x + 10, y - 8, f"{roof.name} {shown(roof.value)} GFLOP/s", "roof-name"))
    return parts


def _points(axes: _Axes, points: Sequence[Point], levels: Sequence[float]) -> list[Markup]:
    """Dots, each with its name at the first place around it where nothing else is."""
    places = [axes.at(point.intensity, point.rate) for point in points]
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in places]
    taken += [(_LEFT, axes.at(1, level)[1] - 1, _WIDTH - _RIGHT, axes.at(1, level)[1] + 1) for level in levels]
    parts = []
    for point, (x, y) in zip(points, places, strict=True):
        title = element("title", f"{point.name}: {shown(point.rate)} GFLOP/s at {point.intensity:.2g} per byte")
        parts.append(element("circle", title, class_="point", cx=f"{x:.1f}", cy=f"{y:.1f}", r=4.5))
        at, down, anchor, box = _free_place(x, y, _LETTER * len(point.name), taken)
        taken.append(box)
        parts.append(_words(at, down, point.name, "point-name", anchor))
    return parts


def _free_place(x: float, y: float, width: float, taken: Sequence[_Box]) -> tuple[float, float, str, _Box]:
    """Where the name of a dot at (x, y) goes: position, anchor, and the box that it fills."""
    candidates: list[tuple[float, float, str, _Box]] = []
    for down in (4, 19, -11, 34, -26):
        candidates.append((x + 9, y + down, "", (x + 9, y + down - 11, x + 9 + width, y + down + 2)))
        candidates.append((x - 9, y + down, "end", (x - 9 - width, y + down - 11, x - 9, y + down + 2)))
    inside = [each for each in candidates if each[3][0] > _LEFT and each[3][2] < _WIDTH - 4]
    free = [each for each in inside if not any(_overlap(each[3], box) for box in taken)]
    return (free or inside)[0]


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def sparkline(values: Sequence[float], titles: Sequence[str]) -> Markup:
    """A small line of values in their order, from 0; the last one is marked. ``titles`` say what each is."""
    width, height, edge = 110, 26, 4
    top = max(values, default=0.0)
    if len(values) < 2 or top <= 0:
        return Markup("")
    places = [
        (edge + i * (width - 2 * edge) / (len(values) - 1), height - edge - value / top * (height - 2 * edge))
        for i, value in enumerate(values)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = [
        element("circle", element("title", title), cx=f"{x:.1f}", cy=f"{y:.1f}", r=2.5 if i == len(places) - 1 else 1.5)
        for i, ((x, y), title) in enumerate(zip(places, titles, strict=True))
    ]
    line = element("polyline", points=path)
    return element("svg", line, join(dots), class_="spark", viewBox=f"0 0 {width} {height}", role="img")


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return element("line", class_=kind, x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}")


def _words(x: float, y: float, words: str, kind: str, anchor: str = "") -> Markup:
    return element("text", words, class_=kind, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _power(power: int) -> str:
    return f"{10.0**power:g}" if -3 <= power <= 4 else f"1e{power}"
