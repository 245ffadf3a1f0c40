"""Gives back what was dropped: memory to the pool, other handles to the driver once their work has ended.

An owner's ``__del__`` may run in any thread, at any moment, even inside a driver call; so it only appends to
``dropped``, and this runs at safe moments: before allocating, loading, recording, counting and after waiting.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from oarlock.config import config
from oarlock.errors import OarlockError
from oarlock.runtime.lane import Lane
from oarlock.runtime.memory import Allocation
from oarlock.runtime.retired import Retired

if TYPE_CHECKING:
    from oarlock.runtime.device import Device

__all__ = ["Dropped"]


class Dropped:
    """What the owners on one device have dropped, and what still waits for work to end."""

    __slots__ = ("_device", "_waiting", "items", "orphan")

    def __init__(self, device: Device) -> None:
        self._device = device
        self._waiting: list[Retired] = []
        self.items: deque[Allocation | Retired] = deque()
        self.orphan: OarlockError | None = None
        """The first failure of a stream that was dropped before it was waited for."""

    def collect(self) -> None:
        """Give back what can be. Nothing happens on a dead device."""
        device = self._device
        if device.gate.refusal is not None:
            self.clear()
        elif self.items or self._waiting or (device.pool.idle and not config.pool):
            with device.using("free"):
                self.collect_held()

    def collect_held(self) -> None:
        """The same for a caller that holds the driver."""
        pool = self._device.pool
        while self.items:
            item = self.items.popleft()
            if isinstance(item, Retired):
                self._waiting.append(item)
            elif item.owner == "pool":
                pool.put(item)
            elif item.owner == "foreign":
                item.owner = "device"  # for once only, should two threads have freed it
                self._waiting.append(Retired("memory", item.handle, item.uses()))
        if pool.idle and not config.pool:
            pool.release()
        if self._waiting:
            self._end_all()

    def _end_all(self) -> None:
        """Destroy every handle whose work has ended. Raises the first failure when all are through."""
        waiting, self._waiting = self._waiting, []
        failure: Exception | None = None
        position = 0
        try:
            for position, retired in enumerate(waiting, 1):  # noqa: B007  (what an interruption leaves is kept)
                ended = False
                try:
                    ended = self._has_ended(retired)
                    if ended:
                        self._destroy(retired)
                except Exception as error:
                    failure = failure or error
                if not ended:
                    self._waiting.append(retired)
        finally:
            self._waiting.extend(waiting[position:])
        if failure is not None:
            raise failure

    def clear(self) -> None:
        """Forget everything: the handles died with the device."""
        self.items.clear()
        self._waiting.clear()

    def _has_ended(self, item: Retired) -> bool:
        """Whether all work that uses a handle has ended. The driver is held."""
        if item.kind == "stream":
            lane: Lane = item.handle
            return lane.closed or lane.poll(0.0)
        return all(lane.passed(ticket) for lane, ticket in item.uses.items())

    def _destroy(self, item: Retired) -> None:
        """Give a handle back; it counts as gone even when the driver fails. The driver is held."""
        device = self._device
        counts = device.counts
        if item.kind == "stream":
            self._destroy_stream(item.handle)
        elif item.kind == "event":
            counts.events -= 1
            if device.can.streams is not None:
                device.can.streams.destroy_event(item.handle)
        elif item.kind == "group":
            if device.can.communication is not None:
                device.can.communication.destroy_group(item.handle)
        else:
            counts.programs -= item.kind == "program"
            counts.plans -= item.kind == "plan"
            counts.adopted -= item.kind == "memory"
            device.driver.free(item.handle)

    def _destroy_stream(self, lane: Lane) -> None:
        """Destroy a stream that nobody holds any more; a failure of its last work is kept for the next wait."""
        if lane.closed:
            return
        device = self._device
        device.counts.streams -= 1
        del device.lanes[lane.id]
        for other in device.lanes.values():
            other.seen.pop(lane.id, None)
        self.orphan, lane.failure = self.orphan or lane.failure, None
        lane.destroy()
