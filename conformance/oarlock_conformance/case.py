"""What a certificate is made of: cases, each with the sentence it checks, and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = [
    "ALONE", "LEVELS", "STATES", "Case", "Failure", "Level", "Options", "Outcome", "State", "Unavailable",
]  # fmt: skip

Level: TypeAlias = str
LEVELS: tuple[Level, ...] = ("runtime", "operators", "programs", "collectives", "models", "performance")
"""The levels there are, in their order: each is the module ``oarlock_conformance.cases.<level>``."""

ALONE: frozenset[Level] = frozenset({"models", "performance"})
"""Levels that measure time: their groups run one after the other, when nothing else of the certification runs."""

State: TypeAlias = Literal["passed", "waived", "failed", "error", "unsupported", "unavailable"]
STATES: tuple[State, ...] = ("passed", "waived", "failed", "error", "unsupported", "unavailable")
"""passed; waived: a failure that a valid waiver of the adapter covers; failed: a wrong value or a wrong exception;
error: a crash, a hang, a leak or stray output; unsupported: the device does not declare what the case needs (counted,
never a pass); unavailable: the device, or the case's model, cannot be had."""


class Failure(Exception):
    """A case found something wrong; the text says what was done, what was expected and what came."""


class Unavailable(Exception):
    """A case cannot be run here and now, for a reason that is not the device's."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a certification is run: its setting, its seed, and the seconds that a case may be silent for.

    ``examples``: random programs in each case of them (0: as the setting says). ``repro``: the folder that programs
    which reproduce a failure are written to (empty: none).
    """

    quick: bool = False
    seed: int = 0
    deadline_s: float = 180.0
    examples: int = 0
    repro: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Case:
    """One check. ``id`` is unique in a certificate; cases of a ``group`` share a process.

    ``contract`` is the sentence that it checks. ``unsupported`` says why it does not apply to the device; empty for a
    case that is required of it.
    """

    id: str
    level: Level
    group: str
    contract: str
    unsupported: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case. ``kind`` tells how it went wrong: "value", "exception", "crash", "time-out", "leak",
    "output", "exit", "fallback", "slower", "missing"; empty where it did not. ``details`` holds what was found out:
    ``ulp``, ``figures`` (what was measured, see ``figures.py``)."""

    case: str
    state: State
    seconds: float = 0.0
    kind: str = ""
    reason: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "details": dict(self.details)}
