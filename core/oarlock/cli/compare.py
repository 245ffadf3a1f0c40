"""``oarlock compare``: what got better or worse from one certificate to another."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oarlock_conformance.compare import Change, Comparison

__all__ = ["add_arguments", "run"]

_SHOWN = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.epilog = "exit status: 0 no regression, 1 a regression, 2 wrong usage"
    parser.add_argument("old", metavar="OLD", type=Path, help="a certificate, or a folder of them")
    parser.add_argument("new", metavar="NEW", type=Path, help="the one that came later, or a folder of them")
    parser.add_argument("--json", action="store_true", help="print JSON (of two folders: a list)")


def run(arguments: argparse.Namespace) -> int:
    """Compare; the exit status is 1 for any regression."""
    from oarlock_conformance.compare import compare, pairs

    found = pairs(arguments.old, arguments.new)
    comparisons = [compare(old, new) for _, old, new in found if old is not None]
    added = [name for name, old, _ in found if old is None]
    if arguments.json:
        items = [comparison.to_json() for comparison in comparisons]
        print(json.dumps(items if arguments.old.is_dir() else items[0], indent=1))
    else:
        lines = [line for comparison in comparisons for line in _lines(comparison)]
        lines += [f"  {name}: new, there is nothing to compare it with" for name in added]
        print("\n".join(lines))
    return 1 if any(comparison.regressions for comparison in comparisons) else 0


def _lines(comparison: Comparison) -> list[str]:
    """Regressions first, then the rest, then a line per level."""
    lines = [f"{comparison.device}"]
    shown = comparison.changes[:_SHOWN]
    width = max((len(change.case) for change in shown), default=0)
    lines += [_line(change, min(width, 48)) for change in shown]
    if len(comparison.changes) > _SHOWN:
        lines.append(f"  and {len(comparison.changes) - _SHOWN:,} more: see --json")
    failing = Counter(change.kind for change in comparison.changes)["newly failing"]
    for level, before, now in comparison.levels:
        lines.append(f"  {level:<12} {before:,} -> {now:,} cases")
    if comparison.speed:
        lines.append(f"  speed was not compared: {comparison.speed}")
    count = len(comparison.regressions)
    words = f"{count} regression{'' if count == 1 else 's'}" if count else "no regression"
    return [*lines, f"  {words}, {failing:,} newly failing"]


def _line(change: Change, width: int) -> str:
    return f"  {change.case:<{width}}  {change.kind}: {change.text}{'   regression' if change.regression else ''}"
