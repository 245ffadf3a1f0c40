"""What the numbers were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

__all__ = ["describe", "pin", "revision"]

ROOT = Path(__file__).resolve().parents[2]


def pin(count: int) -> None:
    """Keep this process and its children on the first ``count`` of the processors it may use."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def describe() -> dict[str, str]:
    """Processor, memory, system and the state of huge pages."""
    cpu = _first("/proc/cpuinfo", "model name")
    memory = _first("/proc/meminfo", "MemTotal")
    return {
        "processor": f"{cpu or platform.processor()}, family {_first('/proc/cpuinfo', 'cpu family')}, model "
        f"{_first('/proc/cpuinfo', 'model')}",
        "vector instructions": _vectors(),
        "processors used": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": f"{int(memory.split()[0]) / 2**20:.1f} GiB" if memory else "unknown",
        "system": f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}",
        "transparent huge pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "Python": platform.python_version(),
    }


def revision() -> str:
    """The commit, and whether the tree differs from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD") or "unknown"
    return commit + (" with changes" if git("status", "--porcelain", "--untracked-files=no") else "")


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return "unknown"


def _first(path: str, key: str) -> str:
    for line in _read(path).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def _vectors() -> str:
    flags = _first("/proc/cpuinfo", "flags").split()
    known = [flag for flag in ("avx2", "fma", "avx512f", "avx512_bf16", "amx_tile") if flag in flags]
    return " ".join(known) or "unknown"
