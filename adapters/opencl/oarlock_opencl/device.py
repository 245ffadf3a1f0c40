"""OpenCL devices: what each one reports, and the driver that joins memory, streams and programs."""

from __future__ import annotations

from typing import Any

import pyopencl as cl

from oarlock import dtypes
from oarlock.codegen.render.opencl import FLAGS
from oarlock.errors import CompileError, DeviceError, DeviceNotFoundError
from oarlock.hal import DeviceInfo, Driver
from oarlock.target import Limits, Target
from oarlock_opencl.memory import Memory
from oarlock_opencl.program import Programs, build

__all__ = ["OpenCLDriver", "all_devices", "info_of", "open_driver"]

_STORAGE = (("bool", "uint8"), ("float16", "uint16"), ("bfloat16", "uint16"))
_CORRECT_DIVIDE = "-cl-fp32-correctly-rounded-divide-sqrt"  # an option that not every device accepts
_PROBE = "__kernel void probe(__global int *x) { x[0] = 1; }"
_INSTALL = "install an OpenCL driver: the vendor's, or for the CPU: pip install oarlock[opencl]"
_GENERIC = "PoCL calls a processor that its LLVM does not know 'generic' and fails every build: use a newer PoCL"


class OpenCLDriver(Memory, Programs, Driver):
    """One open device, with a context of its own."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.target = target_of(device)
        self.context = cl.Context([device])
        super().__init__()

    def close(self) -> None:
        self.close_streams()
        self.close_memory()


def open_driver(index: int) -> OpenCLDriver:
    """Open device ``index`` and let it build a kernel; raises DeviceError where it cannot."""
    found = all_devices()
    if not 0 <= index < len(found):
        names = ", ".join(f"opencl:{i} ({device.name})" for i, device in enumerate(found)) or "none"
        raise DeviceNotFoundError(f"no device opencl:{index}; there are: {names}. {_INSTALL}")
    if found[index].version.startswith(("OpenCL 1.0", "OpenCL 1.1")):
        raise DeviceError(f"{found[index].name} has {found[index].version}; 1.2 is needed: use a newer driver")
    driver = OpenCLDriver(found[index])
    try:
        build(driver.context, driver.target.flags, _PROBE)
    except CompileError as error:
        text = (
            f"{found[index].name} ({driver.target.arch}) fails to build even an empty kernel. {_GENERIC}. {error.log}"
        )
        raise DeviceError(text) from error
    return driver


def all_devices() -> list[Any]:
    """Every device of every platform: platforms sorted by name and version, devices in their platform's order."""
    try:
        platforms = sorted(cl.get_platforms(), key=lambda platform: (platform.name, platform.version))
        return [device for platform in platforms for device in platform.get_devices()]
    except cl.Error as error:
        raise DeviceError(f"OpenCL finds no usable platform ({error}); {_INSTALL}") from error


def info_of(device: Any) -> DeviceInfo:
    """``device`` as the core sees it."""
    target = target_of(device)
    notes = {
        "float16 and bfloat16 stored, computed as float32": True,
        "float32 division and square root not correctly rounded (2.5 and 3 ulp)": _CORRECT_DIVIDE not in target.flags,
        "float32 subnormals flushed to zero": bool(target.flush_to_zero),
        "no float64": not target.computes(dtypes.float64),
    }
    return DeviceInfo(
        name=device.name,
        vendor=device.vendor,
        driver=f"{device.platform.version}, driver {device.driver_version}",
        memory=device.global_mem_size,
        target=target,
        capabilities=frozenset({"streams", "elapsed_time", "fill"}),
        is_accelerator=not device.type & cl.device_type.CPU,
        notes=tuple(note for note, applies in notes.items() if applies),
    )


def target_of(device: Any) -> Target:
    """What kernels for ``device`` may assume."""
    reported = device.single_fp_config
    rounds_correctly = reported & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
    missing = {"float16", "bfloat16"} if device.double_fp_config else {"float16", "bfloat16", "float64"}
    fma = {"fma"} if reported & cl.device_fp_config.FMA else set()
    return Target(
        language="opencl",
        arch=f"{device.platform.name} / {device.name} / {device.driver_version}",
        flags=tuple(flag for flag in FLAGS if flag != _CORRECT_DIVIDE or rounds_correctly),
        compute=frozenset(dtype.name for dtype in dtypes.ALL) - missing,
        storage=_STORAGE,
        flush_to_zero=frozenset() if reported & cl.device_fp_config.DENORM else frozenset({"float32"}),
        abilities=frozenset({"local_memory", "atomics"} | fma),
        limits=_limits_of(device),
    )


def _limits_of(device: Any) -> Limits:
    """Arguments share one budget, of which buffers may take half; a global size counts work-items in a size_t."""
    pointer = device.address_bits // 8
    max_buffers = min(64, device.max_parameter_size // 2 // pointer)
    x, y, z = (int(size) for size in device.max_work_item_sizes[:3])
    items = 2**device.address_bits - 1
    return Limits(
        max_block=(x, y, z),
        max_threads=device.max_work_group_size,
        max_grid=(min(2**31 - 1, items // x), min(2**31 - 1, items // y), min(2**31 - 1, items // z)),
        local_memory=device.local_mem_size,
        vector_width=max(1, device.native_vector_width_float),
        max_buffers=max_buffers,
        max_scalar_bytes=device.max_parameter_size - max_buffers * pointer,
        max_allocation=device.max_mem_alloc_size,
        max_binding=device.max_mem_alloc_size,
    )
