"""Spans of host time: progress on standard error while they run, and a Chrome trace of them afterwards."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

    def write(self, path: Path, about: dict[str, str]) -> None:
        """Write a trace that chrome://tracing and Perfetto read; times are in microseconds."""
        threads = {thread: number for number, thread in enumerate(dict.fromkeys(s.thread for s in self.spans))}
        events: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "oarlock run"}},
            *(
                {
                    "name": span.name,
                    "cat": "host",
                    "ph": "X",
                    "ts": span.start_s * 1e6,
                    "dur": span.seconds * 1e6,
                    "pid": 1,
                    "tid": threads[span.thread],
                }
                for span in self.spans
            ),
        ]
        path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}, indent=1))
