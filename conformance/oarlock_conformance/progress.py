"""Live progress on standard error: a line per level, redrawn on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO

from oarlock_conformance.case import Case, Level, Outcome

__all__ = ["Progress"]

_EVERY_S = 15.0
"""Seconds between lines where standard error is no terminal."""


@dataclass(slots=True)
class _Line:
    total: int = 0
    states: Counter[str] = field(default_factory=Counter)
    told: bool = False

    @property
    def done(self) -> int:
        return sum(self.states.values())


class Progress:
    """Counts outcomes per level and shows them, with the first words of each failure as it comes."""

    def __init__(self, stream: TextIO | None = None, quiet: bool = False) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._quiet = quiet
        self._terminal = self._stream.isatty()
        self._lines: dict[Level, _Line] = {}
        self._of: dict[str, Level] = {}
        self._lock = threading.Lock()
        self._began = self._told = time.perf_counter()
        self._drawn = 0

    def expect(self, cases: Sequence[Case]) -> None:
        """Say what is to come."""
        for case in cases:
            self._of[case.id] = case.level
            self._lines.setdefault(case.level, _Line()).total += 1
        self._show()

    def add(self, outcome: Outcome) -> None:
        """Count one."""
        with self._lock:
            self._lines[self._of[outcome.case]].states[outcome.state] += 1
            if outcome.state in ("failed", "error") and not self._quiet:
                self._say(f"    {outcome.case}   {outcome.kind}: {(outcome.reason.splitlines() or [''])[0][:160]}")
        self._show()

    def note(self, text: str) -> None:
        """Say something besides."""
        if not self._quiet:
            with self._lock:
                self._say(f"  {text}")

    def end(self) -> None:
        """Leave the last state on the screen."""
        self._show(last=True)

    def _say(self, text: str) -> None:
        """A line above the counts."""
        if self._terminal and self._drawn:
            self._stream.write(f"\x1b[{self._drawn}A\r\x1b[J")
            self._drawn = 0
        print(text, file=self._stream, flush=True)

    def _show(self, last: bool = False) -> None:
        if self._quiet:
            return
        with self._lock:
            now = time.perf_counter()
            if self._terminal:
                if last or not self._drawn or now - self._told > 0.1:
                    self._told = now
                    self._draw()
                return
            due = now - self._told > _EVERY_S
            for level, line in self._lines.items():
                if (line.done == line.total and not line.told) or (due and 0 < line.done < line.total):
                    line.told = line.done == line.total
                    self._told = now
                    print(self._text(level, line), file=self._stream, flush=True)

    def _draw(self) -> None:
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        lines = [f"\r\x1b[K{self._text(level, line)}" for level, line in self._lines.items()]
        self._stream.write(up + "\n".join(lines) + "\n")
        self._stream.flush()
        self._drawn = len(lines)

    def _text(self, level: Level, line: _Line) -> str:
        words = [f"{count} {state}" for state, count in line.states.items() if count and state != "passed"]
        filled = 20 * line.done // max(1, line.total)
        bar = "█" * filled + "░" * (20 - filled)
        seconds = time.perf_counter() - self._began
        text = f"  {level:<11} {bar} {line.done:>6,}/{line.total:,}  {line.states['passed']:,} passed"
        return ", ".join([text, *words]) + f"  {seconds:.0f} s"
