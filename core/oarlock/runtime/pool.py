"""The memory pool of a device: size classes, reuse in stream order, release on demand, accounts for error texts."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from oarlock.config import config
from oarlock.errors import OutOfMemoryError
from oarlock.runtime.checks import check_handle
from oarlock.runtime.copies import poison
from oarlock.runtime.memory import Allocation, size_text

if TYPE_CHECKING:
    from oarlock.runtime.device import Device
    from oarlock.runtime.lane import Lane

__all__ = ["MemoryPool", "size_class"]

_SMALLEST = 256
_LOOK_BACK = 8
"""How many idle blocks of a class are looked at for one that needs no waiting."""
_SIZES_KEPT = 4096
_IDLE_SHARE = 2
"""Idle memory may take one part in so many of the limit; past that, it shrinks to half of this."""


def size_class(nbytes: int) -> int:
    """The size that a request is rounded up to: 256 bytes, then four steps per power of two, eight from 1 MiB on."""
    if nbytes <= _SMALLEST:
        return _SMALLEST
    steps = 4 if nbytes < 2**20 else 8
    step = (1 << ((nbytes - 1).bit_length() - 1)) // steps
    return -(-nbytes // step) * step


class MemoryPool:
    """The memory of one device. Every method is called with the driver held.

    ``in_use`` and ``idle`` count the bytes of live and cached allocations; ``budget`` limits their sum (None: the
    device's memory). With ``config.pool`` off nothing is reused: memory goes back once its work has ended.
    """

    __slots__ = ("_classes", "_device", "_released", "_sizes", "budget", "idle", "in_use", "live", "peak")

    def __init__(self, device: Device) -> None:
        self._device = device
        self._classes: defaultdict[int, list[Allocation]] = defaultdict(list)
        self._sizes: dict[int, tuple[int, int]] = {}
        self.live: dict[int, Allocation] = {}
        self.in_use = 0
        self.idle = 0
        self.peak = 0
        self.budget: int | None = None
        self._released = 0

    @property
    def limit(self) -> int:
        """Bytes that live and cached allocations may take together."""
        return self._device.info.memory if self.budget is None else self.budget

    @property
    def most_idle(self) -> int:
        """Idle bytes that are kept; when there are more, half of this stays."""
        return self.limit // _IDLE_SHARE

    def take(self, nbytes: int, lane: Lane, label: str) -> Allocation | None:
        """Memory for ``nbytes`` > 0 that ``lane`` will use first, as far as is known.

        None: there is none now. The caller waits for all work, calls ``release``, and then ``take_last``.
        """
        self._released = 0
        least, size = self._sizes.get(nbytes) or self._remembered(nbytes)
        if not config.pool:
            return self._give(self._from_driver(least), nbytes, least, label)
        blocks = self._classes.get(size)
        found = self._reuse(blocks, lane) if blocks else None
        return self._give(found or self._from_driver(size), nbytes, least, label)

    def take_last(self, nbytes: int, label: str) -> Allocation:
        """The last try, for the exact size; raises OutOfMemoryError."""
        least, _ = self._sizes_for(nbytes)
        found = self._give(self._from_driver(least), nbytes, least, label)
        if found is None:
            raise self.exhausted(nbytes)
        return found

    def put(self, allocation: Allocation) -> None:
        """Take back what a dropped buffer held; work that still uses it goes on."""
        if self.live.pop(id(allocation), None) is None:
            return
        capacity = allocation.capacity
        self.in_use -= capacity
        try:
            if config.poison:
                poison(self._device, allocation)
        finally:
            allocation.end_life()
            self.idle += capacity
            self._classes[capacity].append(allocation)
        most = self.most_idle
        if self.idle > most:
            self.release(most // 2)

    def release(self, keep: int = 0) -> int:
        """Give idle memory back to the driver, where its work has ended, until at most ``keep`` bytes are idle.

        Returns the bytes given back. Raises the first failure when all are through: what the driver could not free is
        gone all the same.
        """
        released = 0
        failure: Exception | None = None
        for size, blocks in list(self._classes.items()):
            kept = []
            for block in blocks:
                going = False
                try:
                    going = self.idle - released > keep and block.idle
                    if going:
                        self._device.driver.free(block.handle)
                except Exception as error:
                    failure = failure or error
                if going:
                    released += block.capacity
                else:
                    kept.append(block)
            if kept:
                self._classes[size] = kept
            else:
                del self._classes[size]
        self.idle -= released
        self._released += released
        if failure is not None:
            raise failure
        return released

    def exhausted(self, nbytes: int) -> OutOfMemoryError:
        """The error for a request of ``nbytes`` that failed twice."""
        largest = sorted(self.live.values(), key=lambda item: -item.nbytes)[:3]
        names = ", ".join(f"{item.label or 'unnamed'} {size_text(item.nbytes)}" for item in largest)
        return OutOfMemoryError(
            f"{self._device.name}: out of memory: asked {size_text(nbytes)}; in use {size_text(self.in_use)} (pool "
            f"held {size_text(self._released)} idle, released and tried again); limit {size_text(self.limit)}. "
            f"Largest live: {names or 'nothing'}"
        )

    def _remembered(self, nbytes: int) -> tuple[int, int]:
        if len(self._sizes) > _SIZES_KEPT:
            self._sizes.clear()
        sizes = self._sizes[nbytes] = self._sizes_for(nbytes)
        return sizes

    def _sizes_for(self, nbytes: int) -> tuple[int, int]:
        """``nbytes`` rounded up so that widened copies fit, and its size class.

        Raises OutOfMemoryError past the largest allocation.
        """
        limit = self._device.target.limits.max_allocation
        unit = self._device.unit
        least = nbytes + -nbytes % unit
        if least > limit:
            raise OutOfMemoryError(
                f"{self._device.name}: out of memory: asked {size_text(nbytes)}; one allocation holds at most "
                f"{size_text(limit)}"
            )
        size = size_class(least)
        size += -size % unit
        return least, size if size <= limit else least

    def _give(self, found: Allocation | None, nbytes: int, least: int, label: str) -> Allocation | None:
        if found is not None:
            found.nbytes = nbytes
            found.whole = (found.handle, 0, least)
            found.label = label
            self.live[id(found)] = found
            self.in_use += found.capacity
            if self.in_use > self.peak:
                self.peak = self.in_use
        return found

    def _reuse(self, blocks: list[Allocation], lane: Lane) -> Allocation | None:
        """One of these idle blocks, of one class, that ``lane`` can use without waiting for another."""
        waits = blocks[-1].inherited
        if waits is None or (len(waits) == 1 and lane in waits):
            block = blocks.pop()
            self.idle -= block.capacity
            return block
        for position in range(len(blocks) - 1, max(-1, len(blocks) - 1 - _LOOK_BACK), -1):
            waits = blocks[position].inherited
            if not waits or all(
                other is lane or lane.seen.get(other.id, 0) >= ticket or other.passed(ticket)
                for other, ticket in waits.items()
            ):
                block = blocks.pop(position)
                self.idle -= block.capacity
                return block
        return None

    def _from_driver(self, size: int) -> Allocation | None:
        if self.in_use + self.idle + size > self.limit:
            self.release()
        if self.budget is not None and self.in_use + self.idle + size > self.budget:
            return None
        try:
            return Allocation(check_handle("allocate", self._device.driver.allocate(size)), size)
        except MemoryError:
            return None
