"""Memory: allocation and copies, on opaque handles. Offsets and sizes are bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol, TypeAlias

__all__ = ["Addressable", "Fill", "Handle", "MemoryDriver", "PeerCopy", "Pinned"]

Handle: TypeAlias = Any
"""What a driver gives out for memory, programs, streams, events or plans; opaque to the core."""


class MemoryDriver(ABC):
    """The memory part of a driver. The core checks bounds, pools memory, and never passes 0 bytes."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Handle:
        """``nbytes`` > 0 of device memory, aligned for any dtype and for ``binding_alignment``; content undefined.

        Raises OutOfMemoryError when there is not enough; the device stays usable.
        """

    @abstractmethod
    def free(self, handle: Handle) -> None:
        """Free what ``allocate`` or ``load`` gave. The core has waited for all work that uses it."""

    @abstractmethod
    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        """Copy the contiguous bytes ``src`` of the host to ``dst`` at ``dst_offset``, in stream order.

        Returns when ``src`` may be reused.
        """

    @abstractmethod
    def copy_out(self, stream: Handle | None, dst: memoryview, src: Handle, src_offset: int) -> None:
        """Copy ``len(dst)`` bytes of ``src`` from ``src_offset`` to the writable host bytes ``dst``, in stream order.

        ``dst`` is readable after ``synchronize(stream)``; the core keeps it alive until then.
        """

    @abstractmethod
    def copy(
        self, stream: Handle | None, dst: Handle, dst_offset: int, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        """Copy within the device, in stream order. Ranges of one allocation do not overlap (the core sees to it)."""


class Addressable(Protocol):
    """Capability ``address``: the memory has addresses that the host or a vendor library understands."""

    def address(self, handle: Handle) -> int:
        """The address of an allocation's first byte. With capability ``host_memory`` the host may use it too."""
        ...

    def adopt(self, address: int, nbytes: int, owner: object) -> Handle:
        """A handle on foreign memory; ``owner`` is kept until ``free``."""
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
        """Copy from ``src`` of the driver ``peer`` in the order of this device's ``stream``."""
        ...


class Pinned(Protocol):
    """Capability ``pinned``: host memory that copies at full speed and asynchronously."""

    def allocate_pinned(self, nbytes: int) -> memoryview:
        """Writable page-locked host memory, freed when the view dies."""
        ...
