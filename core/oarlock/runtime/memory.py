"""Device memory as the core sees it: an allocation that remembers its uses, and the buffer that a user holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from oarlock.errors import BoundsError, ClosedError, UnsupportedError
from oarlock.hal import Binding, Handle
from oarlock.runtime.checks import check_kind
from oarlock.target import Limits

if TYPE_CHECKING:
    from oarlock.runtime.device import Device
    from oarlock.runtime.lane import Lane

__all__ = ["Allocation", "Buffer", "size_text", "split_offset"]

Owner: TypeAlias = Literal["pool", "foreign", "device"]
"""Who decides when an allocation goes: the pool, its buffer alone (adopted memory), or the device when it closes."""


def split_offset(byte_offset: int, itemsize: int, limits: Limits) -> tuple[int, int]:
    """Split an offset into a binding's base in bytes and the element offset that travels in the scalar block.

    ``base + element_offset * itemsize == byte_offset``. Raises BoundsError when no whole element offset does it:
    such an operand goes through an aligned temporary.
    """
    alignment = limits.binding_alignment
    base = byte_offset - byte_offset % alignment if alignment else 0
    if (byte_offset - base) % itemsize:
        raise BoundsError(f"byte offset {byte_offset} is no whole number of {itemsize}-byte elements; copy it first")
    return base, (byte_offset - base) // itemsize


def size_text(nbytes: int) -> str:
    """A size for a person: ``3.0 GiB``, ``512 B``."""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{nbytes} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


class Allocation:
    """One allocation of a driver: ``capacity`` bytes behind ``handle``, and the work that uses them.

    ``lane`` and ``ticket`` are the last use in this life. ``others`` holds the last use per other lane, and
    ``inherited`` the uses of earlier lives that may still be running: a lane that uses the memory waits for those.
    """

    __slots__ = ("capacity", "handle", "inherited", "label", "lane", "nbytes", "others", "owner", "ticket", "whole")

    def __init__(self, handle: Handle, capacity: int, owner: Owner = "pool") -> None:
        self.handle = handle
        self.capacity = capacity
        self.owner: Owner = owner
        self.nbytes = 0
        self.whole: Binding = (handle, 0, capacity)
        """The binding of all that is in use, as launches need it."""
        self.label = ""
        self.lane: Lane | None = None
        self.ticket = 0
        self.others: dict[Lane, int] | None = None
        self.inherited: dict[Lane, int] | None = None

    def use(self, lane: Lane) -> None:
        """Note that the work about to be submitted to ``lane`` uses this memory, after waiting for earlier lives.

        Called with the driver held, before the submission takes its ticket.
        """
        if self.lane is not lane:
            self.change(lane)
        self.ticket = lane.ticket + 1

    def change(self, lane: Lane) -> None:
        """The next use is by another lane than the last one. The driver is held."""
        if self.lane is not None:
            others = {other: ticket for other, ticket in (self.others or {}).items() if ticket > other.completed}
            others[self.lane] = self.ticket
            others.pop(lane, None)
            self.others = others
        if self.inherited and not (len(self.inherited) == 1 and lane in self.inherited):
            for other, ticket in list(self.inherited.items()):
                if other.passed(ticket):
                    del self.inherited[other]
                elif other is not lane:
                    lane.follow(other, ticket)
        self.lane = lane

    def uses(self) -> dict[Lane, int]:
        """The last use per lane, of this life and earlier ones, that has not been seen to end."""
        merged = dict(self.inherited or ())
        for lane, ticket in (self.others or {}).items():
            merged[lane] = max(ticket, merged.get(lane, 0))
        if self.lane is not None:
            merged[self.lane] = max(self.ticket, merged.get(self.lane, 0))
        return {lane: ticket for lane, ticket in merged.items() if ticket > lane.completed and not lane.closed}

    def end_life(self) -> None:
        """Turn the uses into inherited ones."""
        lane = self.lane
        inherited = self.inherited
        if self.others is None and (inherited is None or (len(inherited) == 1 and lane in inherited)):
            if lane is not None:  # else nothing has used it, in any life
                self.inherited = {lane: self.ticket} if self.ticket > lane.completed else None
        else:
            self.inherited = self.uses() or None
        self.others = None
        self.lane = None
        self.ticket = 0

    @property
    def idle(self) -> bool:
        """Whether every use is known to have ended. The driver is held."""
        return all(lane.passed(ticket) for lane, ticket in self.uses().items())


class Buffer:
    """Untyped bytes on a device: ``nbytes`` of them. Freed when the last reference goes, or by ``free()``.

    Memory that work in flight still uses is reused only in its order. After ``device.close()`` a buffer may be
    dropped at any time; using it raises ClosedError.
    """

    __slots__ = ("__weakref__", "_allocation", "device", "freed", "label", "nbytes")

    def __init__(self, device: Device, allocation: Allocation | None, nbytes: int, label: str = "") -> None:
        self.device = device
        self.nbytes = nbytes
        self.label = label
        self.freed = False
        self._allocation = allocation

    @property
    def allocation(self) -> Allocation:
        """The memory behind it: the device's null buffer for 0 bytes. Raises ClosedError when it was freed."""
        self.check_live()
        return self.device.null(0) if self._allocation is None else self._allocation

    def check_live(self) -> None:
        """Raise ClosedError after ``free()``."""
        if self.freed:
            raise ClosedError(f"a buffer of {self.device.name} ({size_text(self.nbytes)}) is used after free()")

    @property
    def address(self) -> int:
        """The address of its first byte. Capability ``address``. Keep the buffer while the address is used."""
        can = self.device.can.address
        if can is None:
            raise UnsupportedError(f"memory of {self.device.name} has no address that others can use; copy it out")
        handle = self.allocation.handle
        with self.device.using("address"):
            place = can.address(handle)
            check_kind("address", place, int, "an address, an int")
            return place

    def check_range(self, offset: int, nbytes: int, what: str) -> None:
        """Raise BoundsError unless ``offset .. offset + nbytes`` lies inside."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise BoundsError(
                f"{self.device.name}: {what}: {nbytes} bytes at offset {offset} leave the buffer of {self.nbytes} bytes"
            )

    def free(self) -> None:
        """Give the memory back now; again does nothing."""
        self.freed = True
        self._drop()
        self.device.collect()

    def __del__(self) -> None:
        # May run in any thread, even inside a driver call: only hand the allocation over.
        allocation, self._allocation = self._allocation, None
        if allocation is not None:
            self.device.dropped.items.append(allocation)

    _drop = __del__

    def __repr__(self) -> str:
        state = "freed" if self.freed else size_text(self.nbytes)
        return f"<Buffer {self.device.name} {state}{f' {self.label}' if self.label else ''}>"
