"""One call of one rank: it either takes part to the end, or the other ranks are told why not."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from types import TracebackType
from typing import Literal

from oarlock.errors import CommunicationError
from oarlock.runtime.communication.calls import Call
from oarlock.runtime.communication.hub import Meeting, Parcel, Parcels

__all__ = ["Turn"]


class Turn:
    """``with Turn(...) as turn:`` around a call of ``rank`` with ``members``.

    What is raised before the others wait for data refuses the call on every rank; what is raised while they do breaks
    the group; what is raised after the last exchange concerns this rank alone.
    """

    def __init__(self, meeting: Meeting, rank: int, members: Collection[int], call: Call) -> None:
        self.call = call
        self._meeting = meeting
        self._rank = rank
        self._members = members
        self._awaited: Literal["call", "data", "nothing"] = "call"

    def __enter__(self) -> Turn:
        failure = self._meeting.failure
        if failure is not None:
            raise failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, CommunicationError) or self._awaited == "nothing":
            return
        text = f"{type(error).__name__}: {error}"
        if self._awaited == "call" and isinstance(error, Exception):
            self._meeting.refuse(self._rank, self._members, replace(self.call, refusal=text))
        else:
            self._meeting.leave(self._rank, f"failed in {self.call}: {text}")

    def exchange(self, parcels: Parcels, last: bool = True) -> dict[int, Parcel]:
        """Hand parcels over; see ``Meeting.meet``. ``last``: nothing more is exchanged in this call."""
        self._awaited = "data"
        received = self._meeting.meet(self._rank, self._members, self.call, parcels)
        self.call = self.call.next_phase()
        if last:
            self._awaited = "nothing"
        return received

    def agree(self, flags: int) -> int:
        """The flags that every member has set. What is raised next refuses the call still, until ``commit``."""
        received = self.exchange({other: bytes([flags]) for other in self._members}, last=False)
        self._awaited = "call"
        for parcel in received.values():
            flags &= parcel[0]
        return int(flags)

    def commit(self) -> None:
        """The others now rely on this rank's part, which it gives without another exchange."""
        self._awaited = "data"

    def done(self) -> None:
        """This rank's part has been given."""
        self._awaited = "nothing"
