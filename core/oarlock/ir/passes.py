"""Passes over programs, and the manager that runs them in order, verifies, prints, counts and times."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from oarlock.errors import IRError
from oarlock.ir.context import Context
from oarlock.ir.operations import Operation
from oarlock.ir.printer import Printer
from oarlock.ir.reproducer import write_reproducer
from oarlock.ir.verify import verify
from oarlock.target import Target

__all__ = ["Pass", "PassManager", "PassResult", "arranged"]


class Pass(ABC):
    """A change of a program that keeps its meaning.

    ``level`` is the least optimisation level that includes it: 0 what every program needs, 1 what is cheap, 2 what is
    usual, 3 what is asked for. It runs after the passes called ``after`` and before those called ``before``, where they
    are in the list; those called ``requires`` must have run earlier.
    """

    name: str
    level: ClassVar[int] = 0
    after: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[tuple[str, ...]] = ()
    requires: ClassVar[tuple[str, ...]] = ()

    def applies(self, target: Target) -> bool:
        """Whether programs for ``target`` take this pass."""
        return True

    @abstractmethod
    def run(self, op: Operation, context: Context) -> Mapping[str, int]:
        """Change ``op`` (a module or function) in place; what was done, counted by name."""


def arranged(passes: Sequence[Pass], more: Iterable[Pass]) -> list[Pass]:
    """``passes`` in their order, with each of ``more`` at the first place that it allows; without a wish, at the end.

    Raises IRError where a pass wishes to come after one that it wishes to come before.
    """
    result = list(passes)
    waiting = list(more)
    while waiting:
        names = {item.name for item in waiting}
        ready = [item for item in waiting if not names & {*item.after, *item.requires, *item.before} - {item.name}]
        for item in ready or waiting:
            result.insert(_place(item, result), item)
        waiting = [item for item in waiting if ready and item not in ready]
    return result


def _place(item: Pass, passes: Sequence[Pass]) -> int:
    low = max((i + 1 for i, other in enumerate(passes) if other.name in (*item.after, *item.requires)), default=0)
    high = min((i for i, other in enumerate(passes) if other.name in item.before), default=len(passes))
    if low > high:
        order = ", ".join(other.name for other in passes)
        raise IRError(
            f"pass {item.name} wants to come after {', '.join((*item.after, *item.requires))} and before "
            f"{', '.join(item.before)}; the order is {order}"
        )
    return low if item.after or item.requires else high


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
    """Runs those of ``passes`` whose level is at most ``level`` and that apply to ``target`` (None: to any), in order.

    ``verify_each`` verifies before the first and after each pass. ``print_after`` names the passes (or is True: all)
    whose outcome is kept as text in their result. ``results`` are those of the last run. Where a pass fails, a file in
    ``reproducers`` gets the program as it was before that pass (see ``ir.reproducer``).
    """

    context: Context
    passes: Sequence[Pass]
    verify_each: bool = True
    print_after: bool | Collection[str] = False
    level: int = 2
    target: Target | None = None
    reproducers: Path | None = None
    results: list[PassResult] = field(default_factory=list)

    def chosen(self) -> list[Pass]:
        """The passes that run; raises IRError for one that requires another one that does not run before it."""
        fitting = [item for item in self.passes if item.level <= self.level]
        if self.target is not None:
            fitting = [item for item in fitting if item.applies(self.target)]
        done: dict[str, None] = {}
        for item in fitting:
            missing = [name for name in item.requires if name not in done]
            if missing:
                there = ", ".join(done) or "none"
                raise IRError(f"pass {item.name} requires {', '.join(missing)} to have run before; there is {there}")
            done[item.name] = None
        return fitting

    def run(self, op: Operation) -> None:
        """Run the passes on ``op`` in place; an error names the pass that raised or broke the program."""
        original = op.clone() if self.reproducers is not None else None
        self._run_all(op, original)

    def run_on_copy(self, op: Operation) -> Operation:
        """A copy of ``op`` after the passes; as ``run``, but reproducers cost nothing."""
        copy = op.clone()
        self._run_all(copy, op)
        return copy

    def _run_all(self, op: Operation, original: Operation | None) -> None:
        self.results = []
        passes = self.chosen()
        if self.verify_each:
            verify(op)
        for position, item in enumerate(passes):
            try:
                self.results.append(self._run(item, op))
            except IRError as error:
                if self.reproducers is None or original is None:
                    raise
                place = self._reproduce(original, passes[: position + 1], str(error), self.reproducers)
                raise IRError(f"{error}\n  {place}") from error.__cause__

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

    def _reproduce(self, original: Operation, passes: Sequence[Pass], message: str, folder: Path) -> str:
        """Write what failed, from just before the last of ``passes`` where that fails again; where it lies."""
        try:
            program, needed = original.clone(), passes
            for item in passes[:-1]:
                item.run(program, self.context)
            try:
                self._run(passes[-1], program.clone())
            except IRError as again:
                if str(again) == message:
                    needed = passes[-1:]
            program = program if needed is not passes else original
            path = write_reproducer(folder, program, self.context, [item.name for item in needed], message)
        except Exception as error:  # the failure that is told matters more
            return f"it could not be written to {folder}: {type(error).__name__}: {error}"
        return f"to see it again: oarlock inspect {path}"

    def report(self) -> str:
        """One line per pass that ran: time, size of the program, counts."""
        return "\n".join(map(str, self.results))


def _count(op: Operation) -> int:
    return sum(1 for _ in op.walk())
