"""A stretch of a plan's launches, given to the driver once and replayed by one call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oarlock.abi import KernelSignature
from oarlock.hal import LaunchStep
from oarlock.ir import Value
from oarlock.runtime.device import NULL_BYTES, Device
from oarlock.runtime.lane import Lane
from oarlock.runtime.program import PreparedPlan
from oarlock.runtime.strands import Group, groups

if TYPE_CHECKING:
    from oarlock.runtime.plan import Launch

__all__ = ["Segment"]


class Segment:
    """Launches that the driver keeps. Its bindings are the plan's arena, where it uses that, and values outside it.

    ``slots`` numbers the values of the plan, ``arena`` is the arena's own slot; ``offsets`` places what lies in it, and
    ``sizes`` are the bytes of each value.
    """

    __slots__ = ("_scalars", "moving", "plan", "slots")

    def __init__(
        self,
        device: Device,
        launches: Sequence[Launch],
        slots: Mapping[Value, int],
        arena: int,
        offsets: Mapping[Value, int],
        sizes: Mapping[Value, int],
    ) -> None:
        numbers: dict[int, int] = {}
        moving: dict[int, list[tuple[int, KernelSignature, int]]] = {}
        self._scalars: list[tuple[int, KernelSignature, int, int]] = []
        """(step, its signature, position in the scalar block, slot) of what is another number in each run."""
        steps: list[LaunchStep] = []
        found = groups(launches, sizes.__getitem__, offsets)
        ordered = [(launches[p], strand) for group in found for p, strand in _numbered(group, launches)]
        for position, (launch, strand) in enumerate(ordered):
            signature = launch.signature
            values: list[int | float] = []
            bindings: list[tuple[int, int, int]] = []
            for i, (value, argument) in enumerate(zip(launch.buffers, signature.buffers, strict=True)):
                base, element = device.split_offset(offsets.get(value, 0), argument.storage.itemsize)
                slot = arena if value in offsets else slots[value]
                values.append(element)
                bindings.append((numbers.setdefault(slot, len(numbers)), base, sizes[value] or NULL_BYTES))
                if slot != arena:
                    moving.setdefault(slot, []).append((position, signature, i))
            for i, scalar in enumerate(launch.scalars):
                if isinstance(scalar, Value):
                    self._scalars.append((position, signature, len(bindings) + i, slots[scalar]))
                values.append(0 if isinstance(scalar, Value) else scalar)
            block = signature.pack(values)
            steps.append(
                LaunchStep(launch.program, signature.name, launch.grid, signature.block, tuple(bindings), block, strand)
            )
        self.slots = tuple(numbers)
        """What it is bound to: slots of the plan."""
        self.moving = moving
        """By slot, where an offset goes: (step, its signature, position in the scalar block)."""
        self.plan: PreparedPlan = device.prepare(steps)

    @property
    def has_scalars(self) -> bool:
        """Whether numbers go into it that may be others in each run."""
        return bool(self._scalars)

    def replay(self, lane: Lane, places: Sequence[Any]) -> None:
        """Submit the launches on ``places``: (buffer, byte offset) or a number for each slot of the plan."""
        self.plan.submit(lane, [places[slot][0] for slot in self.slots], self.patches(places))

    def patches(self, places: Sequence[Any]) -> list[tuple[int, int, bytes]]:
        """What is another number in this run than in the plan: (step, offset, bytes) in scalar blocks."""
        patches: list[tuple[int, int, bytes]] = []
        for slot, moved in self.moving.items():
            offset = places[slot][1]
            if offset:
                for position, signature, i in moved:
                    patches.append((position, *signature.field(i, offset // signature.buffers[i].storage.itemsize)))
        for position, signature, i, slot in self._scalars:
            patches.append((position, *signature.field(i, places[slot])))
        return patches


def _numbered(group: Group, launches: Sequence[Launch]) -> list[tuple[int, int]]:
    """Positions with their strand's number: 0 where there is one alone, else from 1 on, few blocks before many.

    Whoever takes work in this order ends with pieces that are small.
    """
    ordered = sorted(group, key=lambda strand: math.prod(launches[strand[0]].grid))
    first = 1 if len(group) > 1 else 0
    return [(position, number) for number, strand in enumerate(ordered, first) for position in strand]
