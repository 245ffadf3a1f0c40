"""The native way through recording, flushing and the call of a jitted function; where it declines, Python does it.

The native functions work on the objects of this package as they are: they do what ``tape.record``, ``Tape.flush`` and
``Jitted._signature`` do, or decline with NotImplemented before they have changed anything (a call or a structure that
is new, operands that are no tensors, that are on another place or still pending elsewhere, a tape that is in use).
"""

from __future__ import annotations

import sys
from typing import Any

try:
    from oarlock import _native
except ImportError:
    _native = None  # type: ignore[assignment]

__all__ = ["ready", "start"]


class _Ready:
    """Whether the native functions may be called."""

    __slots__ = ("flush", "record", "signature")

    def __init__(self) -> None:
        self.flush: Any = None
        self.record: Any = None
        self.signature: Any = None


ready = _Ready()
"""The native functions; None where the module is not installed."""


def start(tensor: type) -> None:
    """Tell the native module which classes there are, once there is the class of what recording returns."""
    if _native is None:
        return
    from oarlock.config import Config, config
    from oarlock.program import backend, calls, plans, sites, tape

    _native.know_recording(
        {
            "Call": calls.Call,
            "Config": Config,
            "Counters": plans.Counters,
            "Kind": calls.Kind,
            "Number": tape.Number,
            "Place": backend.Place,
            "Runner": plans.Runner,
            "Tape": tape.Tape,
            "Tensor": tensor,
            "ThreadState": tape.ThreadState,
            "config": config,
            "counters": plans.counters,
            "getframe": sys._getframe,
            "internal": sites.internal,
            "is_internal": sites.is_internal,
            "limits": tape.limits,
            "new_lock": tape.new_lock,
        }
    )
    ready.flush, ready.record, ready.signature = _native.flush, _native.record, _native.signature
