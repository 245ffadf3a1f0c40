"""Choosing a device by name: ``"acme_npu"`` or ``"acme_npu:1"``, and saying what there is when that one is missing."""

from __future__ import annotations

from difflib import get_close_matches

from oarlock.errors import DeviceNotFoundError
from oarlock.registry.failures import Failure
from oarlock.registry.loading import names, owners
from oarlock.registry.report import adapter_reports

__all__ = ["adapter_missing", "check_installed", "device_missing", "parse_device", "stack_missing"]


def parse_device(name: str) -> tuple[str, int]:
    """Adapter name and index; the index is 0 when it is left out. Raises DeviceNotFoundError for anything else."""
    adapter, colon, index = name.partition(":")
    if not adapter or (colon and not (index.isascii() and index.isdigit())):
        raise DeviceNotFoundError(f'no device "{name}": a device is written "name" or "name:index", such as "cpu:0"')
    return adapter, int(index or 0)


def check_installed(name: str, adapter: str) -> None:
    """Raise DeviceNotFoundError for device ``name`` unless its adapter is installed."""
    if not owners("oarlock.adapters", adapter):
        raise adapter_missing(name, adapter)


def adapter_missing(name: str, adapter: str) -> DeviceNotFoundError:
    """The error for device ``name`` of an adapter that is not installed: what there is, and why the rest is missing."""
    near = get_close_matches(adapter, names(), 1)
    hint = f'; did you mean "{near[0]}"?' if near else "."
    return DeviceNotFoundError(f'no device "{name}": no adapter "{adapter}" is installed{hint} {_inventory()}')


def device_missing(adapter: str, index: int, count: int) -> DeviceNotFoundError:
    """The error for index ``index`` of an adapter that has ``count`` devices."""
    there = ", ".join(f"{adapter}:{position}" for position in range(count))
    has = f"{count} device{'' if count == 1 else 's'}" + (f" ({there})" if count else "")
    return DeviceNotFoundError(f'no device "{adapter}:{index}": {adapter} has {has}. See: oarlock doctor {adapter}')


def stack_missing(name: str, adapter: str, failure: Failure) -> DeviceNotFoundError:
    """The error for device ``name`` of an adapter that could not list its devices."""
    return DeviceNotFoundError(
        f'no device "{name}": {adapter} is not available: {failure}. See: oarlock doctor {adapter}'
    )


def _inventory() -> str:
    """What there is, and why the rest is missing."""
    reports = adapter_reports()
    there = ", ".join(device.id for report in reports for device in report.devices)
    missing = "; ".join(f"{report.name} ({report.state}: {report.cause})" for report in reports if not report.devices)
    text = f"There are: {there or 'no devices'}."
    return f"{text} Missing: {missing}. See: oarlock doctor" if missing else f"{text} See: oarlock devices"
