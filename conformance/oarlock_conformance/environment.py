"""What a certificate says about where it was made: device, target, versions, hashes of adapter and suite."""

from __future__ import annotations

import hashlib
import importlib
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from oarlock.hal import CONTRACT
from oarlock.registry.loading import owners
from oarlock.registry.versions import CORE_VERSION
from oarlock.runtime import Device

__all__ = ["about_device", "about_host", "package_hash", "suite_hash"]

_PACKAGES = ("numpy", "ml_dtypes", "pluggy", "llvmlite", "pyopencl", "pocl-binary-distribution", "onnx")
"""Packages whose version is noted where they are installed."""


def about_device(device: Device) -> dict[str, Any]:
    """The device as it describes itself, and its adapter with a hash of its files."""
    info, adapter = device.info, device.adapter
    module = type(adapter).__module__.partition(".")[0]
    claims = owners("oarlock.adapters", device.adapter_name)
    return {
        "id": device.name,
        "name": info.name,
        "vendor": info.vendor,
        "driver": info.driver,
        "memory": info.memory,
        "capabilities": sorted(info.capabilities),
        "failure_scope": info.failure_scope,
        "is_accelerator": info.is_accelerator,
        "notes": list(info.notes),
        "target": info.target.to_json(),
        "fingerprint": info.target.fingerprint(),
        "adapter": {
            "name": device.adapter_name,
            "version": adapter.version,
            "contract": list(adapter.contract),
            "distribution": " and ".join(entry.owner for entry in claims),
            "module": module,
            "hash": package_hash(module),
        },
    }


def about_host() -> dict[str, Any]:
    """Versions of everything that may change a result, and the hash of the suite."""
    return {
        "oarlock": CORE_VERSION,
        "contract": list(CONTRACT),
        "core_hash": package_hash("oarlock"),
        "suite_hash": suite_hash(),
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": _processor(),
        "packages": _versions(),
    }


def suite_hash() -> str:
    """A hash of the suite's files."""
    return package_hash("oarlock_conformance")


def package_hash(name: str) -> str:
    """A SHA-256 of the files of an installed package, names included; empty where it has no files."""
    module = importlib.import_module(name)
    if not module.__file__:
        return ""
    origin = Path(module.__file__)
    folder = origin.parent if origin.name == "__init__.py" else None
    files = [origin] if folder is None else sorted(path for path in folder.rglob("*") if _counts(path))
    digest = hashlib.sha256()
    for path in files:
        digest.update(str(path.relative_to(origin.parent)).encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _counts(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".pyc", ".so", ".pyd")


def _versions() -> Mapping[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    """The processor's name, where the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
