"""The adapter: finds devices, opens them, compiles for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from oarlock.hal.device import DeviceDriver, DeviceInfo
from oarlock.hal.memory import MemoryDriver
from oarlock.hal.program import ProgramDriver
from oarlock.hal.stream import StreamDriver
from oarlock.target import Target

__all__ = ["CONTRACT", "Adapter", "Driver"]

CONTRACT = (1, 0)
"""The version of the contract that this core speaks: (major, minor)."""


class Driver(DeviceDriver, MemoryDriver, StreamDriver, ProgramDriver, ABC):
    """One open device. Handles it gives out are opaque to the core and belong to this driver alone.

    The core calls a driver from one thread at a time, unless a method says otherwise; it never calls it after
    ``close``, nor in a forked child.
    """


class Adapter(ABC):
    """What an adapter package offers: one object, made by its ``oarlock_adapter`` hook.

    Making it must be cheap and must not touch the vendor's libraries: those load in ``devices`` and ``open``.
    """

    contract: ClassVar[tuple[int, int]] = (1, 0)
    """The contract's version that this adapter was written for."""

    version: ClassVar[str] = "0"
    """The adapter's own version, as its users know it."""

    @abstractmethod
    def devices(self) -> list[DeviceInfo]:
        """The devices there are, in a stable order: the position is the index in ``name:index``.

        May load the vendor's libraries. An empty list: the stack works and has no device. Raise DeviceError (or let
        the OSError of a missing library through) when the stack itself is missing; the text is shown to the user.
        """

    @abstractmethod
    def open(self, index: int) -> Driver:
        """Open device ``index`` of ``devices()``. A device may be opened again after ``close``."""

    @abstractmethod
    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        """Compile ``source`` (in ``target.language``), which defines the kernels ``entries``.

        The bytes are stored on disk and given to ``load``, perhaps in another process; returning the source is
        allowed where the driver compiles. Needs no open device. Raises CompileError with the log and the source.
        Called from several threads at once.
        """

    def cache_key(self, target: Target) -> str:
        """What besides target and source the compiled bytes depend on: compiler and driver versions."""
        return self.version
