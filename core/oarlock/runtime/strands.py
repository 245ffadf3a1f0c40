"""Which launches of a plan may run at the same time: those that share no memory to which one of them writes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from oarlock.abi import Access
from oarlock.ir import Value

if TYPE_CHECKING:
    from oarlock.runtime.plan import Launch

__all__ = ["Group", "Strand", "groups", "spans"]

Strand: TypeAlias = list[int]
"""Launches by position, which run in order on one thread: one launch, or several of one block each."""
Group: TypeAlias = list[Strand]
"""Strands that may run at the same time."""

MOST = 64
"""Launches in a group, so that finding groups takes time in proportion to the launches."""


class _Use(NamedTuple):
    """A launch's use of the bytes ``begin`` to ``end`` of a memory; memories that are not equal do not overlap."""

    strand: Strand
    value: Value
    access: Access
    memory: Hashable
    begin: int
    end: int

    def excludes(self, other: _Use) -> bool:
        """Whether the two must not happen at the same time.

        A value is made once: launches that write it without reading it store different parts of it.
        """
        if self.memory != other.memory or self.access == other.access == "read":
            return False
        if self.value is other.value and self.access == other.access == "write":
            return False
        return self.begin < other.end and other.begin < self.end


def groups(
    launches: Sequence[Launch | None], nbytes: Callable[[Value], int], offsets: Mapping[Value, int]
) -> list[Group]:
    """``launches`` as groups, which run one after the other; what is no launch (None) has a group of its own.

    Values of ``nbytes`` lie in the arena at ``offsets``, or have memory of their own; only what is given to the program
    may be one memory under several names. A launch starts a strand in the group before it where it depends on nothing
    there. It joins a strand where it depends on that alone, and is one block as all of it are: several threads would
    find nothing to share in it. Else it starts a group.
    """
    found: list[Group] = []
    uses: list[_Use] = []
    room = 0
    for position, launch in enumerate(launches):
        own: Strand = [position]
        if launch is None:
            found.append([own])
            room = 0
            continue
        fresh = _uses(launch, own, nbytes, offsets)
        met = {id(use.strand): use.strand for use in uses if any(use.excludes(new) for new in fresh)}
        strand = next(iter(met.values()), own)
        if room and not met:
            found[-1].append(own)
        elif room and len(met) == 1 and _is_one_block(launch) and _is_one_block(launches[strand[0]]):
            strand.append(position)
            fresh = [use._replace(strand=strand) for use in fresh]
        else:
            found.append([own])
            uses, room = [], MOST
        uses += fresh
        room -= 1
    return found


def spans(found: Sequence[Group]) -> list[tuple[int, int]]:
    """For each position, the first and the last of those that may run at the same time: itself alone as a rule."""
    result: list[tuple[int, int]] = []
    for group in found:
        positions = sorted(position for strand in group for position in strand)
        together = (positions[0], positions[-1])
        result += [together if len(group) > 1 else (position, position) for position in positions]
    return result


def _uses(launch: Launch, strand: Strand, nbytes: Callable[[Value], int], offsets: Mapping[Value, int]) -> list[_Use]:
    uses: list[_Use] = []
    for value, argument in zip(launch.buffers, launch.signature.buffers, strict=True):
        memory: Hashable = value
        begin, end = 0, nbytes(value)
        if value in offsets:
            memory, begin = "arena", offsets[value]
            end += begin
        elif value.defining_op is None:
            memory, end = "given", sys.maxsize
        uses.append(_Use(strand, value, argument.access, memory, begin, end))
    return uses


def _is_one_block(launch: Launch | None) -> bool:
    return launch is not None and launch.grid == (1, 1, 1)
