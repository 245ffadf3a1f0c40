"""The table of saboteurs: which planted faults the conformance suite catches, how, and by which case first.

    python conformance/tests/saboteurs/run.py [--json] [--full] [--only NAME] [--jobs N] [--shard I/N]

Every saboteur is the simulator with one fault. The unmodified cases of the surface that it breaks run at the quick
setting on the healthy simulator, where all must pass, and on the saboteur, until one does not. A fault that was never
active counts as not caught. The exit status is 0 when every fault was caught, 1 when one was not, 2 when the healthy
simulator did not pass.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from oarlock_saboteurs import SABOTEURS
from trial import Row, Table, chosen, run_table, temporary_site

from oarlock_conformance.case import Options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the table and print it."""
    given = _parser().parse_args(arguments)
    start = time.perf_counter()
    number, parts = given.shard
    items = chosen(given.only, (number - 1, parts))
    if not items:
        print(
            f"no saboteur is called {', '.join(given.only)}; there are {', '.join(sorted(SABOTEURS))}", file=sys.stderr
        )
        return 2

    def tell(line: str) -> None:
        print(f"{time.perf_counter() - start:6.0f} s  {line}", file=sys.stderr, flush=True)

    options = Options(quick=True, deadline_s=given.deadline)
    with temporary_site() as site:
        table = run_table(items, site, options, given.jobs, given.full, tell)
    text = json.dumps(table.to_json(), indent=1) if given.json else "\n".join(_lines(table))
    print(text)
    return 2 if table.unhealthy else 0 if table.good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="run.py", description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print the table as JSON: planted, caught, rows")
    parser.add_argument("--full", action="store_true", help="every surface for every saboteur, to the end: hours")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="saboteurs whose name or surface matches (repeatable)",
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="saboteurs at once (default %(default)s)")
    parser.add_argument(
        "--shard", type=_shard, default=(1, 1), metavar="I/N", help="part I of N of the saboteurs, from 1"
    )
    parser.add_argument(
        "--deadline", type=float, default=25.0, metavar="SECONDS",
        help="a process that is silent for so long hangs (default %(default)g)",
    )  # fmt: skip
    return parser


def _shard(text: str) -> tuple[int, int]:
    number, _, parts = text.partition("/")
    if not (number.isdigit() and parts.isdigit() and 1 <= int(number) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r}: write I/N, with I from 1 to N")
    return int(number), int(parts)


def _lines(table: Table) -> list[str]:
    """The table for a person: rows by surface, crash-only catches apart, then the sum."""
    lines = [f"not healthy: {text}" for text in table.unhealthy]
    crashes = [row for row in table.rows if row.caught and row.by == "crash"]
    lines += [_line(row) for row in table.rows if row not in crashes]
    if crashes:
        lines += ["caught by a crash alone:", *(_line(row) for row in crashes)]
    kinds = Counter(row.by for row in table.rows if row.caught)
    caught = sum(kinds.values())
    how = ", ".join(f"{count} by {kind}" for kind, count in kinds.most_common())
    return [*lines, f"{caught} of {len(table.rows)} caught ({how}) in {table.seconds:.0f} s, {table.jobs} jobs"]


def _line(row: Row) -> str:
    state = row.by if row.caught else "NOT CAUGHT" if row.reached else "NOT REACHED"
    return f"{row.surface:<11} {row.name:<28} {state:<11} {row.cases:>4} cases  {row.first or row.fault}"


if __name__ == "__main__":
    sys.exit(main())
