"""Schedules: the parameters that lowering takes from rules, unless measuring has shown better ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from oarlock.errors import ConfigError
from oarlock.ir import Operation

if TYPE_CHECKING:
    from oarlock.codegen.lower.subject import Subject

__all__ = ["RULES", "Choice", "Schedule", "put_schedule", "schedule_of"]

_WORDS = {"form": ("", "packed", "tiles", "row"), "stream": ("", "always", "never")}
_MOST = {
    "rows": 32, "vectors": 512, "cache_kib": 1 << 16, "blocks": 1 << 16, "lanes": 64, "partials": 16, "threads": 1024,
}  # fmt: skip
_POWERS = ("lanes", "partials")
"""What is combined by halves."""
_TILE = 64
"""Vectors of sums in a tile, at most: more than any target has registers."""
_ATTRIBUTE = "schedule"


@dataclass(frozen=True, slots=True)
class Schedule:
    """What one kernel does differently from the rules; ``""`` and 0 leave a parameter to them.

    Which of them mean something depends on the kernel; the others are ignored. None changes what is computed, but for
    the order in which a reduction forms its sums.
    """

    form: str = ""
    """Of a product or convolution: ``packed`` operands, ``tiles`` of the operands as they are, ``row`` by row of the
    matrix. With a form an adapter is not asked for its own kernel."""
    rows: int = 0
    """Rows of a tile; matrix rows at once (``row``); pieces of matrix units by rows."""
    vectors: int = 0
    """Vectors (or columns, where lanes lie along the sum) of a tile, of a block of ``row``; pieces by columns."""
    cache_kib: int = 0
    """What panels of columns that are walked together may take."""
    blocks: int = 0
    """Blocks to aim at, on targets without threads."""
    lanes: int = 0
    """Elements of one vector."""
    partials: int = 0
    """Vectors of partial results of a reduction."""
    stream: str = ""
    """Whether results pass the caches by: ``always``, ``never``."""
    threads: int = 0
    """Threads of a block, on targets with threads."""

    def to_json(self) -> dict[str, int | str]:
        """What differs from the rules, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Schedule:
        """A schedule from what ``to_json`` gave; raises ConfigError for a name or value that none can have."""
        known = [f.name for f in fields(cls)]
        if not isinstance(record, Mapping):
            raise ConfigError(f"a schedule is a mapping of {', '.join(known)}; got {record!r}")
        for name, value in record.items():
            words = _WORDS.get(name)
            whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST.get(name, -1)
            if not (whole if words is None else value in words):
                raise ConfigError(f"a schedule cannot have {name}={value!r}; it has {', '.join(known)}")
        for name in _POWERS:
            if (value := record.get(name, 0)) & (value - 1):
                raise ConfigError(f"a schedule cannot have {name}={value}: it is a power of two")
        found = cls(**record)
        if found.form != "row" and max(1, found.rows) * found.vectors > _TILE:
            raise ConfigError(f"a tile of {found.rows} rows of {found.vectors} vectors fits no registers")
        return found

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.to_json().items()) or "as the rules say"


RULES = Schedule()
"""All as the rules say."""

Choice: TypeAlias = "Callable[[Subject], Schedule]"
"""Gives the schedule for an operator or a group."""


def schedule_of(op: Operation) -> Schedule:
    """The schedule that expansion has put on an operator."""
    given = op.attributes.get(_ATTRIBUTE)
    return RULES if given is None else Schedule(**dict(given))  # type: ignore[arg-type]


def put_schedule(op: Operation, schedule: Schedule) -> None:
    """Put a schedule on an operator, for lowering; nothing where all is as the rules say."""
    if schedule != RULES:
        op.attributes[_ATTRIBUTE] = tuple(schedule.to_json().items())
