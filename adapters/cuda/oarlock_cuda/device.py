"""CUDA devices: what each one reports, and the driver that joins memory, streams, programs and graphs."""

from __future__ import annotations

from typing import Any

import pycuda.driver as cuda

from oarlock import dtypes
from oarlock.codegen.render.cuda import FLAGS
from oarlock.errors import DeviceError, DeviceNotFoundError
from oarlock.hal import DeviceInfo, Driver, Handle
from oarlock.target import Limits, Target
from oarlock_cuda.graph import Graphs, Plan

__all__ = ["CudaDriver", "device_count", "info_of", "open_driver", "target_of"]

_RESERVED = 4096 - 1024
"""Bytes of a kernel's 4,096 for parameters that scalars may take; buffers have the rest, 8 bytes each."""


class CudaDriver(Graphs, Driver):
    """One open device, in its primary context, which other libraries of the process share."""

    def free(self, handle: Handle) -> None:
        if isinstance(handle, Plan):
            self.free_plan(handle)
        else:
            super().free(handle)

    def close(self) -> None:
        with self.current():
            self.close_streams()
            self.free_all()
        self.context.detach()


def device_count() -> int:
    """The number of devices; raises DeviceError where the driver does not answer."""
    try:
        cuda.init()
        return int(cuda.Device.count())
    except cuda.Error as error:
        if "NO_DEVICE" in str(error) or "no CUDA-capable" in str(error):
            return 0
        raise DeviceError(f"NVIDIA's driver cannot be used ({error}): is it as new as pycuda's toolkit?") from error


def open_driver(index: int) -> CudaDriver:
    """Open device ``index``; raises DeviceNotFoundError, or DeviceError where its context cannot be made."""
    count = device_count()
    if not 0 <= index < count:
        raise DeviceNotFoundError(f"no cuda:{index}; the driver lists {count} devices")
    device = cuda.Device(index)
    try:
        return CudaDriver(device, device.retain_primary_context(), target_of(device))
    except cuda.Error as error:
        raise DeviceError(f"cuda:{index}: its context cannot be made: {error}") from error


def info_of(index: int) -> DeviceInfo:
    """Device ``index`` as the core sees it."""
    device = cuda.Device(index)
    return DeviceInfo(
        name=device.name(),
        vendor="NVIDIA",
        driver=f"CUDA driver {cuda.get_driver_version() // 1000}.{cuda.get_driver_version() % 1000 // 10}",
        memory=device.total_memory(),
        target=target_of(device),
        capabilities=frozenset(
            {"address", "elapsed_time", "fill", "memory_info", "peer_copy", "pinned", "plans", "streams"}
        ),
        failure_scope="device",
        notes=("float16 and bfloat16 stored, computed as float32",),
    )


def target_of(device: Any) -> Target:
    """What kernels for ``device`` may assume."""
    major, minor = device.compute_capability()
    get, which = device.get_attribute, cuda.device_attribute
    return Target(
        language="cuda",
        arch=f"sm_{major}{minor}",
        flags=FLAGS,
        compute=frozenset(dtype.name for dtype in dtypes.ALL) - {"float16", "bfloat16"},
        storage=(("bool", "uint8"), ("float16", "uint16"), ("bfloat16", "uint16")),
        abilities=frozenset({"local_memory", "atomics", "fma"}),
        limits=Limits(
            max_block=(
                get(which.MAX_BLOCK_DIM_X),
                get(which.MAX_BLOCK_DIM_Y),
                get(which.MAX_BLOCK_DIM_Z),
            ),
            max_threads=get(which.MAX_THREADS_PER_BLOCK),
            max_grid=(get(which.MAX_GRID_DIM_X), get(which.MAX_GRID_DIM_Y), get(which.MAX_GRID_DIM_Z)),
            local_memory=get(which.MAX_SHARED_MEMORY_PER_BLOCK),
            vector_width=4,
            max_buffers=(4096 - _RESERVED) // 8,
            max_scalar_bytes=_RESERVED,
            max_allocation=device.total_memory(),
        ),
    )
