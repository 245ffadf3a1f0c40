"""What a dropped object leaves behind for the device to give back to its driver at a safe moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from oarlock.hal import Handle

if TYPE_CHECKING:
    from oarlock.runtime.lane import Lane

__all__ = ["Retired"]


@dataclass(frozen=True, slots=True)
class Retired:
    """A driver's handle whose owner is gone (for a stream: its Lane), and the work that must end before it goes."""

    kind: Literal["event", "stream", "program", "plan", "memory", "group"]
    handle: Handle
    uses: Mapping[Lane, int] = field(default_factory=dict)
