"""``oarlock verify``: checks a certificate again, hashes and a sample of cases, and says what differs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock.errors import ConfigError

if TYPE_CHECKING:
    from oarlock_conformance.verify import Finding, Verification

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.epilog = (
        "exit status: 0 all is as the certificate says, 1 something differs, 2 wrong usage, 3 the device is not here"
    )
    parser.add_argument("certificate", metavar="FILE", type=Path, help="a certificate, as written by oarlock certify")
    parser.add_argument(
        "--sample", type=int, default=20, metavar="N", help="cases to run again (default 20; 0: only check hashes)"
    )
    parser.add_argument("--seed", type=int, help="which cases (default: others each time)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes at once (default 1)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Check; see the epilog for the exit status."""
    from oarlock_conformance.certificate import read_certificate
    from oarlock_conformance.verify import verify

    if arguments.sample < 0 or arguments.jobs < 1:
        raise ConfigError("--sample is a number of cases, --jobs a number of processes from 1 on")
    document = read_certificate(arguments.certificate)
    found = verify(document, arguments.sample, arguments.seed, arguments.jobs)
    if arguments.json:
        print(json.dumps(found.to_json(), indent=1))
    else:
        print("\n".join(_lines(found)))
    if found.absent:
        return 3
    return 0 if found.good else 1


def _lines(found: Verification) -> list[str]:
    lines = [_line(finding) for finding in found.findings]
    same = sum(finding.same for finding in found.cases)
    if found.cases:
        lines.append(f"  {same} of {len(found.cases)} cases that were run again give the same (--seed {found.seed})")
        lines += [f"    {finding.what}: {finding.text}" for finding in found.cases if not finding.same]
    if found.absent:
        lines.append(f"  no case was run: {found.absent}")
    return [*lines, "  all is as the certificate says" if found.good else "  NOT as the certificate says"]


def _line(finding: Finding) -> str:
    return f"  {finding.what:<12} {'same' if finding.same else f'DIFFERS: {finding.text}'}"
