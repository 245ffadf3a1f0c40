"""Tells at intervals that a process is alive, while it does something long that tells nothing itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["beating"]

_BEAT_S = 5.0


class Heart(Protocol):
    """What can tell it."""

    def beat(self) -> None: ...


@contextmanager
def beating(report: Heart) -> Iterator[None]:
    """Beat inside the block, whatever it does."""
    done = threading.Event()

    def beat() -> None:
        while not done.wait(_BEAT_S):
            report.beat()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
