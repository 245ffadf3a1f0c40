"""What a certificate is made of: cases, each with the sentence it checks, and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = ["LEVELS", "STATES", "Case", "Failure", "Level", "Options", "Outcome", "State", "Unavailable"]

Level: TypeAlias = Literal["runtime", "operators", "models"]
LEVELS: tuple[Level, ...] = ("runtime", "operators", "models")

State: TypeAlias = Literal["passed", "failed", "error", "unsupported", "unavailable"]
STATES: tuple[State, ...] = ("passed", "failed", "error", "unsupported", "unavailable")
"""passed; failed: a wrong value or a wrong exception; error: a crash, a hang, a leak or stray output; unsupported: the
device does not declare what the case needs (counted, never a pass); unavailable: the case's model cannot be had."""


class Failure(Exception):
    """A case found something wrong; the text says what was done, what was expected and what came."""


class Unavailable(Exception):
    """A case cannot be run here and now, for a reason that is not the device's."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a certification is run: its setting, its seed, and the seconds that a case may be silent for."""

    quick: bool = False
    seed: int = 0
    deadline_s: float = 180.0

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
    "output", "exit", "missing"; empty where it did not. ``details`` holds figures, such as ulp or milliseconds."""

    case: str
    state: State
    seconds: float = 0.0
    kind: str = ""
    reason: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "details": dict(self.details)}
