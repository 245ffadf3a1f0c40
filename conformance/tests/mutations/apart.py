"""Runs each task in a forked process of its own: one that dies or hangs ends as such, and the others go on."""

from __future__ import annotations

import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, Literal, TypeAlias

__all__ = ["Ended", "Say", "Task", "apart"]

Say: TypeAlias = Callable[[Any], None]
"""Tells the parent what is done next; the last note is kept for when the process does not end well."""
Task: TypeAlias = Callable[[Say], Any]
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a task ended. ``by``: "value" when it gave ``value``, else "error" (it raised), "crash" (its process died) or
    "time-out" (it said nothing for too long), with ``reason``; ``note``: the last that it said, None for nothing."""

    by: Literal["value", "error", "crash", "time-out"]
    value: Any
    note: Any
    reason: str
    seconds: float


@dataclass(slots=True)
class _Running:
    """A process, the end of the pipe that it writes to, and when it was last heard."""

    number: int
    process: ForkProcess
    pipe: Connection
    start: float
    heard: float
    note: Any = None

    def ended(self, by: Literal["value", "error", "crash", "time-out"], value: Any, reason: str) -> Ended:
        return Ended(by, value, self.note, reason, round(time.perf_counter() - self.start, 2))


def apart(tasks: Sequence[Task], jobs: int, deadline_s: float) -> Iterator[tuple[int, Ended]]:
    """The number of each task with how it ended, in the order that they end.

    At most ``jobs`` run at once; one that says nothing for ``deadline_s`` seconds is killed. Processes that are left
    when the iterator is closed are killed.
    """
    waiting = list(enumerate(tasks))[::-1]
    running: list[_Running] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_started(*waiting.pop()))
            first = min(each.heard for each in running) + deadline_s - time.perf_counter()
            ready = wait([x for each in running for x in (each.pipe, each.process.sentinel)], max(first, 0.0))
            for each in list(running):
                heard = each.pipe in ready or each.process.sentinel in ready
                ended = _heard(each) if heard else _silent(each, deadline_s)
                if ended is not None:
                    running.remove(each)
                    _close(each)
                    yield each.number, ended
    finally:
        for each in running:
            _close(each)


def _started(number: int, task: Task) -> _Running:
    ours, theirs = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_child, args=(task, theirs), daemon=True)
    process.start()
    theirs.close()  # with the child its end is closed, and no later child inherits it
    now = time.perf_counter()
    return _Running(number, process, ours, now, now)


def _child(task: Task, pipe: Connection) -> None:
    try:
        value = task(lambda note: pipe.send(("note", note)))
    except Exception:
        pipe.send(("error", traceback.format_exc()))
    else:
        pipe.send(("value", value))


def _heard(each: _Running) -> Ended | None:
    """Everything that is in the pipe; None when the process goes on."""
    alive = each.process.is_alive()  # asked first: what a dead process wrote is then all in the pipe
    while each.pipe.poll():
        try:
            kind, content = each.pipe.recv()
        except EOFError:
            each.process.join(1.0)
            alive = False
            break
        each.heard = time.perf_counter()
        if kind == "value":
            return each.ended("value", content, "")
        if kind == "error":
            return each.ended("error", None, content)
        each.note = content
    return None if alive else each.ended("crash", None, _death(each.process.exitcode))


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process died of {signal.Signals(-code).name}"
    return f"its process ended with {code} and said nothing"


def _silent(each: _Running, deadline_s: float) -> Ended | None:
    if time.perf_counter() - each.heard < deadline_s:
        return None
    return each.ended("time-out", None, f"its process said nothing for {deadline_s:g} s")


def _close(each: _Running) -> None:
    each.process.kill()
    each.process.join()
    each.pipe.close()
