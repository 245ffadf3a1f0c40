"""``python -m ci.bench``: measure rows of the table, and write the report."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ci.bench import host, report
from ci.bench.coordinator import Process, start
from ci.bench.journal import Journal
from ci.bench.peers import PEERS, THREADS
from ci.bench.rows import Settings, columns_of, measure
from ci.bench.table import table

ROOT = Path(__file__).resolve().parents[2]


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ci.bench", description=__doc__)
    parser.add_argument("--only", action="append", metavar="ROW", help="rows whose names begin so; may be repeated")
    parser.add_argument("--peers", default=",".join(PEERS), metavar="A,B", help="columns (default: all)")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="turns of each peer (default 9)")
    parser.add_argument("--seconds", type=float, default=0.15, metavar="S", help="length of a turn (default 0.15)")
    parser.add_argument("--timeout", type=float, default=900, metavar="S", help="to make a peer ready (default 900)")
    parser.add_argument("--again", action="store_true", help="measure rows anew that were measured before")
    parser.add_argument("--work", type=Path, default=ROOT / ".cache" / "bench", metavar="DIR", help="journal, caches")
    parser.add_argument("--report", type=Path, metavar="DIR", help="write the page, the numbers and the plots there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there")
    parser.add_argument("--list", action="store_true", help="list rows and columns, and stop")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """The command; exit status 1 where a column of Oarlock gave an error."""
    arguments = _arguments(given)
    if arguments.list:
        print("\n".join(f"{work.name:28} {work.title}" for work in table().values()), "", *PEERS, sep="\n")
        return 0
    peers = arguments.peers.split(",")
    unknown = [peer for peer in peers if peer not in PEERS]
    rows = [name for name in table() if not arguments.only or name.startswith(tuple(arguments.only))]
    if unknown or not rows:
        print(f"no column {unknown[0]!r}" if unknown else f"no row begins with {arguments.only}", file=sys.stderr)
        return 2
    host.pin(THREADS)
    journal = Journal(arguments.work / "journal.jsonl")
    processes = start(peers, arguments.work / "caches", arguments.work / "logs")
    try:
        about = _about(processes)
        _measure(rows, processes, journal, arguments)
    finally:
        for process in processes.values():
            process.close()
    return _finish(journal, about, arguments)


def _about(processes: dict[str, Process]) -> dict[str, Any]:
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    peers = {name: process.ask(300, do="about") for name, process in processes.items()}
    return {"host": host.describe(), "threads": THREADS, "revision": host.revision(), "date": date, "peers": peers}


def _measure(
    rows: Sequence[str], processes: dict[str, Process], journal: Journal, arguments: argparse.Namespace
) -> None:
    settings = Settings(arguments.rounds, arguments.seconds, arguments.timeout)
    begin, revision = time.monotonic(), host.revision()
    for number, name in enumerate(rows, 1):
        work = table()[name]
        if not arguments.again and journal.has(name, columns_of(work, processes), settings.rounds):
            continue

        def say(text: str, number: int = number, name: str = name) -> None:
            print(f"[{time.monotonic() - begin:6.0f} s] {number}/{len(rows)} {name}: {text}", file=sys.stderr)

        journal.add({**measure(work, processes, settings, say), "revision": revision})


def _finish(journal: Journal, about: dict[str, Any], arguments: argparse.Namespace) -> int:
    known = {name: journal.rows[name] for name in table() if name in journal.rows}
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({**about, "rows": list(known.values())}, indent=1) + "\n")
    if arguments.report is not None:
        report.write(arguments.report, table(), known, about)
    else:
        print(report.markdown(table(), known, about))
    ours = [data for row in known.values() for column, data in row["columns"].items() if column.startswith("oarlock")]
    return 1 if any("error" in data for data in ours) else 0


if __name__ == "__main__":
    sys.exit(main())
