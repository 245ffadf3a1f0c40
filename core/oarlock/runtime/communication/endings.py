"""What becomes of groups that nobody closed: told to the other ranks when they are dropped, closed at exit."""

from __future__ import annotations

import atexit
import os
import queue
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oarlock.runtime.communication.group import ProcessGroup
    from oarlock.runtime.communication.hub import Meeting

__all__ = ["remember"]

_groups: weakref.WeakSet[ProcessGroup] = weakref.WeakSet()
_dropped: queue.SimpleQueue[tuple[Meeting, int]] = queue.SimpleQueue()
_guard = threading.Lock()
_teller: threading.Thread | None = None


def remember(group: ProcessGroup, meeting: Meeting) -> Callable[[], object]:
    """Close ``group`` at exit; if it is dropped before it was closed, tell the others that its rank is lost.

    Returns what to call when it is closed: then there is nothing to tell. A finalizer may run in any thread, even one
    that holds a lock of the meeting, so a thread of its own tells.
    """
    global _teller
    with _guard:
        _groups.add(group)
        if _teller is None or not _teller.is_alive():
            _teller = threading.Thread(target=_tell, name="oarlock-groups", daemon=True)
            _teller.start()
    finalizer = weakref.finalize(group, _dropped.put, (meeting, group.rank))
    finalizer.atexit = False
    return finalizer.detach


def _tell() -> None:
    while True:
        meeting, rank = _dropped.get()
        meeting.leave(rank, "dropped its group without closing it")
        del meeting


def _close_all() -> None:
    for group in list(_groups):
        group.close()


def _after_fork() -> None:
    global _guard, _teller
    _guard = threading.Lock()
    _teller = None
    _groups.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
