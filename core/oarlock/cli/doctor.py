"""``oarlock doctor``: one line per adapter with all that decides whether it works, and its real cause where not."""

from __future__ import annotations

import argparse
import json
import sys
from difflib import get_close_matches

from oarlock.cli.devices import device_rows, table
from oarlock.hal import CONTRACT
from oarlock.registry import AdapterReport, adapter_names, adapter_report, adapter_reports
from oarlock.registry.versions import CORE_VERSION

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="an adapter (or a device of it); default: all")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the report; exit status 2 for a name that is not installed, else 0."""
    name = arguments.name.partition(":")[0] if arguments.name else None
    if name is not None and name not in adapter_names():
        near = get_close_matches(name, adapter_names(), 1)
        hint = f'; did you mean "{near[0]}"?' if near else "."
        installed = ", ".join(adapter_names()) or "none"
        print(f'oarlock doctor: no adapter "{name}" is installed{hint} Installed: {installed}', file=sys.stderr)
        return 2
    reports = adapter_reports() if name is None else (adapter_report(name),)
    if arguments.json:
        contract = ".".join(map(str, CONTRACT))
        content = {"oarlock": CORE_VERSION, "contract": contract, "adapters": [item.to_json() for item in reports]}
        print(json.dumps(content, indent=2))
        return 0
    print(f"  Oarlock {CORE_VERSION}, contract {'.'.join(map(str, CONTRACT))}")
    for line in table([_row(report) for report in reports]) or ["  no adapters are installed"]:
        print(line)
    if name is not None:
        _print_details(reports[0])
    return 0


def _row(report: AdapterReport) -> tuple[str, ...]:
    """(name, distribution and version, contract, driver, devices, state with cause)."""
    count = len(report.devices)
    devices = f"{count} device{'' if count == 1 else 's'}"
    state = f"{report.state}: {report.cause}" if report.cause else report.state
    return (
        report.name,
        f"{report.distribution} {report.version}",
        f"contract {report.contract or '?'}",
        report.driver or "no driver",
        devices,
        state,
    )


def _print_details(report: AdapterReport) -> None:
    """For one adapter: its devices, or the traceback behind its failure."""
    if report.devices:
        print("\n".join(table(device_rows(report))))
    if report.failure is not None and report.failure.details:
        print("\n" + report.failure.details.rstrip())
