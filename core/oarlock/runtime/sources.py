"""The state of source files, for keys of what they compute: a version does not change while somebody works on them."""

from __future__ import annotations

import hashlib
import os
import sys
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from pathlib import Path

__all__ = ["COMPILER", "from_files", "state_of"]

_LOADERS = (SourceFileLoader, ExtensionFileLoader)


def state_of(folder: Path) -> str | None:
    """A hash of the names, sizes and times of change of all Python files in ``folder``; None where it has none.

    No file is read: it takes 5 us a file. The time of the last change of its status counts too, which copying and
    unpacking do not set back.
    """
    found: list[str] = []
    waiting = [os.fspath(folder)]
    start = len(waiting[0])
    try:
        while waiting:
            with os.scandir(waiting.pop()) as items:
                for item in items:
                    if item.name.endswith(".py"):
                        status = item.stat()
                        times = f"{status.st_mtime_ns} {status.st_ctime_ns}"
                        found.append(f"{item.path[start:]} {status.st_size} {times}")
                    elif "." not in item.name and item.name != "__pycache__" and item.is_dir():
                        waiting.append(item.path)
    except OSError:  # in an archive, or gone meanwhile
        return None
    return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest() if found else None


def from_files() -> bool:
    """Whether all of Oarlock's modules in this process are what their files say: no loader has changed one."""
    specs = [
        getattr(module, "__spec__", None) for name, module in list(sys.modules.items()) if name.startswith("oarlock.")
    ]
    return all(type(_loader(spec)) in _LOADERS for spec in specs)


def _loader(spec: object) -> object:
    """What loaded a module. In an editable install scikit-build wraps it, to build the native module anew."""
    loader = getattr(spec, "loader", None)
    return getattr(loader, "_skbuild_loader", loader)


COMPILER = state_of(Path(__file__).parents[1])
"""The state of Oarlock's own files as this process found them: taken when this is imported, as they are."""
