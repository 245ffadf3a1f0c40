"""The gate before a release: certify all devices, compare with the last release, render the matrix.

    python ci/release_gate.py cpu opencl:0 sim --last releases/1.2 --report certs

Everything runs, whatever fails on the way; the exit status is 0 only where every device is conformant and none became
worse. What follows ``--`` goes to ``oarlock certify``. The report folder has the certificates, ``matrix.html``, and
``history.jsonl``: the last release's measured figures, and a line for each certificate of this one. It is the next
release's ``--last``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_HISTORY = "history.jsonl"
_CERTIFY = {0: "conformant", 1: "NOT CONFORMANT", 2: "NOT CERTIFIED", 3: "NOT HERE"}

_COMPARE = {0: "no regression", 1: "WORSE", 2: "NOT COMPARED"}


@dataclass(frozen=True, slots=True)
class Step:
    """What came of one step; ``passed`` is False where it keeps the release back."""

    name: str
    text: str
    passed: bool


def main(words: Sequence[str]) -> int:
    """Run the gate; the exit status is 0 where the release may go."""
    arguments = _arguments(words)
    report: Path = arguments.report
    report.mkdir(parents=True, exist_ok=True)
    before = arguments.last / _HISTORY if arguments.last else None
    if before is not None and before.is_file() and not (report / _HISTORY).exists():
        shutil.copy(before, report)
    steps = []
    for device in arguments.devices:
        status = oarlock("certify", device, "--report", str(report), *_baseline(device, arguments), *arguments.options)
        steps.append(Step(f"certify {device}", _CERTIFY.get(status, f"exit status {status}"), status == 0))
    if arguments.last:
        status = oarlock("compare", str(arguments.last), str(report))
        steps.append(Step("compare", _COMPARE.get(status, f"exit status {status}"), status == 0))
    status = oarlock("matrix", str(report), "--output", str(report / "matrix.html"))
    steps.append(Step("matrix", "rendered" if status == 0 else "NOT RENDERED", status == 0))
    for step in steps:
        print(f"  {step.name:<20} {step.text}")
    held = sum(not step.passed for step in steps)
    print(f"  the release is held back by {held} of {len(steps)} steps" if held else "  the release may go")
    return 1 if held else 0


def oarlock(*words: str) -> int:
    """Run the command ``oarlock`` with this interpreter; returns its exit status."""
    print("$ oarlock", *words, flush=True)
    code = "import sys; from oarlock.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run([sys.executable, "-c", code, *words]).returncode


def _baseline(device: str, arguments: argparse.Namespace) -> list[str]:
    """The option that compares speed with the device's last certificate, where there is one."""
    name = (device if ":" in device else f"{device}:0").replace(":", "-") + ".json"
    last = arguments.last / name if arguments.last else None
    return ["--baseline", str(last)] if last is not None and last.is_file() else []


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(prog="release_gate.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("devices", nargs="+", metavar="DEVICE")
    parser.add_argument("--last", type=Path, metavar="DIR", help="the report folder of the last release")
    parser.add_argument("--report", type=Path, default=Path("certs"), metavar="DIR", help="where to write (certs)")
    arguments = parser.parse_args(words[:at])
    if arguments.last and not arguments.last.is_dir():
        parser.error(f"--last {arguments.last}: no such folder; leave it out for a first release")
    arguments.options = list(words[at + 1 :])
    return arguments


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
