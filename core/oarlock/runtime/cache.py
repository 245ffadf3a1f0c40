"""Compiled kernels and what led to them on disk, for the processes of one user: a hit is whole and the user's own.

An entry is a file named by the SHA-256 of everything that its bytes depend on; it begins with the hash of its content.
Entries are written to a temporary file and renamed, so readers see whole files and writers cannot collide. A file or
folder that belongs to somebody else, or that others may write, is not read.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock.abi import Executable, KernelSignature
from oarlock.config import config
from oarlock.hal import CONTRACT
from oarlock.registry.versions import CORE_VERSION
from oarlock.runtime.checks import check_bytes

if TYPE_CHECKING:
    from oarlock.runtime.device import Device

__all__ = ["DiskCache", "cache_key", "cached_compile", "read_compiled"]

_MAGIC = b"oarlock executable 1\n"


def cache_key(device: Device, source: str, entries: Sequence[str]) -> str:
    """The name of an executable: a hash of target, source, entries, adapter, its compiler and driver, and the core."""
    adapter, target = device.adapter, device.target
    parts = [
        CORE_VERSION, list(CONTRACT), device.adapter_name, adapter.version, adapter.cache_key(target),
        target.fingerprint(), list(entries), source,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def cached_compile(device: Device, source: str, signatures: Sequence[KernelSignature]) -> Executable:
    """Compile for ``device``, or read what was compiled before. Raises CompileError."""
    entries = [signature.name for signature in signatures]
    disk = DiskCache(config.cache_dir / "executables") if config.cache else None
    key = cache_key(device, source, entries) if disk is not None else ""
    payload = disk.read(key) if disk is not None else None
    if payload is None:
        payload = check_bytes(device.adapter.compile(device.target, source, entries))
        if disk is not None:
            disk.write(key, payload)
    return Executable(device.target, payload, tuple(signatures), source)


def read_compiled(key: str) -> bytes | None:
    """What was compiled before, by its ``cache_key``; None where it is not kept."""
    return DiskCache(config.cache_dir / "executables").read(key) if config.cache else None


class DiskCache:
    """Byte strings by key in one folder. Reading never raises; writing warns once when the folder is unusable."""

    _warned = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, key: str) -> Path:
        """Where the entry of ``key`` lies."""
        return self._folder / key[:2] / key

    def read(self, key: str) -> bytes | None:
        """The payload, or None when there is none that can be trusted."""
        path = self.path(key)
        try:
            if not all(_private(os.stat(folder)) for folder in (self._folder, path.parent)):
                return None
            with open(path, "rb", opener=_open_regular) as file:
                if not _private(os.fstat(file.fileno())):
                    return None
                content = file.read()
        except OSError:
            return None
        start = len(_MAGIC) + 32
        payload = content[start:]
        if content[: len(_MAGIC)] != _MAGIC or content[len(_MAGIC) : start] != hashlib.sha256(payload).digest():
            return None
        return payload

    def write(self, key: str, payload: bytes) -> None:
        """Store ``payload``; another process may do the same at the same time."""
        path = self.path(key)
        temporary = ""
        try:
            for folder in (self._folder, path.parent):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)  # mode 0600
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(payload).digest() + payload)
            os.replace(temporary, path)
        except OSError as error:
            if temporary:
                Path(temporary).unlink(missing_ok=True)
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        if not DiskCache._warned:
            DiskCache._warned = True
            warnings.warn(
                f"compiled kernels are not cached: {error}; set OARLOCK_CACHE_DIR to a folder of your own, or "
                f"OARLOCK_CACHE=0",
                RuntimeWarning,
                stacklevel=4,
            )


def _open_regular(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _private(status: os.stat_result) -> bool:
    """Whether a file or folder is this user's and nobody else may write it."""
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return False
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022
