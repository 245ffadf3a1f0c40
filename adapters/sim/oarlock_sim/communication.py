"""Collectives of the simulator's own engine, between its devices in one process: some operations, three dtypes.

A collective is a command of each rank's stream. It may begin when every rank's has come to the head of its stream;
until then each keeps a copy of what its rank sends, so that no rank writes what another has not read.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import DeviceError, LaunchError
from oarlock.hal import Collective, Handle, Place, ReduceKind
from oarlock_sim.memory import Allocation
from oarlock_sim.program import Programs
from oarlock_sim.stream import Event, entry

__all__ = ["Collectives"]

_FUNCTIONS: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
_Values = np.ndarray[Any, Any]


@dataclass(eq=False)
class _Exchange:
    """One collective: the streams' events of the ranks that gave it, and what those at their heads send."""

    members: frozenset[int]
    events: dict[int, Event] = field(default_factory=dict)
    sent: dict[int, _Values] = field(default_factory=dict)

    def complete(self) -> bool:
        """Whether all ranks have come; raises where one cannot any more."""
        for rank, event in self.events.items():
            if event.done and event.error is not None and rank not in self.sent:
                raise LaunchError(f"collective: the stream of rank {rank} had failed: {event.error}")
        return self.sent.keys() == self.members


class _Group:
    """What the ranks of a group share."""

    def __init__(self, world_size: int) -> None:
        self.everyone = frozenset(range(world_size))
        self.lock = threading.Lock()
        self.aborted = ""
        self.joined: set[int] = set()
        self.exchanges: dict[tuple[frozenset[int], int], _Exchange] = {}


@dataclass(eq=False)
class _Member:
    """One rank of a group, and how many collectives it has given, by who takes part."""

    group: _Group
    rank: int
    counts: dict[frozenset[int], int] = field(default_factory=dict)

    def enter(self, members: frozenset[int], event: Event) -> _Exchange:
        number = self.counts[members] = self.counts.get(members, 0) + 1
        with self.group.lock:
            exchange = self.group.exchanges.setdefault((members, number), _Exchange(members))
            exchange.events[self.rank] = event
            if exchange.events.keys() == members:
                del self.group.exchanges[members, number]
        return exchange


_groups: dict[bytes, _Group] = {}
_guard = threading.Lock()


class Collectives(Programs):
    """The communication part of the driver."""

    engine = "oarlock-sim 1"
    reach: Literal["process", "system"] = "process"

    @entry("communication")
    def unique_id(self) -> bytes:
        return secrets.token_bytes(16)

    @entry("communication")
    def supports(self, operation: Collective, dtype: DType, kind: ReduceKind | None) -> bool:
        return dtype in (dtypes.int32, dtypes.uint32, dtypes.float32)  # what both devices store alike

    @entry("communication")
    def init_group(self, unique_id: bytes, rank: int, world_size: int) -> Handle:
        with _guard:
            group = _groups.setdefault(unique_id, _Group(world_size))
            if rank not in group.everyone or rank in group.joined or len(group.everyone) != world_size:
                raise DeviceError(f"init_group: rank {rank} of {world_size} does not fit the group, or is in it")
            group.joined.add(rank)
            if group.joined == group.everyone:
                del _groups[unique_id]
        return self.keep(_Member(group, rank))

    @entry("communication")
    def abort_group(self, group: Handle) -> None:
        self._member(group).group.aborted = "the group was aborted"

    @entry("communication")
    def destroy_group(self, group: Handle) -> None:
        self._member(group)
        del self.objects[group]

    @entry("communication")
    def all_reduce(
        self, stream: Handle | None, group: Handle, src: Place, dst: Place, count: int, dtype: DType, kind: ReduceKind
    ) -> None:
        def result(exchange: _Exchange) -> _Values:
            total = exchange.sent[0].copy()
            with np.errstate(all="ignore"):
                for rank in range(1, len(exchange.sent)):
                    _FUNCTIONS[kind](total, exchange.sent[rank], out=total)
            return total

        member = self._member(group)
        self._give("all_reduce", stream, member, member.group.everyone, src, dst, count, dtype, result)

    @entry("communication")
    def broadcast(
        self, stream: Handle | None, group: Handle, buffer: Place, count: int, dtype: DType, root: int
    ) -> None:
        member = self._member(group)
        src = buffer if member.rank == root else None
        dst = buffer if member.rank != root else None
        self._give("broadcast", stream, member, member.group.everyone, src, dst, count, dtype, lambda x: x.sent[root])

    @entry("communication")
    def send(self, stream: Handle | None, group: Handle, src: Place, count: int, dtype: DType, peer: int) -> None:
        member = self._member(group)
        pair = frozenset((member.rank, peer))
        self._give("send", stream, member, pair, src, None, count, dtype, lambda x: x.sent[member.rank])

    @entry("communication")
    def recv(self, stream: Handle | None, group: Handle, dst: Place, count: int, dtype: DType, peer: int) -> None:
        member = self._member(group)
        pair = frozenset((member.rank, peer))
        self._give("recv", stream, member, pair, None, dst, count, dtype, lambda x: x.sent[peer])

    def abandon_groups(self) -> None:
        """The device goes: ranks on others must not wait for it."""
        for thing in self.objects.values():
            if isinstance(thing, _Member):
                thing.group.aborted = f"{self.info.name} was closed"

    def _member(self, group: Handle) -> _Member:
        member: _Member = self.find(group, _Member, "group")
        return member

    def _give(
        self,
        name: str,
        stream: Handle | None,
        member: _Member,
        members: frozenset[int],
        src: Place | None,
        dst: Place | None,
        count: int,
        dtype: DType,
        result: Callable[[_Exchange], _Values],
    ) -> None:
        """Submit one rank's part: it sends ``count`` elements at ``src`` and gets the result at ``dst``."""
        nbytes = count * dtype.itemsize
        for place in (src, dst):
            if place is not None:
                self.range_of(name, *place, nbytes)
        event = Event()
        exchange = member.enter(members, event)

        def ready() -> bool:
            with member.group.lock:
                if member.rank not in exchange.sent:
                    exchange.sent[member.rank] = self._values(src, nbytes, dtype).copy()
                complete = exchange.complete()
                if member.group.aborted and not complete:
                    raise LaunchError(f"{name}: {member.group.aborted}")
                return complete

        def run() -> None:
            if dst is not None:
                with member.group.lock:
                    values = result(exchange)
                self._values(dst, nbytes, dtype)[:] = values

        self.submit(stream, name, run, ready, event)

    def _values(self, place: Place | None, nbytes: int, dtype: DType) -> _Values:
        """The elements at a place, as the device has them now."""
        if place is None:
            return np.empty(0, dtype.numpy)
        handle, offset = place
        view = self.find(handle, Allocation, "collective, when it ran").view
        return np.frombuffer(view[offset : offset + nbytes], dtype.numpy)
