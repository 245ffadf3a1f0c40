"""The OpenCL adapter: every device of every platform that the ICD loader finds. pyopencl loads when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from oarlock.errors import DeviceError
from oarlock.hal import Adapter, DeviceInfo, Driver
from oarlock.plugin import hookimpl
from oarlock.target import Target

__all__ = ["OpenCLAdapter", "oarlock_adapter"]


class OpenCLAdapter(Adapter):
    """All OpenCL devices of this machine."""

    version = "0.1.0"

    def devices(self) -> list[DeviceInfo]:
        module = _device_module()
        return [module.info_of(device) for device in module.all_devices()]

    def open(self, index: int) -> Driver:
        return _device_module().open_driver(index)  # type: ignore[no-any-return]

    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        return source.encode()  # the device's own compiler runs in load, and keeps its own cache


def _device_module() -> ModuleType:
    try:
        return import_module("oarlock_opencl.device")
    except (ImportError, OSError) as error:
        raise DeviceError(f"pyopencl cannot be loaded ({error}); pip install oarlock[opencl]") from error


@hookimpl
def oarlock_adapter() -> OpenCLAdapter:
    """The adapter's one object."""
    return OpenCLAdapter()
