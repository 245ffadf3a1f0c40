"""``oarlock devices``: the devices of every installed adapter, and why an adapter has none."""

from __future__ import annotations

import argparse
import json

from oarlock.registry import AdapterReport, adapter_reports
from oarlock.registry.report import DeviceReport

__all__ = ["add_arguments", "device_rows", "run", "table"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the list; the exit status is 0 whatever is missing."""
    reports = adapter_reports()
    if arguments.json:
        print(json.dumps({"adapters": [report.to_json() for report in reports]}, indent=2))
        return 0
    if not reports:
        print("  no adapters are installed")
        return 0
    rows = [row for report in reports for row in device_rows(report)]
    print("\n".join(table(rows)))
    return 0


def device_rows(report: AdapterReport) -> list[tuple[str, ...]]:
    """Rows of the table: (name, what it is, memory, state, remarks), or (name, why there is none)."""
    if not report.devices:
        return [(report.name, f"{report.state}: {report.cause}" if report.cause else report.state)]
    return [_row(device) for device in report.devices]


def table(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows as aligned lines. A row's last cell is not padded and does not widen its column."""
    widths: dict[int, int] = {}
    for row in rows:
        for column, cell in enumerate(row[:-1]):
            widths[column] = max(widths.get(column, 0), len(cell))
    lines = []
    for row in rows:
        cells = [cell.ljust(widths[column]) for column, cell in enumerate(row[:-1])]
        lines.append(("  " + "   ".join([*cells, row[-1]])).rstrip())
    return lines


def _row(device: DeviceReport) -> tuple[str, ...]:
    notes = f"({', '.join(device.notes)})" if device.notes else ""
    what = ", ".join(part for part in (device.name, device.vendor) if part)
    return (device.id, what, _memory(device.memory), "ready", notes)


def _memory(nbytes: int) -> str:
    """Bytes for people."""
    return f"{nbytes / 2**30:.0f} GiB" if nbytes >= 2**30 else f"{nbytes / 2**20:.0f} MiB"
