"""OpenCL devices: what each one reports, and the driver that joins memory, streams and programs."""

from __future__ import annotations

from typing import Any

import pyopencl as cl

from oarlock import dtypes
from oarlock.codegen.render.opencl import FLAGS
from oarlock.errors import CompileError, DeviceError, DeviceNotFoundError
from oarlock.hal import DeviceInfo, Driver
from oarlock.target import Limits, Target
from oarlock_opencl.plan import Plans
from oarlock_opencl.program import build

_CORRECT_DIVIDE = "-cl-fp32-correctly-rounded-divide-sqrt"  # an option that not every device accepts
_INSTALL = "install an OpenCL driver: the vendor's, or for the CPU: pip install oarlock[opencl]"
_GENERIC = "PoCL calls a processor that its LLVM does not know 'generic' and fails every build: use a newer PoCL"


class OpenCLDriver(Plans, Driver):
    """One open device, with a context of its own."""

    def close(self) -> None:
        self.close_streams()
        for buffer in list(self.sizes):
            self.free(buffer)


def open_driver(index: int) -> OpenCLDriver:
    """Open device ``index`` and let it build a kernel; raises DeviceError where it cannot."""
    found = all_devices()
    if not 0 <= index < len(found):
        raise DeviceNotFoundError(f"no opencl:{index}; there are {', '.join(each.name for each in found) or 'none'}")
    driver = OpenCLDriver(found[index], target_of(found[index]))
    try:
        build(driver.context, driver.target.flags, "__kernel void probe(__global int *x) { x[0] = 1; }")
    except CompileError as error:
        raise DeviceError(f"{driver.target.arch} fails to build an empty kernel. {_GENERIC}. {error.log}") from error
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
    divides = _CORRECT_DIVIDE in target.flags
    rough = () if divides else ("float32 division and square root not correctly rounded (2.5 and 3 ulp)",)
    return DeviceInfo(
        name=device.name,
        vendor=device.vendor,
        driver=f"{device.platform.version}, driver {device.driver_version}",
        memory=device.global_mem_size,
        target=target,
        capabilities=frozenset({"streams", "elapsed_time", "fill", "plans"}),
        is_accelerator=not device.type & cl.device_type.CPU,
        notes=("float16 and bfloat16 stored, computed as float32", *rough),
    )


def target_of(device: Any) -> Target:
    """What kernels for ``device`` may assume."""
    reported, config = device.single_fp_config, cl.device_fp_config
    missing = {"float16", "bfloat16"} if device.double_fp_config else {"float16", "bfloat16", "float64"}
    return Target(
        language="opencl",
        arch=f"{device.platform.name} / {device.name} / {device.driver_version}",
        flags=tuple(f for f in FLAGS if f != _CORRECT_DIVIDE or reported & config.CORRECTLY_ROUNDED_DIVIDE_SQRT),
        compute=frozenset(dtype.name for dtype in dtypes.ALL) - missing,
        storage=(("bool", "uint8"), ("float16", "uint16"), ("bfloat16", "uint16")),
        flush_to_zero=frozenset() if reported & config.DENORM else frozenset({"float32"}),
        abilities=frozenset({"local_memory", "atomics"} | ({"fma"} if reported & config.FMA else set())),
        limits=_limits_of(device),
    )


def is_processor(device: Any) -> bool:
    """Whether it is the host's processor and nothing else: there a block is a function with vectors, not threads."""
    return int(device.type) & ~int(cl.device_type.DEFAULT) == int(cl.device_type.CPU)


def _limits_of(device: Any) -> Limits:
    """Arguments share one budget, of which buffers may take half; a global size counts work-items in a size_t."""
    max_buffers = min(64, device.max_parameter_size // 2 // (device.address_bits // 8))
    threads = 1 if is_processor(device) else int(device.max_work_group_size)
    x, y, z = (min(threads, int(size)) for size in device.max_work_item_sizes[:3])
    blocks = min(2**31 - 1, (2**device.address_bits - 1) // max(x, y, z))
    return Limits(
        max_block=(x, y, z),
        max_threads=threads,
        max_grid=(blocks, blocks, blocks),
        local_memory=device.local_mem_size,
        vector_width=max(1, device.native_vector_width_float),
        max_buffers=max_buffers,
        max_scalar_bytes=device.max_parameter_size - max_buffers * device.address_bits // 8,
        max_allocation=device.max_mem_alloc_size,
    )
