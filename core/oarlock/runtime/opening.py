"""The devices that this process has open: one per name, opened on first need, closed at exit in reverse order."""

from __future__ import annotations

import atexit
import functools
import os
import threading

from oarlock.config import config
from oarlock.errors import DeviceTimeoutError
from oarlock.registry import adapter_reports, get_adapter
from oarlock.registry.checks import check_devices
from oarlock.registry.choose import check_installed, device_missing, parse_device, stack_missing
from oarlock.registry.failures import failure_of
from oarlock.runtime import fork
from oarlock.runtime.device import Device

__all__ = ["device_names", "open_device", "open_devices"]

_guard = threading.Lock()
_opening: dict[str, threading.RLock] = {}
_open: dict[str, Device] = {}


def open_device(name: str) -> Device:
    """The device ``name``, written ``"adapter"`` or ``"adapter:index"`` (index 0 when it is left out).

    The same object while it is open; a new one after it was closed or lost. Raises DeviceNotFoundError that lists
    what there is and why the rest is missing, PluginError when the adapter cannot be loaded, ForkedProcessError in a
    child of a process that has used the adapter, DeviceTimeoutError when another thread hangs opening it.
    """
    device = _open.get(name) or _open.get(_written(name)[0])
    if device is not None and device.gate.refusal is None:
        return device
    full, adapter_name, index = _written(name)
    with _guard:
        lock = _opening.setdefault(full, threading.RLock())
    if not lock.acquire(timeout=config.watchdog_s if config.watchdog_s > 0 else -1):
        raise DeviceTimeoutError(f"{full}: another thread has been opening it for more than {config.watchdog_s:g} s")
    try:
        device = _open.get(full)
        if device is None or not device.usable:
            fork.check_adapter(adapter_name)
            if device is not None:
                device.close()
            device = _new(full, adapter_name, index)
            _open.pop(full, None)
            _open[full] = device
        return device
    finally:
        lock.release()


@functools.lru_cache(maxsize=256)
def _written(name: str) -> tuple[str, str, int]:
    """A device's name in full, the adapter's name, and the index."""
    adapter_name, index = parse_device(name)
    return f"{adapter_name}:{index}", adapter_name, index


def open_devices() -> tuple[Device, ...]:
    """The devices that are open and usable, in the order in which they were opened."""
    return tuple([device for device in _open.values() if device.gate.refusal is None])


def device_names() -> tuple[str, ...]:
    """The devices that can be opened, of every adapter that works; asked in child processes, once per process."""
    return tuple(device.id for report in adapter_reports() for device in report.devices)


def _new(full: str, adapter_name: str, index: int) -> Device:
    check_installed(full, adapter_name)
    adapter = get_adapter(adapter_name)
    fork.touch(adapter_name)
    try:
        infos = check_devices(adapter_name, adapter.devices())
    except Exception as error:
        raise stack_missing(full, adapter_name, failure_of(error)) from error
    if index >= len(infos):
        raise device_missing(adapter_name, index, len(infos))
    return Device(full, adapter_name, index, adapter, infos[index])


def _close_all() -> None:
    for device in reversed(list(_open.values())):
        try:
            device.close()
        except Exception:  # exit is silent: there is nobody left to tell
            continue
    _open.clear()


def _after_fork() -> None:
    global _guard
    _guard = threading.Lock()
    _opening.clear()
    _open.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
