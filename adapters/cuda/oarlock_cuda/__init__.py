"""The CUDA adapter: NVIDIA devices through pycuda, kernels through NVRTC. Both load when they are used."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from oarlock.errors import DeviceError
from oarlock.hal import Adapter, DeviceInfo, Driver
from oarlock.plugin import hookimpl
from oarlock.target import Target
from oarlock_cuda import compiler

__all__ = ["CudaAdapter", "oarlock_adapter"]


class CudaAdapter(Adapter):
    """All CUDA devices of this machine."""

    version = "0.1.0"

    def devices(self) -> list[DeviceInfo]:
        module = _device_module()
        return [module.info_of(index) for index in range(module.device_count())]

    def open(self, index: int) -> Driver:
        driver: Driver = _device_module().open_driver(index)
        return driver

    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        return compiler.compile_cuda(source, target.arch, target.flags)[0]

    def cache_key(self, target: Target) -> str:
        return f"{self.version} nvrtc {compiler.version()}"


def _device_module() -> ModuleType:
    try:
        with warnings.catch_warnings(action="ignore"):  # the error says it
            return import_module("oarlock_cuda.device")
    except ImportError as error:
        text = str(error)
        if "libcuda" in text or "nvcuda" in text:
            raise DeviceError(f"NVIDIA's driver is missing ({text}): install it, version 525 or newer") from error
        if "undefined symbol: cu" in text:
            raise DeviceError(
                f"NVIDIA's driver is older than the CUDA that pycuda was built with ({text}): update the driver, or "
                "build pycuda with an older toolkit"
            ) from error
        raise DeviceError(f"pycuda cannot be loaded ({text}): pip install oarlock[cuda]") from error


@hookimpl
def oarlock_adapter() -> CudaAdapter:
    """The adapter's one object."""
    return CudaAdapter()
