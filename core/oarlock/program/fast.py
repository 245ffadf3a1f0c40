"""The native way through recording, flushing and the call of a jitted function; where it declines, Python does it.

The native functions work on the objects of this package as they are: they do what ``tape.record``, ``Tape.flush``,
``Jitted._signature`` and ``synchronize`` do, or decline before they have changed anything (a call or a structure that
is new, operands that are no tensors, that are on another place or still pending elsewhere, a tape that is in use, a
device that is not given by a known name). ``+``, ``-`` and ``*`` of two tensors of one dtype record natively too, while
``ready.record`` is there: the type's slots try that before they call ``Tensor.__add__`` and the like.
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
    """The native functions, those that may be called."""

    __slots__ = ("flush", "record", "signature", "synchronize")

    def __init__(self) -> None:
        self.flush: Any = None
        self.record: Any = None
        self.signature: Any = None
        self.synchronize: Any = None


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
            "Number": calls.Number,
            "Place": backend.Place,
            "Ready": _Ready,
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
            "local": tape.local,
            "new_lock": tape.new_lock,
            "places": backend.places,
            "ready": ready,
        }
    )
    ready.flush, ready.record = _native.flush, _native.record
    ready.signature, ready.synchronize = _native.signature, _native.synchronize
