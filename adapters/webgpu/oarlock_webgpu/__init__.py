"""The WebGPU adapter: every GPU under Vulkan, Metal or DX12 that wgpu finds. wgpu loads when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from oarlock.errors import DeviceError
from oarlock.hal import Adapter, DeviceInfo, Driver
from oarlock.plugin import hookimpl
from oarlock.target import Target

__all__ = ["WebGPUAdapter", "oarlock_adapter"]


class WebGPUAdapter(Adapter):
    """All WebGPU devices of this machine."""

    version = "0.1.0"

    def devices(self) -> list[DeviceInfo]:
        module = _device_module()
        return [module.info_of(found) for found in module.all_adapters()]

    def open(self, index: int) -> Driver:
        driver: Driver = _device_module().open_driver(index)
        return driver

    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        return source.encode()  # wgpu and the driver compile in load, where there is a device


def _device_module() -> ModuleType:
    try:
        return import_module("oarlock_webgpu.device")
    except (ImportError, OSError) as error:
        raise DeviceError(f"wgpu cannot be loaded ({error}); pip install oarlock[webgpu]") from error


@hookimpl
def oarlock_adapter() -> WebGPUAdapter:
    """The adapter's one object."""
    return WebGPUAdapter()
