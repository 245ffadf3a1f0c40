"""Spans of host time: progress on standard error while they run, and a Chrome trace with the device's afterwards."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oarlock.runtime.profile import LaunchSpan

__all__ = ["Span", "Spans"]

_REPORT_S = 2.0
"""Seconds between lines of progress where standard error is no terminal."""


@dataclass(frozen=True, slots=True)
class Span:
    """A phase: its name, start and length in seconds since the recorder began, and the thread it ran in."""

    name: str
    start_s: float
    seconds: float
    thread: int


class Spans:
    """Records phases. With ``progress`` it tells the running phase on standard error."""

    def __init__(self, progress: bool) -> None:
        self.spans: list[Span] = []
        self._progress = progress
        self._terminal = progress and sys.stderr.isatty()
        self._began = time.perf_counter()
        self._reported = self._began
        self._drawn = False
        self.kernels = 0
        """Kernels compiled so far, or taken from the cache."""

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Record the block as a phase called ``name``."""
        start = time.perf_counter()
        if self._terminal:
            self._draw(f"  {name} ...")
        try:
            yield
        finally:
            end = time.perf_counter()
            self.spans.append(Span(name, start - self._began, end - start, threading.get_ident()))
            self.clear()

    def total(self, name: str) -> float:
        """Seconds spent in all phases called ``name``."""
        return sum(span.seconds for span in self.spans if span.name == name)

    def compiling(self, done: int, total: int) -> None:
        """Tell that ``done`` of ``total`` kernels are compiled."""
        self.kernels += total if done == total else 0
        now = time.perf_counter()
        if self._terminal:
            filled = 20 * done // max(total, 1)
            self._draw(f"  compiling {done} of {total} kernels  {'█' * filled}{'░' * (20 - filled)}")
        elif self._progress and now - self._reported >= _REPORT_S:
            self._reported = now
            self.say(f"  compiling {done} of {total} kernels")

    def say(self, text: str) -> None:
        """A line on standard error, where progress is wanted."""
        self.clear()
        if self._progress:
            print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Wipe the line of progress."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False

    def _draw(self, text: str) -> None:
        sys.stderr.write("\r\x1b[K" + text)
        sys.stderr.flush()
        self._drawn = True

    def write(self, path: Path, about: dict[str, str], launches: Sequence[LaunchSpan] = ()) -> None:
        """Write a trace that chrome://tracing and Perfetto read; times are in microseconds.

        The host is process 1, each device a process with a thread for each stream. An arrow leads from where a launch
        was submitted to where the device worked at it.
        """
        known = dict.fromkeys([*(span.thread for span in self.spans), *(span.thread for span in launches)])
        threads = {thread: number for number, thread in enumerate(known)}
        events = [_named("process_name", 1, 0, "oarlock run")]
        events += [
            _complete(span.name, "host", 1, threads[span.thread], span.start_s, span.seconds, {}) for span in self.spans
        ]
        devices = {name: 2 + number for number, name in enumerate(dict.fromkeys(span.device for span in launches))}
        events += [_named("process_name", pid, 0, name) for name, pid in devices.items()]
        for device, stream in dict.fromkeys((span.device, span.stream) for span in launches):
            events.append(_named("thread_name", devices[device], stream, f"stream {stream}"))
        for number, span in enumerate(launches):
            thread, pid = threads[span.thread], devices[span.device]
            submitted, start = span.submitted_s - self._began, span.start_s - self._began
            notes = {"kernel": span.kernel, "clock": span.measured, "launch": number}
            events.append(_complete(f"submit {span.kernel}", "submit", 1, thread, submitted, span.submission_s, notes))
            events.append(_complete(span.name, "kernel", pid, span.stream, start, span.seconds, notes))
            arrow = {"name": "launch", "cat": "launch", "id": number}
            events.append({**arrow, "ph": "s", "ts": submitted * 1e6, "pid": 1, "tid": thread})
            events.append({**arrow, "ph": "f", "bp": "e", "ts": start * 1e6, "pid": pid, "tid": span.stream})
        path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}, indent=1))


def _complete(
    name: str, category: str, pid: int, tid: int, start_s: float, seconds: float, notes: dict[str, Any]
) -> dict[str, Any]:
    """An event with a beginning and a length."""
    return {
        "name": name, "cat": category, "ph": "X", "ts": start_s * 1e6, "dur": seconds * 1e6, "pid": pid, "tid": tid,
        "args": notes,
    }  # fmt: skip


def _named(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
