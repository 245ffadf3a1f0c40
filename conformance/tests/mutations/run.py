"""The table of mutations: which planted errors of the compiler the generated kernels show.

    python conformance/tests/mutations/run.py [--json] [--full] [--only NAME] [--jobs N] [--shard I/N]

A mutation replaces one text in lowering, schedules, legalisation, maths or rendering, in a process of its own. Of a
set of at most 300 kernels, generated from the operator records and from fusion groups, those that it changes are run
(in the interpreter of the kernel dialect; what renderers write, on a device) until one gives a wrong result, which
without the mutation is right. An attempt whose process dies, or says nothing for the deadline, is caught by that, and
is listed apart. A mutation that changes no kernel counts as not caught. The exit status is 0 when all
were caught, 1 when one was not, 2 when a kernel is wrong without a mutation.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from apart import Ended, apart
from attempt import Healthy, Row, attempt, forkable, healthy_digests, healthy_faults, row_of
from catalogue import MUTATIONS, Mutation, Through

DEADLINE_S = 60.0
"""A process that says nothing for so long (it speaks before each program) hangs."""


@dataclass(frozen=True, slots=True)
class Table:
    """All rows; ``kernels``: how many are looked at, by what they are looked at through; ``wrong``: what is wrong
    without a mutation."""

    rows: tuple[Row, ...]
    kernels: dict[str, int]
    wrong: tuple[str, ...]
    seconds: float
    jobs: int

    @property
    def good(self) -> bool:
        return not self.wrong and all(row.caught for row in self.rows)

    @property
    def by(self) -> dict[str, int]:
        """How many were caught by what, the most first."""
        return dict(Counter(row.by for row in self.rows if row.caught).most_common())

    def to_json(self) -> dict[str, Any]:
        return {
            "planted": len(self.rows),
            "caught": sum(row.caught for row in self.rows),
            "by": self.by,
            "crash_only": [row.name for row in self.rows if row.crash_only],
            "wrong": list(self.wrong),
            "kernels": self.kernels,
            "seconds": round(self.seconds, 1),
            "jobs": self.jobs,
            "rows": [row.to_json() for row in self.rows],
        }


def chosen(names: Sequence[str], shard: tuple[int, int]) -> list[Mutation]:
    """Mutations whose name or module matches a pattern (none: all), and of those part ``shard`` = (from 0, parts)."""
    found = [
        mutation
        for mutation in MUTATIONS.values()
        if not names or any(fnmatch.fnmatchcase(text, n) for n in names for text in (mutation.name, mutation.module))
    ]
    number, parts = shard
    return found[len(found) * number // parts : len(found) * (number + 1) // parts]


def run_table(
    mutations: Sequence[Mutation],
    jobs: int,
    full: bool,
    tell: Callable[[str], None],
    deadline_s: float = DEADLINE_S,
) -> Table:
    """Try every mutation; ``full``: also run all that no mutation changed, to see that it is right."""
    start = time.perf_counter()
    forkable()
    ways: list[Through] = list(dict.fromkeys(mutation.through for mutation in mutations))
    digests: dict[str, tuple[str, int]] = {}
    for number, ended in apart([partial(healthy_digests, way) for way in ways], jobs, deadline_s):
        found = _healthy(ended)
        tell(f"healthy   {ways[number]}: {len(found)} programs, {sum(count for _, count in found.values())} kernels")
        digests.update(found)
    healthy = Healthy(digests)
    rows: dict[int, Row] = {}
    for number, ended in apart([partial(attempt, m.name, healthy) for m in mutations], jobs, deadline_s):
        rows[number] = row_of(mutations[number].name, ended)
        tell(_line(rows[number]))
    keys = None if full else frozenset(row.first for row in rows.values())
    wrong: list[str] = []
    for _, ended in apart([partial(healthy_faults, keys, way) for way in ways], jobs, deadline_s):
        wrong += ended.value if ended.by == "value" else [f"{ended.note}: {ended.reason}"]
    kernels: dict[str, int] = {way: healthy.kernels(way) for way in ways}
    ordered = tuple(rows[number] for number in range(len(mutations)))
    return Table(ordered, kernels, tuple(wrong), time.perf_counter() - start, jobs)


def _healthy(ended: Ended) -> dict[str, tuple[str, int]]:
    if ended.by != "value":
        raise RuntimeError(f"without a mutation, {ended.note or 'the first program'}: {ended.reason}")
    found: dict[str, tuple[str, int]] = ended.value
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the table and print it."""
    given = _parser().parse_args(arguments)
    start = time.perf_counter()
    number, parts = given.shard
    mutations = chosen(given.only, (number - 1, parts))
    if not mutations:
        print(f"no mutation matches {', '.join(given.only)}; there are {', '.join(MUTATIONS)}", file=sys.stderr)
        return 2

    def tell(line: str) -> None:
        print(f"{time.perf_counter() - start:6.0f} s  {line}", file=sys.stderr, flush=True)

    table = run_table(mutations, given.jobs, given.full, tell)
    print(json.dumps(table.to_json(), indent=1) if given.json else "\n".join(_lines(table)))
    return 2 if table.wrong else 0 if table.good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="run.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print the table as JSON: planted, caught, rows")
    parser.add_argument("--full", action="store_true", help="also run every kernel without a mutation")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="mutations whose name or module matches (repeatable)",
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="mutations at once (default %(default)s)")
    parser.add_argument("--shard", type=_shard, default=(1, 1), metavar="I/N", help="part I of N, from 1")
    return parser


def _shard(text: str) -> tuple[int, int]:
    number, _, parts = text.partition("/")
    if not (number.isdigit() and parts.isdigit() and 1 <= int(number) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r}: write I/N, with I from 1 to N")
    return int(number), int(parts)


def _line(row: Row) -> str:
    state = row.by if row.caught else "NOT CAUGHT"
    return f"{row.name:<32} {row.through:<6} {state:<10} {row.changed:>3} changed  {row.first or row.reason}"


def _lines(table: Table) -> list[str]:
    """The table for a person: crash-only catches apart, then the sum."""
    lines = [f"wrong without a mutation: {text}" for text in table.wrong]
    crashes = [row for row in table.rows if row.crash_only]
    lines += [_line(row) for row in table.rows if row not in crashes]
    if crashes:
        lines += ["caught by a crash or a time-out alone:", *(_line(row) for row in crashes)]
    how = ", ".join(f"{count} by {kind}" for kind, count in table.by.items())
    caught = sum(table.by.values())
    return [*lines, f"{caught} of {len(table.rows)} caught ({how}) in {table.seconds:.0f} s, {table.jobs} jobs"]


if __name__ == "__main__":
    sys.exit(main())
