"""``oarlock certify``: runs the conformance suite on a device and writes its certificate."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock.errors import ConfigError, DeviceError, DeviceNotFoundError

if TYPE_CHECKING:
    from oarlock_conformance.certify import Certification

__all__ = ["add_arguments", "run"]

_SHOWN = 20
"""Failures that are told on the terminal; the certificate has all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    from oarlock_conformance.case import LEVELS, Options

    parser.add_argument("device", metavar="DEVICE", help="the device to certify, such as cpu or opencl:0")
    parser.add_argument("--quick", action="store_true", help="fewer samples: minutes instead of an hour")
    parser.add_argument("--level", action="append", choices=LEVELS, help="a level to run (default: all)")
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose id or group matches: 'memory.*'")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="processes at once (default: up to 2)")
    parser.add_argument("--report", type=Path, default=Path("out"), metavar="DIR", help="where to write (default: out)")
    parser.add_argument("--seed", type=int, default=0, help="seed of random values and programs (default 0)")
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
    parser.add_argument("--json", action="store_true", help="print the certificate's JSON")


def run(arguments: argparse.Namespace) -> int:
    """Certify; the exit status is 0 only for a conformant device, 2 for one that does not exist."""
    from oarlock_conformance.case import LEVELS, Options
    from oarlock_conformance.certify import Request, certify
    from oarlock_conformance.progress import Progress
    from oarlock_conformance.report import write_report

    if arguments.deadline <= 0 or arguments.jobs < 0:
        raise ConfigError("--deadline is a number of seconds above 0, --jobs a number of processes")
    levels = tuple(level for level in LEVELS if not arguments.level or level in arguments.level)
    options = Options(arguments.quick, arguments.seed, arguments.deadline)
    jobs = arguments.jobs or min(2, os.cpu_count() or 1)
    request = Request(arguments.device, levels, arguments.only, jobs, options, arguments.allow_unavailable)
    try:
        certification = certify(request, Progress())
    except DeviceNotFoundError:
        raise
    except DeviceError as error:
        print(f"oarlock: {error}; not conformant", file=sys.stderr)
        return 1
    try:
        written = write_report(certification, arguments.report)
    except OSError as error:
        raise ConfigError(f"--report {arguments.report}: cannot write there: {error.strerror}") from error
    if arguments.json:
        print(json.dumps(certification.to_json(), indent=1))
    else:
        print("\n".join(_lines(certification, written[-1])))
    return 0 if certification.conformant else 1


def _lines(certification: Certification, page: Path) -> list[str]:
    """Parts with their counts, then failures, then the verdict."""
    lines = []
    for part in certification.parts:
        count = certification.count(part)
        words = [f"{number:,} {state}" for state, number in count.items() if number or state == "passed"]
        lines.append(f"  {part:<10} {'   '.join(words)}")
    problems = certification.problems
    for case, outcome in problems[:_SHOWN]:
        lines.append(f"    {case.id}   {outcome.kind}: {outcome.reason}")
        lines.append(f"        contract:  {case.contract}")
        lines.append(f"        reproduce: {certification.reproduce(case)}")
    if len(problems) > _SHOWN:
        lines.append(f"    and {len(problems) - _SHOWN:,} more: see the certificate")
    verdict = "conformant" if certification.conformant else f"not conformant: {'; '.join(certification.reasons)}"
    return [*lines, f"  certificate: {page}   {verdict}"]
