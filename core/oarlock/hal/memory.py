"""Memory: allocation and copies, on opaque handles. Offsets and sizes are bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol, TypeAlias

__all__ = ["Addressable", "Fill", "Handle", "MemoryDriver", "PeerCopy", "Pinned"]

Handle: TypeAlias = Any
"""What a driver gives out for memory, programs, streams, events or plans: any object but None. Opaque to the core,
which keeps the object, gives it back as it is, and tells two apart by identity; it need not be hashable."""


class MemoryDriver(ABC):
    """The memory part of a driver. The core checks bounds, pools memory, and never passes 0 bytes."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Handle:
        """``nbytes`` > 0 of device memory, aligned for any dtype and for ``binding_alignment``; content undefined.

        The core asks for multiples of 4 and of ``copy_alignment``, at most ``max_allocation``. It owns the handle until
        ``free``. Raises OutOfMemoryError when there is not enough (the core then frees what is idle and asks again);
        the device stays usable.
        """

    @abstractmethod
    def free(self, handle: Handle) -> None:
        """Free what ``allocate``, ``adopt``, ``load`` or ``prepare`` gave, once. All work that uses it has ended."""

    @abstractmethod
    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        """Copy the contiguous bytes ``src`` of the host to ``dst`` at ``dst_offset``, in stream order.

        ``src`` belongs to the caller, who may change it on return: stage it, or wait for the copy. What is staged is
        bounded: where it piles up, wait. ``src`` may be read-only, and has no particular alignment. A failure that
        shows later comes from ``synchronize``.
        """

    @abstractmethod
    def copy_out(self, stream: Handle | None, dst: memoryview, src: Handle, src_offset: int) -> None:
        """Copy ``len(dst)`` bytes of ``src`` from ``src_offset`` to the writable host bytes ``dst``, in stream order.

        May return before the copy is done: ``dst`` is readable after ``synchronize(stream)``, and the core keeps it
        alive until then. Nothing outside ``dst`` is written.
        """

    @abstractmethod
    def copy(
        self, stream: Handle | None, dst: Handle, dst_offset: int, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        """Copy within the device, in stream order; returns at once where the device is asynchronous.

        ``dst`` and ``src`` may be one allocation, whose ranges then do not overlap (the core sees to it); an API that
        refuses that needs memory of its own in between.
        """


class Addressable(Protocol):
    """Capability ``address``: the memory has addresses that the host or a vendor library understands."""

    def address(self, handle: Handle) -> int:
        """The address of an allocation's first byte, the same until ``free``.

        With capability ``host_memory`` the host may read and write there too, once the work in flight has ended.
        """
        ...

    def adopt(self, address: int, nbytes: int, owner: object) -> Handle:
        """A handle on foreign memory, which is not freed with it; ``owner`` is kept until ``free``.

        Raises DeviceError where the device cannot reach the address.
        """
        ...


class Fill(Protocol):
    """Capability ``fill``."""

    def fill(self, stream: Handle | None, dst: Handle, dst_offset: int, nbytes: int, byte: int) -> None:
        """Set bytes, in stream order."""
        ...


class PeerCopy(Protocol):
    """Capability ``peer_copy``: copies between two devices of one adapter."""

    def copy_peer(
        self, stream: Handle | None, dst: Handle, dst_offset: int, peer: Any, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        """Copy from ``src`` of the driver ``peer`` in the order of this device's ``stream``.

        The core has synchronised the peer's stream, and holds both drivers during the call.
        """
        ...


class Pinned(Protocol):
    """Capability ``pinned``: host memory that copies at full speed and asynchronously."""

    def allocate_pinned(self, nbytes: int) -> memoryview:
        """Writable page-locked host memory, freed when the last view of it dies."""
        ...
