"""What can be checked of the WebGPU adapter where there is no device, and no wgpu."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import oarlock_webgpu
from oarlock.errors import DeviceError
from oarlock_webgpu import WebGPUAdapter

PORTABLE = {
    "max-buffer-size": 268435456,
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-size-x": 256,
    "max-compute-workgroup-size-y": 256,
    "max-compute-workgroup-size-z": 64,
    "max-compute-workgroup-storage-size": 16384,
    "max-compute-workgroups-per-dimension": 65535,
    "max-storage-buffer-binding-size": 134217728,
    "max-storage-buffers-per-shader-stage": 8,
    "max-uniform-buffer-binding-size": 65536,
    "min-storage-buffer-offset-alignment": 256,
}
"""The limits that every WebGPU device grants."""


class Found:
    """What wgpu gives for a device."""

    limits = PORTABLE

    def __init__(self, kind: str, backend: str = "Vulkan") -> None:
        self.info = {
            "adapter_type": kind, "backend_type": backend, "device": f"{kind} {backend}", "description": "driver 7",
            "vendor": "", "vendor_id": 0x10DE,
        }  # fmt: skip


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``oarlock_webgpu.device`` with nothing found yet, and subnormals kept."""
    pytest.importorskip("wgpu", reason="UNAVAILABLE: wgpu is not installed (pip install oarlock[webgpu])")
    from oarlock_webgpu import device

    monkeypatch.setattr(device, "_flushes", lambda adapter: False)
    monkeypatch.setattr(device, "set_instance_extras", lambda backends: None)
    monkeypatch.setattr(device, "all_adapters", device.all_adapters.__wrapped__)
    monkeypatch.setattr(device, "info_of", device.info_of.__wrapped__)
    return device


def find(module: Any, monkeypatch: pytest.MonkeyPatch, *found: Found) -> None:
    monkeypatch.setattr(module.wgpu, "gpu", type("GPU", (), {"enumerate_adapters_sync": staticmethod(lambda: found)}))


def test_importing_and_making_the_adapter_loads_no_wgpu() -> None:
    script = "import sys, oarlock_webgpu as o; o.oarlock_adapter(); print('wgpu' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_without_wgpu_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "oarlock_webgpu.device", raising=False)
    monkeypatch.setitem(sys.modules, "wgpu", None)
    with pytest.raises(DeviceError, match=r"wgpu cannot be loaded .*pip install oarlock\[webgpu\]"):
        WebGPUAdapter().devices()


def test_without_a_driver_the_error_says_what_to_install(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    find(module, monkeypatch, Found("CPU", "OpenGL"))
    with pytest.raises(DeviceError, match=r"no device under Vulkan, Metal or DX12; .*mesa-vulkan-drivers"):
        WebGPUAdapter().devices()


def test_gpus_come_first_and_software_last(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Found("CPU"), Found("IntegratedGPU"), Found("CPU", "OpenGL"), Found("VirtualGPU"), Found("DiscreteGPU")]
    find(module, monkeypatch, *found)
    names = [info.name for info in WebGPUAdapter().devices()]
    assert [name.split()[0] for name in names] == ["DiscreteGPU", "IntegratedGPU", "VirtualGPU", "CPU"]


def test_the_portable_limits_become_a_target(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    find(module, monkeypatch, Found("DiscreteGPU"))
    (info,) = WebGPUAdapter().devices()
    limits = info.target.limits
    assert (limits.max_block, limits.max_threads, limits.max_grid) == ((256, 256, 64), 256, (65535,) * 3)
    assert (limits.max_buffers, limits.binding_alignment, limits.copy_alignment) == (8, 256, 4)
    assert (limits.max_binding, limits.max_allocation, limits.local_memory) == (128 << 20, 256 << 20, 16 << 10)
    assert limits.exclusive_binding and info.is_accelerator and info.memory == 256 << 20
    assert info.vendor == "PCI vendor 0x10de" and "driver 7" in info.driver and "driver 7" in info.target.arch


def test_flushed_subnormals_are_declared(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_flushes", lambda adapter: True)
    assert module.info_of(Found("DiscreteGPU")).target.flush_to_zero == {"float32", "bfloat16"}


def test_waivers_are_for_the_software_driver_alone() -> None:
    path = Path(oarlock_webgpu.__file__).with_name("waivers.toml")
    entries = tomllib.loads(path.read_text())["waiver"]
    assert entries and all(entry["drivers"] == ["*llvmpipe*"] for entry in entries)
