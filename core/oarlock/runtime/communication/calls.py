"""What a rank says of a call before any data moves, and how two ranks' calls are told apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

__all__ = ["Call", "difference"]

_FIELDS = (
    ("operation", "operation"),
    ("number", "order"),
    ("kind", "reduce kind"),
    ("dtype", "dtype"),
    ("count", "count"),
    ("root", "root"),
    ("phase", "phase"),
)
"""What is compared, the most telling first, and what an error calls it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one rank: ``number`` counts the calls of the same ranks among the group, from 1.

    ``count`` is elements of ``dtype`` that the rank passes; ``root`` the rank that data comes from, else -1. ``phase``
    numbers the steps in which a call exchanges data. ``refusal`` is set by a rank that cannot take part, and says why.
    """

    operation: str
    number: int
    dtype: str = ""
    count: int = 0
    kind: str = ""
    root: int = -1
    phase: int = 0
    refusal: str = ""

    def next_phase(self) -> Call:
        """The same call, one step on."""
        return replace(self, phase=self.phase + 1)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Call:
        return cls(**fields)

    def __str__(self) -> str:
        words = [f"{self.count} {self.dtype}"] if self.dtype else []
        words += [self.kind] if self.kind else []
        words += [f"from rank {self.root}"] if self.root >= 0 else []
        return f"{self.operation} number {self.number}" + (f" ({', '.join(words)})" if words else "")


def difference(left: Call, right: Call) -> str:
    """What two calls differ in, for an error; empty when they agree."""
    return next((word for name, word in _FIELDS if getattr(left, name) != getattr(right, name)), "")
