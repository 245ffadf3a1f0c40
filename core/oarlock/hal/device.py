"""The device: what it is, and closing it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal, Protocol

from oarlock.target import Target

__all__ = ["DeviceDriver", "DeviceInfo", "MemoryInfo", "Reset"]


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One device of an adapter. ``capabilities`` names the optional interfaces that it has.

    Capabilities: ``address``, ``communication``, ``elapsed_time``, ``fill``, ``host_callbacks``, ``host_memory``,
    ``memory_info``, ``operators``, ``peer_copy``, ``pinned``, ``plans``, ``reset``, ``streams``.
    """

    name: str
    """The device, as its buyers know it."""
    vendor: str
    """Who makes it."""
    driver: str
    """Name and version of the vendor's driver."""
    memory: int
    """Bytes that allocations may take together, above 0."""
    target: Target
    """What kernels for it may assume."""
    capabilities: frozenset[str] = frozenset()
    """Words of the list above; a driver without a declared word's methods cannot be opened."""
    failure_scope: Literal["stream", "device"] = "stream"
    """What a failed command spoils: its stream until it is synchronised, or the device."""
    is_accelerator: bool = True
    """False for the host itself, which must not count when an accelerator is picked."""
    notes: tuple[str, ...] = field(default=())
    """Short remarks for a person, such as "float16 stored, computed as float32"."""


class DeviceDriver(ABC):
    """The device part of a driver."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back: memory, programs, streams, threads. Called at most once, also when the device was
        lost.

        Live handles die with the device, without ``free``. Work in flight is finished or dropped; nothing of it writes
        to host memory afterwards. Returns in seconds even where the device hangs, and prints nothing, also at exit.
        """


class MemoryInfo(Protocol):
    """Capability ``memory_info``."""

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes of the device, other processes' memory counted as taken."""
        ...


class Reset(Protocol):
    """Capability ``reset``."""

    def reset(self) -> None:
        """Bring a lost device back as far as the vendor can; all handles die. Called before ``close`` on a lost device;
        raises DeviceLostError where it cannot."""
        ...
