"""WebGPU devices: what wgpu finds, what WebGPU leaves open and is measured, and the driver that joins the parts."""

from __future__ import annotations

import logging
import os
import struct
from contextlib import suppress
from functools import cache
from typing import Any

import wgpu
from wgpu.backends.wgpu_native import lib_version_info
from wgpu.backends.wgpu_native.extras import set_instance_extras

from oarlock import dtypes
from oarlock.errors import DeviceError, DeviceLostError, DeviceNotFoundError
from oarlock.hal import BufferArgument, DeviceInfo, Driver, KernelSignature
from oarlock.hal.host import host_memory_bytes
from oarlock.target import Limits, Target
from oarlock_webgpu.program import Programs

_BACKENDS = ("Vulkan", "Metal", "D3D12")
_ORDER = {"DiscreteGPU": 0, "IntegratedGPU": 1, "CPU": 3}
_INSTALL = "install the GPU's Vulkan driver, or for the CPU Debian's software one: apt-get install mesa-vulkan-drivers"
_STORAGE = (
    ("bool", "uint32"), ("int8", "int32"), ("int16", "int32"), ("uint8", "uint32"), ("uint16", "uint32"),
    ("float16", "float32"), ("bfloat16", "float32"),
)  # fmt: skip
_CLOSE_S = 5.0
_PROBE = """
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@compute @workgroup_size(1) fn probe() { x[4] = x[0] * x[1]; x[5] = x[2] * x[3]; }
"""


class WebGPUDriver(Programs, Driver):
    """One open device."""

    def close(self) -> None:
        with suppress(DeviceLostError):
            self.drain(_CLOSE_S)
        self.groups.clear()
        for buffer in (self.ring, *self.sizes):
            buffer.destroy()


def open_driver(index: int) -> WebGPUDriver:
    """Open adapter ``index`` of ``all_adapters`` with all that it grants."""
    found = all_adapters()
    if not 0 <= index < len(found):
        names = ", ".join(each.info["device"] for each in found)
        raise DeviceNotFoundError(f"no device webgpu:{index}; there are {len(found)}, from webgpu:0 on: {names}")
    info = info_of(found[index])
    return WebGPUDriver(found[index].request_device_sync(), 0 if info.is_accelerator else info.memory)


@cache
def all_adapters() -> tuple[Any, ...]:
    """What wgpu finds under Vulkan, Metal or DX12: discrete GPUs first, software last; its own order otherwise."""
    logging.getLogger("wgpu").addHandler(logging.NullHandler())  # else it prints errors that are raised anyway
    os.putenv("NODEVICE_SELECT", "1")  # Mesa's device chooser looks for a display and prints that there is none
    with suppress(RuntimeError):  # raised where this process uses wgpu already
        set_instance_extras(backends=["Vulkan", "Metal", "DX12"])  # OpenGL shows the same devices again
    found = [each for each in wgpu.gpu.enumerate_adapters_sync() if each.info["backend_type"] in _BACKENDS]
    if not found:
        raise DeviceError(f"wgpu finds no device under Vulkan, Metal or DX12; {_INSTALL}")
    return tuple(sorted(found, key=lambda each: _ORDER.get(each.info["adapter_type"], 2)))


@cache
def info_of(adapter: Any) -> DeviceInfo:
    """``adapter`` as the core sees it."""
    info = adapter.info
    version = ".".join(map(str, lib_version_info))
    parts = (f"wgpu-native {version}", *(info[key] for key in ("backend_type", "device", "description") if info[key]))
    software = info["adapter_type"] == "CPU"
    notes = ["float16 and bfloat16 stored and computed as float32"]
    if not software:
        notes.append("WebGPU does not tell how much memory there is: the largest buffer is shown")
    return DeviceInfo(
        name=f"{info['device']} ({info['backend_type']})",
        vendor=info["vendor"] or f"PCI vendor {info['vendor_id']:#06x}",
        driver=", ".join(parts),
        memory=host_memory_bytes()[1] if software else adapter.limits["max-buffer-size"],
        target=target_of(adapter, " / ".join(parts)),
        is_accelerator=not software,
        notes=tuple(notes),
    )


def target_of(adapter: Any, arch: str) -> Target:
    """What kernels for ``adapter`` may assume: WebGPU's limits as granted, and what a kernel shows of subnormals."""
    limits = adapter.limits
    x, y, z = (limits[f"max-compute-workgroup-size-{axis}"] for axis in "xyz")
    return Target(
        language="wgsl",
        arch=arch,
        storage=_STORAGE,
        flush_to_zero=frozenset({"float32", "bfloat16"} if _flushes(adapter) else ()),
        abilities=frozenset({"local_memory"}),
        limits=Limits(
            max_block=(x, y, z),
            max_threads=limits["max-compute-invocations-per-workgroup"],
            max_grid=(limits["max-compute-workgroups-per-dimension"],) * 3,
            local_memory=limits["max-compute-workgroup-storage-size"],
            vector_width=4,
            max_buffers=limits["max-storage-buffers-per-shader-stage"],
            max_scalar_bytes=min(1024, limits["max-uniform-buffer-binding-size"]),
            max_allocation=limits["max-buffer-size"] // 4 * 4,
            max_binding=limits["max-storage-buffer-binding-size"] // 4 * 4,
            binding_alignment=limits["min-storage-buffer-offset-alignment"],
            copy_alignment=4,
            exclusive_binding=True,
        ),
    )


def _flushes(adapter: Any) -> bool:
    """Whether float32 subnormals become 0, as factors or as products: WebGPU allows both, and only a kernel tells."""
    driver = WebGPUDriver(adapter.request_device_sync())
    given, found = struct.pack("<6f", 2.0**-127, 2.0, 2.0**-126, 0.5, 0.0, 0.0), bytearray(24)
    argument = BufferArgument("x", dtypes.float32, dtypes.float32, "both")
    program = driver.load(_PROBE.encode(), [KernelSignature("probe", (argument,), (), 0)])
    memory = driver.allocate(len(given))
    driver.copy_in(None, memory, 0, memoryview(given))
    driver.launch(None, program, "probe", (1, 1, 1), (1, 1, 1), [(memory, 0, len(given))], b"")
    driver.copy_out(None, memoryview(found), memory, 0)
    driver.synchronize(None, 60.0)
    driver.close()
    return struct.unpack("<6f", found)[4:] != (2.0**-126, 2.0**-127)
