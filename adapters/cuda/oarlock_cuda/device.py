"""CUDA devices: what each one reports, and the driver that joins memory, streams, programs and graphs."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import pycuda.driver as cuda

from oarlock.errors import DeviceError, DeviceLostError, DeviceNotFoundError, DeviceTimeoutError
from oarlock.hal import DeviceInfo, Driver
from oarlock.target import Limits, Target
from oarlock_cuda import bare, compiler
from oarlock_cuda.graph import Graphs
from oarlock_cuda.operators import Operators, load_cublas
from oarlock_cuda.target import target_for

__all__ = ["CudaDriver", "device_count", "info_of", "open_driver", "target_of"]

_CLOSE_S = 5.0
_NO_DEVICE = "no CUDA-capable device"
_CAPABILITIES = frozenset({"address", "elapsed_time", "fill", "memory_info", "peer_copy", "pinned", "plans", "streams"})


class CudaDriver(Graphs, Operators, Driver):
    """One open device, in its primary context, which other libraries of the process share."""

    def close(self) -> None:
        """Let work in flight finish for a while; a device that hangs keeps all it has until the process ends."""
        try:
            self._settle()
            self.call("close", self._drop_all)
        except DeviceTimeoutError:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
            return
        except DeviceLostError:  # what pycuda's objects would give back went with the context
            pass
        bare.leave_context(self.context)

    def _settle(self) -> None:
        until = time.monotonic() + _CLOSE_S
        for handle, thing in list(self.live.items()):
            if isinstance(thing, cuda.Stream):
                self.synchronize(handle, until - time.monotonic())

    def _drop_all(self) -> None:
        self.drop_library()
        for address in list(self.pinned):
            self.unlock(address)
        for handle in [handle for handle in self.live if handle is not None]:
            self.free(handle)
        self.live.clear()


def device_count() -> int:
    """The number of devices; raises DeviceError where the driver is unusable or too old."""
    try:
        cuda.init()
        count = int(cuda.Device.count())
    except cuda.Error as error:
        if _NO_DEVICE in str(error):
            return 0
        raise DeviceError(f"NVIDIA's driver cannot be used ({error}): update or reinstall it") from error
    speaks, needed = cuda.get_driver_version() // 1000, int(compiler.version().partition(".")[0])
    if speaks < needed:
        raise DeviceError(
            f"NVIDIA's driver is too old: it runs CUDA {speaks}, and NVRTC {compiler.version()} compiles for CUDA "
            f"{needed}: update the driver, or install an older compiler: pip install nvidia-cuda-nvrtc-cu{speaks}"
        )
    return count


def open_driver(index: int) -> CudaDriver:
    """Open device ``index``; raises DeviceNotFoundError, or DeviceError where its context cannot be made."""
    count = device_count()
    if not 0 <= index < count:
        raise DeviceNotFoundError(f"no cuda:{index}; the driver lists {count} devices")
    device = cuda.Device(index)
    try:
        context = device.retain_primary_context()
    except cuda.Error as error:
        raise DeviceError(f"cuda:{index}: its context cannot be made: {error}") from error
    try:
        return CudaDriver(context, target_of(device))
    except DeviceError as error:
        bare.leave_context(context)
        hint = "CUDA may refuse a process in which a kernel failed: start another"
        raise DeviceError(f"cuda:{index} cannot be opened: {error}. {hint}") from error


def info_of(index: int) -> DeviceInfo:
    """Device ``index`` as the core sees it."""
    device, (library, note) = cuda.Device(index), load_cublas()
    return DeviceInfo(
        name=device.name(),
        vendor="NVIDIA",
        driver=f"CUDA driver {cuda.get_driver_version() // 1000}.{cuda.get_driver_version() % 1000 // 10}",
        memory=device.total_memory(),
        target=target_of(device),
        capabilities=_CAPABILITIES | ({"operators"} if library else set()),
        failure_scope="device",
        notes=("float16 and bfloat16 stored, computed as float32", note),
    )


def target_of(device: Any) -> Target:
    """What kernels for ``device`` may assume."""
    get, which = device.get_attribute, cuda.device_attribute
    return target_for(
        device.compute_capability(),
        Limits(
            max_block=(
                get(which.MAX_BLOCK_DIM_X),
                get(which.MAX_BLOCK_DIM_Y),
                get(which.MAX_BLOCK_DIM_Z),
            ),
            max_threads=get(which.MAX_THREADS_PER_BLOCK),
            max_grid=(get(which.MAX_GRID_DIM_X), get(which.MAX_GRID_DIM_Y), get(which.MAX_GRID_DIM_Z)),
            local_memory=get(which.MAX_SHARED_MEMORY_PER_BLOCK),
            max_allocation=device.total_memory(),
        ),
        get(which.WARP_SIZE),
    )
