"""Passes over programs, and the manager that runs them in order, verifies, prints, counts and times."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from oarlock.errors import IRError
from oarlock.ir.context import Context
from oarlock.ir.operations import Operation
from oarlock.ir.printer import Printer
from oarlock.ir.verify import verify

__all__ = ["Pass", "PassManager", "PassResult"]


class Pass(ABC):
    """A change of a program that keeps its meaning. ``level`` is the least optimisation level that includes it."""

    name: ClassVar[str]
    level: ClassVar[int] = 0

    @abstractmethod
    def run(self, op: Operation, context: Context) -> Mapping[str, int]:
        """Change ``op`` (a module or function) in place; what was done, counted by name."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """What one run of a pass did: counts by name, operations before and after, seconds; the program, if asked for."""

    name: str
    statistics: Mapping[str, int]
    operations_before: int
    operations_after: int
    seconds: float
    text: str | None = None

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in self.statistics.items() if count)
        size = f"{self.operations_before} -> {self.operations_after} operations"
        return f"{self.name:<12} {self.seconds * 1e3:8.2f} ms  {size}{'; ' + counts if counts else ''}"


@dataclass
class PassManager:
    """Runs ``passes`` whose level is at most ``level``, in order.

    ``verify_each`` verifies before the first and after each pass. ``print_after`` names the passes (or is True: all)
    whose outcome is kept as text in their result. ``results`` are those of the last run.
    """

    context: Context
    passes: Sequence[Pass]
    verify_each: bool = True
    print_after: bool | Collection[str] = False
    level: int = 2
    results: list[PassResult] = field(default_factory=list)

    def run(self, op: Operation) -> None:
        """Run the passes on ``op`` in place; an error names the pass that raised or broke the program."""
        self.results = []
        if self.verify_each:
            verify(op)
        for item in self.passes:
            if item.level <= self.level:
                self.results.append(self._run(item, op))

    def _run(self, item: Pass, op: Operation) -> PassResult:
        before = _count(op)
        start = time.perf_counter()
        try:
            statistics = item.run(op, self.context)
        except Exception as error:  # a pass may come from a plugin: whatever it raises, say which one it was
            raise IRError(f"pass {item.name} failed: {type(error).__name__}: {error}") from error
        seconds = time.perf_counter() - start
        if self.verify_each:
            try:
                verify(op)
            except IRError as error:
                raise IRError(f"pass {item.name} broke the program: {error}") from error
        shown = self.print_after is True or (self.print_after is not False and item.name in self.print_after)
        text = Printer().print(op) if shown else None
        return PassResult(item.name, dict(statistics), before, _count(op), seconds, text)

    def report(self) -> str:
        """One line per pass that ran: time, size of the program, counts."""
        return "\n".join(map(str, self.results))


def _count(op: Operation) -> int:
    return sum(1 for _ in op.walk())
