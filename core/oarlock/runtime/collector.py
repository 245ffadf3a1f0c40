"""Fewer garbage collections while a program is compiled: what a compiler makes lives, or dies all at once."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["rare_collections"]

OBJECTS = 200_000
"""New objects between two collections, which then look at these alone; Python's own number is 700 to 2,000."""

_lock = threading.Lock()
_inside = 0
_usual: tuple[int, int, int] = (0, 0, 0)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect only young garbage, and seldom, for the whole process; as before when the last of these blocks ends.

    A collection of all that modules and the user hold takes as long as lowering a kernel, and a small program would
    meet several. Nothing is changed where collections are off, or rarer already.
    """
    global _inside, _usual
    with _lock:
        if _inside == 0:
            _usual = gc.get_threshold()
            if 0 < _usual[0] < OBJECTS:
                gc.set_threshold(OBJECTS, 1000, 1000)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                gc.set_threshold(*_usual)
