"""The host as a device: what it is, and the driver that joins memory, stream, program and operators."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oarlock import dtypes
from oarlock.errors import DeviceNotFoundError
from oarlock.hal import Adapter, DeviceInfo, Driver
from oarlock.hal.host import host_memory_bytes, native_available
from oarlock.target import Limits, Target
from oarlock_cpu.memory import CpuMemory
from oarlock_cpu.operators import CpuOperators
from oarlock_cpu.program import CpuProgram, compile_llvm, llvm
from oarlock_cpu.stream import CpuStream

__all__ = ["CpuAdapter", "CpuDriver"]

_STORED = {"bool": "uint8", "float16": "uint16", "bfloat16": "uint16"}
_CAPABILITIES = frozenset({"address", "host_memory", "fill", "memory_info", "plans", "operators"})


class CpuDriver(CpuMemory, CpuStream, CpuProgram, CpuOperators, Driver):
    """The open host device. Every command has finished when its call returns."""

    def close(self) -> None:
        self.close_programs()
        self.close_memory()


class CpuAdapter(Adapter):
    """One device, ``cpu:0``: the host."""

    version = "0.1.0"

    def devices(self) -> list[DeviceInfo]:
        binding = llvm()
        return [
            DeviceInfo(
                name=_processor_name() or platform.processor() or binding.get_host_cpu_name(),
                vendor=platform.machine(),
                driver=_driver_version(binding),
                memory=host_memory_bytes()[1],
                target=host_target(binding),
                capabilities=_CAPABILITIES,
                is_accelerator=False,
                notes=(
                    "native executor" if native_available() else "executor in Python",
                    "float16 and bfloat16 stored, computed as float32",
                ),
            )
        ]

    def open(self, index: int) -> Driver:
        if index != 0:
            raise DeviceNotFoundError(f"no device cpu:{index}; the host is one device, cpu:0")
        return CpuDriver()

    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        return compile_llvm(target, source, entries)

    def cache_key(self, target: Target) -> str:
        return f"{self.version} {_driver_version(llvm())}"


def host_target(binding: Any) -> Target:
    """The host's Target: its processor's name and features, all dtypes but the two 16-bit floats computed."""
    features = binding.get_host_cpu_features()
    wide = ("prefer-vector-width=512",) if features.get("avx512f") else ()  # some processors' default is half of it
    neon = platform.machine() in ("aarch64", "arm64")
    width = 16 if features.get("avx512f") else 8 if features.get("avx2") else 4
    return Target(
        language="llvm",
        arch=binding.get_host_cpu_name(),
        flags=(features.flatten(), *wide),
        compute=frozenset(dtype.name for dtype in dtypes.ALL) - {"float16", "bfloat16"},
        storage=tuple(_STORED.items()),
        abilities=frozenset({"fma"}) if features.get("fma") or neon else frozenset(),
        limits=Limits(
            max_grid=(2**31 - 1,) * 3,
            local_memory=64 << 10,
            vector_width=width,
            max_scalar_bytes=4096,
            max_allocation=host_memory_bytes()[1],
        ),
    )


def _driver_version(binding: Any) -> str:
    return f"LLVM {'.'.join(map(str, binding.llvm_version_info))}"


def _processor_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
