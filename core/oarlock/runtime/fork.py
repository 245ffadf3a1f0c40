"""What a forked child must not do: use devices, or drivers that its parent has loaded."""

from __future__ import annotations

import os

from oarlock.errors import ForkedProcessError
from oarlock.registry import loading, report
from oarlock.runtime import watchdog

__all__ = ["check_adapter", "in_child", "touch"]

_touched: set[str] = set()
_inherited: set[str] = set()
_in_child = False


def touch(adapter: str) -> None:
    """Note that this process has loaded the driver of ``adapter``."""
    _touched.add(adapter)


def check_adapter(adapter: str) -> None:
    """Raise ForkedProcessError when the parent had loaded this driver before it forked."""
    if adapter in _inherited:
        raise ForkedProcessError(
            f'{adapter} was in use before fork() and cannot be opened in the child; start workers with the "spawn" '
            f"method, or open devices only in the child"
        )


def in_child() -> bool:
    """Whether this process was forked after this module was imported."""
    return _in_child


def _after_fork() -> None:
    global _in_child
    _in_child = True
    _inherited.update(_touched)
    _touched.clear()
    watchdog.after_fork()
    loading.after_fork()
    report.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
