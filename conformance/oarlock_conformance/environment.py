"""What a certificate says about where it was made: device, target, versions, hashes of adapter and suite."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from oarlock.hal import CONTRACT
from oarlock.registry.loading import outcome_of, owners
from oarlock.registry.versions import CORE_VERSION
from oarlock.runtime import Device

__all__ = [
    "about_adapter", "about_device", "about_host", "adapter_folder", "driver_hash", "file_hashes", "package_hash",
    "suite_hash",
]  # fmt: skip

_SHORT = 16
"""Hexadecimal digits of a file's hash that are kept, to name the files that differ."""

_PACKAGES = ("numpy", "ml_dtypes", "pluggy", "onnx")
"""Packages whose version is noted where they are installed, besides what the adapter's distribution requires."""


def about_device(device: Device) -> dict[str, Any]:
    """The device as it describes itself, and its adapter with a hash of its files."""
    info, adapter = device.info, device.adapter
    claims = owners("oarlock.adapters", device.adapter_name)
    module = (claims[0].point.module if claims else type(adapter).__module__).partition(".")[0]
    described = {
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
    }
    return {
        **described,
        "device_hash": hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest(),
        "driver_hash": driver_hash(device),
        "adapter": {
            "name": device.adapter_name,
            "version": adapter.version,
            "contract": list(adapter.contract),
            "distribution": " and ".join(entry.owner for entry in claims),
            "module": module,
            "hash": package_hash(module),
            "files": file_hashes(module),
        },
    }


def driver_hash(device: Device) -> str:
    """A SHA-256 of what tells one driver from another: its description, and the versions that compiled code needs."""
    words = f"{device.info.driver}\0{device.adapter.cache_key(device.target)}"
    return hashlib.sha256(words.encode()).hexdigest()


def adapter_folder(name: str) -> Path | None:
    """The folder of the package that provides the adapter ``name``; None where it is a single module."""
    folder = outcome_of("oarlock.adapters", name).folder
    return folder if folder is not None and (folder / "__init__.py").is_file() else None


def about_host(adapter: str = "") -> dict[str, Any]:
    """Versions of everything that may change a result, the adapter's requirements among them; the suite's hashes."""
    return {
        "oarlock": CORE_VERSION,
        "contract": list(CONTRACT),
        "core_hash": package_hash("oarlock"),
        "suite_hash": suite_hash(),
        "suite_files": file_hashes("oarlock_conformance"),
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "packages": _versions(adapter),
    }


def suite_hash() -> str:
    """A hash of the suite's files."""
    return package_hash("oarlock_conformance")


def package_hash(name: str) -> str:
    """A SHA-256 of the files of an installed package, names included; empty where it has no files."""
    files = _files(name)
    if not files:
        return ""
    digest = hashlib.sha256()
    for path, content in files.items():
        digest.update(path.encode() + b"\0")
        digest.update(bytes.fromhex(content))
    return digest.hexdigest()


def file_hashes(name: str) -> dict[str, str]:
    """The beginning of the SHA-256 of each file of an installed package, by path."""
    return {path: content[:_SHORT] for path, content in _files(name).items()}


@cache
def _files(name: str) -> dict[str, str]:
    """The SHA-256 of each file of a package, sorted by path; compiled modules too, byte code not."""
    spec = importlib.util.find_spec(name.partition(".")[0])
    if spec is None or spec.origin is None:
        return {}
    origin = Path(spec.origin)
    if origin.name != "__init__.py":
        paths = [origin]
    else:
        paths = sorted(path for path in origin.parent.rglob("*") if path.is_file() and _counts(path))
    return {path.relative_to(origin.parent).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def _counts(path: Path) -> bool:
    return "__pycache__" not in path.parts and path.suffix != ".pyc"


def about_adapter(name: str) -> dict[str, Any]:
    """What is known of an adapter without loading it."""
    claims = owners("oarlock.adapters", name)
    return {
        "name": name,
        "version": " and ".join(entry.version for entry in claims),
        "distribution": " and ".join(entry.owner for entry in claims),
        "module": " and ".join(entry.point.module for entry in claims),
    }


def _versions(adapter: str) -> Mapping[str, str]:
    found = {}
    for name in dict.fromkeys((*_PACKAGES, *_required(adapter))):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _required(adapter: str) -> list[str]:
    """The packages that the distribution of an adapter requires, its extras' too."""
    names: set[str] = set()
    for entry in owners("oarlock.adapters", adapter):
        for line in requires(entry.distribution) or ():
            found = re.match(r"[A-Za-z0-9._-]+", line)
            if found:
                names.add(found.group())
    return sorted(names)


def _processor() -> str:
    """The processor's name, where the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
