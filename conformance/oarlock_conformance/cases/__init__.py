"""The cases, by level: each level's module plans its cases for a device, and runs some of them in a worker process."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from oarlock.runtime import Device
from oarlock_conformance.case import Case, Level, Options, Outcome

__all__ = ["LevelModule", "Report", "level"]


class Report(Protocol):
    """Where a level's module tells what it does. Cases that were started and have no outcome are in flight: a crash
    or a hang is theirs."""

    def start(self, *cases: str) -> None: ...
    def end(self, outcome: Outcome) -> None: ...
    def beat(self) -> None: ...


class LevelModule(Protocol):
    """What each level's module offers."""

    plan: Callable[[Device, Options], Sequence[Case]]
    """Every case of the level, those that do not apply to the device included."""
    run: Callable[[str, Sequence[str], Options, bool, Report], None]
    """Run cases, by id, on the device of this name; True: one at a time, so that a crash has one culprit."""


def level(name: Level) -> LevelModule:
    """The module of a level."""
    module: Any = importlib.import_module(f"oarlock_conformance.cases.{name}")
    return cast(LevelModule, module)
