"""The core's record of one stream of a driver: tickets, completion, order, failures. Outlives the user's Stream.

Each submission takes the next ``ticket``. ``completed`` is the last ticket that is known to have ended, and ``seen``
says up to which ticket of other lanes this lane's future work is ordered after: a vector clock, so that a wait that is
already implied is not made again.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from oarlock.config import config
from oarlock.errors import DeviceTimeoutError, OarlockError
from oarlock.hal import Handle
from oarlock.runtime.checks import check_nothing

if TYPE_CHECKING:
    from oarlock.runtime.device import Device

__all__ = ["SLICE_S", "Lane"]

SLICE_S = 0.005
"""Longest stay inside ``driver.synchronize`` before other threads get a turn at the driver."""
_YIELD_S = 0.0001
_ids = itertools.count(1)
_WORD = re.compile(r"\w+")


class Lane:
    """One stream of a driver; ``handle`` is None for the default one. ``closed`` once it was destroyed."""

    __slots__ = ("_marker", "closed", "completed", "deferred", "device", "failure", "handle", "id", "seen", "ticket")

    def __init__(self, device: Device, handle: Handle | None) -> None:
        self.device = device
        self.handle = handle
        self.id = next(_ids)
        self.closed = False
        self.ticket = 0
        self.completed = 0
        self.seen: dict[int, int] = {}
        self.failure: OarlockError | None = None
        self.deferred: list[tuple[int, Callable[[], object]]] = []
        self._marker: tuple[Handle, int] | None = None

    def synchronize(self) -> None:
        """Wait for all work; raises the first failure since the last call."""
        try:
            self.settle()
        finally:
            self.raise_failure()

    def settle(self) -> None:
        """Wait for all work, keeping a failure for ``raise_failure``. Other threads use the driver in between."""
        start = time.monotonic()
        deadline = config.watchdog_s
        gate = self.device.gate
        while not self.closed:
            with self.device.using("synchronize"):
                if self.closed or self.poll(SLICE_S):
                    return
                if 0 < deadline < time.monotonic() - start:
                    late = gate.late("synchronize", deadline)
                    gate.lose(late)
                    raise late
            time.sleep(_YIELD_S if gate.waiters else 0)

    def raise_failure(self) -> None:
        """Raise the failure that was kept, once."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def defer(self, action: Callable[[], object]) -> None:
        """Run ``action`` once what was submitted so far is done and the host can see its copies."""
        self.deferred.append((self.ticket, action))

    def clock(self) -> dict[int, int]:
        """What an event recorded now comes after."""
        return {**self.seen, self.id: self.ticket}

    def merge(self, clock: dict[int, int]) -> None:
        """This lane's future work comes after all of ``clock``."""
        for lane, ticket in clock.items():
            if self.seen.get(lane, 0) < ticket:
                self.seen[lane] = ticket

    # --- the driver is held ---

    def poll(self, timeout_s: float) -> bool:
        """Synchronise for at most ``timeout_s`` seconds. True: all work is done; a failure is kept."""
        ticket = self.ticket
        try:
            given: object = self.device.driver.synchronize(self.handle, timeout_s)
            if given is not None:
                check_nothing("synchronize", given)
        except DeviceTimeoutError:
            return False
        except Exception as error:
            self._keep(error)
        self.completed = max(self.completed, ticket)
        if self.deferred:
            ready, self.deferred = self.deferred, []
            for _, action in ready:
                action()
        return True

    def passed(self, ticket: int) -> bool:
        """Whether the work with ``ticket`` has ended, as far as one look tells."""
        if self.completed >= ticket or self.closed:
            return True
        streams = self.device.can.streams
        if streams is None:
            return False
        if self._marker is None:
            self._marker = (streams.record(self.handle), self.ticket)
        handle, marked = self._marker
        if streams.query(handle):
            self._marker = None
            self.completed = max(self.completed, marked)
            streams.destroy_event(handle)
        return self.completed >= ticket

    def follow(self, other: Lane, ticket: int) -> None:
        """Order the future work of this lane after ``ticket`` of ``other``."""
        streams = self.device.can.streams
        if streams is None or self.seen.get(other.id, 0) >= ticket:
            return
        event = streams.record(other.handle)
        try:
            streams.wait(self.handle, event)
        finally:
            streams.destroy_event(event)
        self.merge(other.clock())

    def destroy(self) -> None:
        """Destroy the driver's stream, whose work has ended."""
        streams = self.device.can.streams
        if self.closed or streams is None or self.handle is None:
            return
        marker, self._marker = self._marker, None
        self.closed = True
        try:
            if marker is not None:
                streams.destroy_event(marker[0])
        finally:
            streams.destroy_stream(self.handle)

    def _keep(self, error: Exception) -> None:
        """Keep the first failure; raise what spoils the device."""
        gate = self.device.gate
        explained = gate.explain("synchronize", error)
        if gate.refusal is not None or not isinstance(explained, OarlockError):
            raise explained from (error if explained is not error else error.__cause__)
        if self.failure is None:
            self._describe(explained)
            self.failure = explained
        self.device.failed(explained)

    def _describe(self, failure: OarlockError) -> None:
        """Add the stream, and what the kernels named in the message compute."""
        text = str(failure)
        origins = self.device.origins
        named = [f"; {word} computes {origins[word]}" for word in dict.fromkeys(_WORD.findall(text)) if word in origins]
        where = "" if self.handle is None else f" (stream {self.id})"
        failure.args = (text + where + "".join(named), *failure.args[1:])
