"""The CPU adapter: LLVM code from llvmlite, run by every core of the host."""

from __future__ import annotations

from oarlock.plugin import hookimpl
from oarlock_cpu.device import CpuAdapter

__all__ = ["CpuAdapter", "oarlock_adapter"]


@hookimpl
def oarlock_adapter() -> CpuAdapter:
    """The adapter's one object."""
    return CpuAdapter()
