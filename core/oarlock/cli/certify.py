"""``oarlock certify``: runs the conformance suite on devices and writes their certificates."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from oarlock.errors import ConfigError

if TYPE_CHECKING:
    from oarlock_conformance.certify import Certification, Request

__all__ = ["EPILOG", "add_arguments", "run"]

EPILOG = "exit status: 0 conformant, 1 not conformant, 2 wrong usage, 3 the device is not here (unavailable)"
_SHOWN = 20
"""Failures that are told on the terminal; the certificate has all."""
_STATUS = {"not conformant": 1, "unavailable": 3, "conformant": 0, "conformant in part": 0}
"""Exit status by verdict, the worst first."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    from oarlock_conformance.case import LEVELS, Options

    parser.epilog = EPILOG
    parser.add_argument("devices", metavar="DEVICE", nargs="+", help="what to certify, such as cpu or opencl:0")
    parser.add_argument("--quick", action="store_true", help="fewer samples: minutes instead of an hour")
    parser.add_argument("--level", action="append", choices=LEVELS, help="a level to run (default: all)")
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose id or group matches: 'memory.*'")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="processes at once (default: up to 2)")
    parser.add_argument("--report", type=Path, default=Path("out"), metavar="DIR", help="where to write (default: out)")
    parser.add_argument("--resume", action="store_true", help="go on with the run that was interrupted")
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="run groups and their cases in a random order")
    parser.add_argument("--seed", type=int, default=0, help="seed of random values and programs (default 0)")
    parser.add_argument(
        "--examples", type=int, default=0, metavar="N", help="random programs in each case of them: more for a night"
    )
    parser.add_argument(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="the certificate, or a folder of them, to compare speed with (default: the one in the report folder)",
    )
    parser.add_argument(
        "--deadline",
        type=float,
        default=Options().deadline_s,
        metavar="SECONDS",
        help="a process that is silent for so long is stopped (default %(default)g)",
    )
    parser.add_argument(
        "--allow-unavailable",
        action="store_true",
        help="models that cannot be fetched do not spoil the verdict; the certificate says so",
    )
    parser.add_argument("--json", action="store_true", help="print the certificate's JSON (of several: a list)")


def run(arguments: argparse.Namespace) -> int:
    """Certify; see EPILOG for the exit status: of several devices, the worst one's."""
    from oarlock.registry.choose import check_installed, parse_device
    from oarlock_conformance.certify import certify, plan_of
    from oarlock_conformance.progress import Progress
    from oarlock_conformance.report import write_report

    requests = _requests(arguments)
    for request in requests:
        check_installed(request.device, parse_device(request.device)[0])
    plans = [plan_of(request) for request in requests]
    documents = []
    states = set()
    for request, plan in zip(requests, plans, strict=True):
        progress = Progress()
        if len(requests) > 1:
            progress.note(request.device)
        with _interruptible(requests[0].report):
            certification = certify(request, progress, plan)
        try:
            written = write_report(certification, arguments.report)
        except OSError as error:
            raise ConfigError(f"--report {arguments.report}: cannot write there: {error.strerror}") from error
        states.add(certification.state)
        documents.append(certification.to_json())
        if not arguments.json:
            print("\n".join(_lines(certification, written[-1])), flush=True)
    if arguments.json:
        print(json.dumps(documents if len(documents) > 1 else documents[0], indent=1))
    return next(status for state, status in _STATUS.items() if state in states)


def _requests(arguments: argparse.Namespace) -> list[Request]:
    """A request per device; raises ConfigError for options that make no sense."""
    from oarlock.registry.choose import parse_device
    from oarlock_conformance.case import LEVELS, Options
    from oarlock_conformance.certify import Request

    if arguments.deadline <= 0 or arguments.jobs < 0 or arguments.examples < 0:
        raise ConfigError("--deadline is a number of seconds above 0, --jobs and --examples are numbers from 0")
    names = ["{}:{}".format(*parse_device(device)) for device in arguments.devices]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{twice} is named twice")
    levels = tuple(level for level in LEVELS if not arguments.level or level in arguments.level)
    repro = str(arguments.report / "repro")
    options = Options(arguments.quick, arguments.seed, arguments.deadline, arguments.examples, repro)
    jobs = arguments.jobs or min(2, os.cpu_count() or 1)
    return [
        Request(
            device, levels, arguments.only, jobs, options, arguments.allow_unavailable,
            arguments.shuffle, arguments.report, arguments.resume, arguments.baseline,
        )
        for device in arguments.devices
    ]  # fmt: skip


@contextmanager
def _interruptible(report: Path | None) -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: its processes are stopped, its journal stays, and it is told how to go on."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, stop) if main else None
    try:
        yield
    except KeyboardInterrupt:
        print(f"oarlock: interrupted; the journal is in {report}: --resume goes on from there", file=sys.stderr)
        raise
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


def _lines(certification: Certification, page: Path) -> list[str]:
    """Parts with their counts, then failures and waivers, then the verdict."""
    lines = []
    for part in certification.parts:
        count = certification.count(part)
        words = [f"{number:,} {state}" for state, number in count.items() if number or state == "passed"]
        lines.append(f"  {part:<11} {'   '.join(words)}")
    problems = certification.problems
    for case, outcome in problems[:_SHOWN]:
        lines.append(f"    {case.id}   {outcome.kind}: {outcome.reason}")
        lines.append(f"        contract:  {case.contract}")
        lines.append(f"        reproduce: {certification.reproduce(case)}")
    if len(problems) > _SHOWN:
        lines.append(f"    and {len(problems) - _SHOWN:,} more: see the certificate")
    lines += [
        f"  waived: {w.case}   {w.kind} until {w.expires}, {w.owner}: {w.reason}" for w in certification.plan.waivers
    ]
    if certification.resumed:
        lines.append(f"  resumed: {certification.resumed:,} outcomes are of the run that was interrupted")
    verdict = certification.state
    if certification.reasons:
        verdict += f": {'; '.join(certification.reasons)}"
    return [*lines, f"  certificate: {page}   {verdict}"]
