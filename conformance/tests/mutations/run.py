"""The table of mutations: which planted errors of the compiler the generated kernels show.

    python conformance/tests/mutations/run.py [--json] [--full] [--only NAME] [--jobs N] [--shard I/N]

A mutation replaces one text in lowering, schedules, legalisation, maths or rendering, in a process of its own. Of a
set of at most 300 kernels, generated from the operator records and from fusion groups, those that it changes are run
(in the interpreter of the kernel dialect; what renderers write, on a device) until one gives a wrong result, which
without the mutation is right. A mutation that changes no kernel counts as not caught. The exit status is 0 when all
were caught, 1 when one was not, 2 when a kernel is wrong without a mutation.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parent))

from attempt import Healthy, Row, attempt, forkable, healthy_digests, healthy_faults
from catalogue import MUTATIONS, Mutation, Through

_T = TypeVar("_T")


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

    def to_json(self) -> dict[str, Any]:
        return {
            "planted": len(self.rows),
            "caught": sum(row.caught for row in self.rows),
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


def run_table(mutations: Sequence[Mutation], jobs: int, full: bool, tell: Callable[[str], None]) -> Table:
    """Try every mutation; ``full``: also run all that no mutation changed, to see that it is right."""
    start = time.perf_counter()
    forkable()
    ways: list[Through] = list(dict.fromkeys(mutation.through for mutation in mutations))
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        digests: dict[str, tuple[str, int]] = {}
        for way, found in zip(ways, pool.imap(healthy_digests, ways), strict=True):
            tell(f"healthy   {way}: {len(found)} programs, {sum(count for _, count in found.values())} kernels")
            digests.update(found)
        healthy = Healthy(digests)
        rows: list[Row] = []
        waiting = [(mutation, pool.apply_async(attempt, (mutation.name, healthy))) for mutation in mutations]
        for _, answer in waiting:
            rows.append(answer.get())
            tell(_line(rows[-1]))
        keys = None if full else frozenset(row.first for row in rows)
        checks = [pool.apply_async(healthy_faults, (keys, way)) for way in ways]
        wrong = [text for check in checks for text in check.get()]
    kernels = {way: healthy.kernels(way) for way in ways}
    return Table(tuple(rows), kernels, tuple(wrong), time.perf_counter() - start, jobs)


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
    """The table for a person."""
    lines = [f"wrong without a mutation: {text}" for text in table.wrong] + [_line(row) for row in table.rows]
    caught = sum(row.caught for row in table.rows)
    return [*lines, f"{caught} of {len(table.rows)} caught in {table.seconds:.0f} s, {table.jobs} jobs"]


if __name__ == "__main__":
    sys.exit(main())
