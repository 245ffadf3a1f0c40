"""Where the ranks of a group meet: checks that they make the same call, hands their parcels over, tells failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from oarlock.errors import CommunicationError, MismatchError, RankLostError, RankTimeoutError
from oarlock.runtime.communication.calls import Call, difference

__all__ = ["Hub", "Meeting", "Parcel", "Parcels"]

Parcel: TypeAlias = npt.NDArray[np.uint8] | bytes
"""Bytes for one rank."""
Parcels: TypeAlias = Mapping[int, Parcel]
"""Parcels by the rank that they go to, or come from."""


class Meeting(Protocol):
    """A rank's way to the others of its group: the Hub itself, or a connection to it."""

    def meet(self, rank: int, members: Collection[int], call: Call, parcels: Parcels) -> dict[int, Parcel]:
        """Make ``call`` with ``members`` (this rank among them); returns what each of them sent to this rank.

        Returns once all have come. Raises MismatchError on every one of them where their calls differ, after all
        have come; the group stays usable. Raises RankTimeoutError or RankLostError once the group is broken.
        """
        ...

    def refuse(self, rank: int, members: Collection[int], call: Call) -> None:
        """Make a call that this rank cannot take part in: the others raise its ``refusal``. Does not wait."""
        ...

    def leave(self, rank: int, failure: str = "") -> None:
        """Leave the group; ``failure`` says why where it is not the end of a good run: then the group is broken."""
        ...

    def watch(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` once, when the group breaks."""
        ...

    @property
    def failure(self) -> CommunicationError | None:
        """A new exception for what has broken the group, or None."""
        ...


class _Round:
    """One call on its way: who has come, with what."""

    def __init__(self, members: Collection[int]) -> None:
        self.members = frozenset(members)
        self.calls: dict[int, Call] = {}
        self.parcels: dict[int, Parcels] = {}
        self.done = False
        self.mismatch = ""
        self.refusal = ""

    @property
    def absent(self) -> list[int]:
        return sorted(self.members - self.calls.keys())

    def finish(self, group: str) -> None:
        """All have come: compare their calls."""
        self.done = True
        refused = [rank for rank in sorted(self.calls) if self.calls[rank].refusal]
        if refused:
            call = self.calls[refused[0]]
            self.refusal = f"{group}: rank {refused[0]} cannot take part in {call}: {call.refusal}"
            return
        first, *others = sorted(self.calls)
        for rank in others:
            word = difference(self.calls[first], self.calls[rank])
            if word:
                self.mismatch = (
                    f"{group}: the ranks differ in {word}: rank {first} calls {self.calls[first]}, rank {rank} calls "
                    f"{self.calls[rank]}. Every rank raises this, and no data has moved"
                )
                return


class Hub:
    """The meeting point of the ranks of one group, in one process. Each rank makes one call at a time."""

    def __init__(self, name: str, world_size: int, timeout_s: float) -> None:
        self.name = name
        self.world_size = world_size
        self.timeout_s = timeout_s
        self._condition = threading.Condition()
        self._rounds: dict[tuple[frozenset[int], int], _Round] = {}
        self._counts: dict[tuple[frozenset[int], int], int] = {}
        self._waiting: dict[int, _Round] = {}
        self._left: set[int] = set()
        self._failure: CommunicationError | None = None
        self._listeners: list[Callable[[], None]] = []

    @property
    def failure(self) -> CommunicationError | None:
        failure = self._failure
        return None if failure is None else type(failure)(*failure.args)

    def watch(self, listener: Callable[[], None]) -> None:
        with self._condition:
            if self._failure is None:
                self._listeners.append(listener)
                return
        listener()

    def meet(self, rank: int, members: Collection[int], call: Call, parcels: Parcels) -> dict[int, Parcel]:
        with self._condition:
            entered = self._enter(rank, members, call, parcels)
            if not entered.done:
                self._wait(rank, entered)
        self._tell()
        if not entered.done:
            raise self.failure or RankLostError(self._lost(entered))
        if entered.refusal:
            raise CommunicationError(entered.refusal)
        if entered.mismatch:
            raise MismatchError(entered.mismatch)
        return {other: sent[rank] for other, sent in entered.parcels.items() if rank in sent}

    def refuse(self, rank: int, members: Collection[int], call: Call) -> None:
        with self._condition:
            if self._failure is None:
                self._enter(rank, members, call, {})

    def leave(self, rank: int, failure: str = "") -> None:
        with self._condition:
            self._left.add(rank)
            if failure:
                self._break(RankLostError(f"{self.name}: rank {rank} {failure}; the group is given up on every rank"))
            self._condition.notify_all()
        self._tell()

    def abort(self, failure: CommunicationError) -> None:
        """Break the group for a reason of its own."""
        with self._condition:
            self._break(failure)
        self._tell()

    # --- the condition is held ---

    def _enter(self, rank: int, members: Collection[int], call: Call, parcels: Parcels) -> _Round:
        """Put this rank's call into the round that it belongs to; the last to come ends the round."""
        if self._failure is not None:
            raise type(self._failure)(*self._failure.args)
        party = frozenset(members)
        number = self._counts.get((party, rank), 0)
        self._counts[party, rank] = number + 1
        entered = self._rounds.setdefault((party, number), _Round(party))
        entered.calls[rank] = call
        entered.parcels[rank] = parcels
        if not entered.absent:
            del self._rounds[party, number]
            entered.finish(self.name)
            self._condition.notify_all()
        return entered

    def _wait(self, rank: int, entered: _Round) -> None:
        """Wait for the others; breaks the group when they do not come, or cannot."""
        deadline = time.monotonic() + self.timeout_s
        self._waiting[rank] = entered
        try:
            self._look_for_circle(rank)
            while not (entered.done or self._failure or self._left & entered.members):
                left = deadline - time.monotonic()
                if left <= 0:
                    self._break(RankTimeoutError(self._late(rank, entered)))
                    return
                self._condition.wait(left)
        finally:
            del self._waiting[rank]

    def _break(self, failure: CommunicationError) -> None:
        if self._failure is None:
            self._failure = failure
            self._condition.notify_all()

    def _look_for_circle(self, rank: int) -> None:
        """Break the group when ``rank`` waits for ranks that wait for it: none of them could ever go on."""
        seen: set[int] = set()
        path = [rank]
        while path:
            for other in self._waiting[path.pop()].absent:
                if other == rank:
                    self._break(MismatchError(self._circle()))
                    return
                if other in self._waiting and other not in seen:
                    seen.add(other)
                    path.append(other)

    # --- texts ---

    def _doing(self, ranks: Collection[int]) -> str:
        parts = []
        for rank in sorted(ranks):
            there = self._waiting.get(rank)
            parts.append(f"rank {rank} " + (f"waits in {there.calls[rank]}" if there else "has made no call"))
        return ", ".join(parts)

    def _circle(self) -> str:
        return (
            f"{self.name}: the ranks differ in order, and wait for each other: {self._doing(self._waiting)}. Every "
            f"rank makes the same calls in the same order; of two that exchange, one sends first, one receives first"
        )

    def _late(self, rank: int, entered: _Round) -> str:
        return (
            f"{self.name}: rank {rank} waited {self.timeout_s:g} s in {entered.calls[rank]}: "
            f"{self._doing(entered.absent)}; the group is given up on every rank (OARLOCK_COMMUNICATION_S sets it)"
        )

    def _lost(self, entered: _Round) -> str:
        gone = ", ".join(f"rank {rank}" for rank in sorted(self._left & entered.members))
        return f"{self.name}: {gone} has closed the group, and {next(iter(entered.calls.values()))} needs it"

    def _tell(self) -> None:
        """Call the listeners when the group has broken; the condition is not held."""
        with self._condition:
            if self._failure is None:
                return
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()
