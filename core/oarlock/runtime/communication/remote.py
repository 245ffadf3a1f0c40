"""The meeting point for ranks in other processes: rank 0's process serves its Hub, the others call it."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from oarlock import errors
from oarlock.errors import CommunicationError, RankLostError, RankTimeoutError
from oarlock.runtime.communication.calls import Call
from oarlock.runtime.communication.frames import Line
from oarlock.runtime.communication.hub import Hub, Parcel, Parcels

__all__ = ["HostHub", "RemoteHub"]

_GRACE_S = 5.0
"""How much longer a rank waits for an answer than the hub waits for the other ranks."""
_FLUSH_S = 5.0
"""How long rank 0 waits, when it leaves, until the others have the answers that they are owed."""


class HostHub(Hub):
    """A Hub in rank 0's process that serves ranks of other processes, each through a line."""

    def __init__(self, name: str, world_size: int, timeout_s: float, lines: Mapping[int, Line]) -> None:
        super().__init__(name, world_size, timeout_s)
        self._servers = [_Server(self, rank, line) for rank, line in sorted(lines.items())]

    def leave(self, rank: int, failure: str = "") -> None:
        super().leave(rank, failure)
        if rank == 0:
            deadline = time.monotonic() + _FLUSH_S
            for server in self._servers:
                server.idle.wait(max(0.0, deadline - time.monotonic()))
                if not failure:
                    server.part()


class _Server:
    """Serves a Hub to one rank of another process, on a thread of its own."""

    def __init__(self, hub: Hub, rank: int, line: Line) -> None:
        self._hub = hub
        self._rank = rank
        self._line = line
        self.idle = threading.Event()
        """Set while no answer is owed."""
        self.idle.set()
        hub.watch(self._tell_failure)
        threading.Thread(target=self._serve, name=f"oarlock-rank-{rank}", daemon=True).start()

    def _serve(self) -> None:
        try:
            while True:
                head, parcels = self._line.receive()
                self.idle.clear()
                if head["ask"] == "leave":
                    self._hub.leave(self._rank, head["failure"])
                    break
                self._answer(head, parcels)
                self.idle.set()
        except (EOFError, OSError):
            self._hub.leave(self._rank, "died, or its connection was lost")
        finally:
            self.idle.set()
            self._line.close()

    def _answer(self, head: dict[str, Any], parcels: Parcels) -> None:
        call = Call.from_json(head["call"])
        if head["ask"] == "refuse":
            self._hub.refuse(self._rank, head["members"], call)
            return
        try:
            received = self._hub.meet(self._rank, head["members"], call, parcels)
        except CommunicationError as error:
            self._line.send({"tell": "error", **_packed(error)})
        else:
            self._line.send({"tell": "met"}, received)

    def part(self) -> None:
        """Tell the rank that the hub goes because rank 0 has closed the group, not because it has failed."""
        with contextlib.suppress(OSError):  # it may have gone first
            self._line.send({"tell": "parted"})

    def _tell_failure(self) -> None:
        failure = self._hub.failure
        if failure is not None:
            with contextlib.suppress(OSError):
                self._line.send({"tell": "broken", **_packed(failure)})


class RemoteHub:
    """A rank's way to a Hub in another process."""

    def __init__(self, name: str, line: Line, timeout_s: float) -> None:
        self._name = name
        self._line = line
        self._timeout_s = timeout_s
        self._answers: queue.SimpleQueue[tuple[dict[str, Any], dict[int, Parcel]]] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._failure: CommunicationError | None = None
        self._left = False
        self._parted = False
        self._listeners: list[Callable[[], None]] = []
        threading.Thread(target=self._listen, name="oarlock-hub", daemon=True).start()

    @property
    def failure(self) -> CommunicationError | None:
        failure = self._failure
        return None if failure is None else type(failure)(*failure.args)

    def watch(self, listener: Callable[[], None]) -> None:
        with self._guard:
            if self._failure is None:
                self._listeners.append(listener)
                return
        listener()

    def meet(self, rank: int, members: Collection[int], call: Call, parcels: Parcels) -> dict[int, Parcel]:
        self._ask({"ask": "meet", "members": sorted(members), "call": call.to_json()}, parcels)
        try:
            head, received = self._answers.get(timeout=self._timeout_s + _GRACE_S)
        except queue.Empty:
            self._break(RankTimeoutError(f"{self._name}: rank 0, where the ranks meet, did not answer {call} in time"))
            head = {"tell": "lost"}
        if head["tell"] == "met":
            return received
        raise (self.failure if head["tell"] == "lost" else None) or _unpacked(head)

    def refuse(self, rank: int, members: Collection[int], call: Call) -> None:
        self._ask({"ask": "refuse", "members": sorted(members), "call": call.to_json()})

    def leave(self, rank: int, failure: str = "") -> None:
        if failure:
            self._break(RankLostError(f"{self._name}: rank {rank} {failure}; the group is given up on every rank"))
        with self._guard:
            if self._left:
                return
            self._left = True
        try:
            self._line.send({"ask": "leave", "failure": failure})
        except OSError:
            return  # rank 0 is gone, and so is the group

    def _ask(self, head: dict[str, Any], parcels: Parcels | None = None) -> None:
        failure = self.failure
        if failure is not None:
            raise failure
        try:
            self._line.send(head, parcels)
        except OSError as error:
            self._break(self._gone())
            raise self._gone() from error

    def _listen(self) -> None:
        """Take messages; what breaks the group is told at once, also while no call is made."""
        try:
            while True:
                head, parcels = self._line.receive()
                if head["tell"] == "broken":
                    self._break(_unpacked(head))
                elif head["tell"] == "parted":
                    self._parted = True
                else:
                    self._answers.put((head, parcels))
        except (EOFError, OSError):
            if not (self._left or self._parted):
                self._break(self._gone())
            self._answers.put(({"tell": "lost"}, {}))
        finally:
            self._line.close()

    def _gone(self) -> RankLostError:
        how = "has closed the group" if self._parted else "has ended, or the connection was lost"
        return RankLostError(f"{self._name}: rank 0, where the ranks meet, {how}")

    def _break(self, failure: CommunicationError) -> None:
        with self._guard:
            if self._failure is not None:
                return
            self._failure = failure
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()


def _packed(error: CommunicationError) -> dict[str, str]:
    return {"kind": type(error).__name__, "text": str(error)}


def _unpacked(head: dict[str, Any]) -> CommunicationError:
    kind = getattr(errors, head.get("kind", ""), CommunicationError)
    made: CommunicationError = kind(head.get("text", "the group has ended"))
    return made
