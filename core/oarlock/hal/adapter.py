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

    Threads: the core calls a driver from one thread at a time, not always the same one; a method that may be called
    beside others says so. It never calls it after ``close``, nor in a forked child. A call that waits for the device
    keeps every other thread out of the driver: only ``synchronize`` and ``close`` should.

    Errors: a method raises the types of ``oarlock.errors`` that it names, with a text for users, and leaves everything
    as it was: nothing allocated, nothing submitted. Any other exception becomes a DeviceError that names the method.
    DeviceLostError, from any method, ends the device: only ``reset`` and ``close`` are called afterwards.

    Derive one class from this, and let mixins hold its parts; the parts need no base of their own.
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
        Equal every time it is called in a process: measure once, and keep it. Opens nothing that stays open. Listings
        call it in a child process, which is killed after a deadline.
        """

    @abstractmethod
    def open(self, index: int) -> Driver:
        """Open device ``index`` of ``devices()``; the core owns the driver, and calls ``close`` once.

        Several devices are open at once; one device once at a time, and again after ``close``. Raises
        DeviceNotFoundError for an index that is not there, DeviceError with the cause where it cannot be opened: then
        nothing of the attempt is left, and the next one may succeed. Not called in a forked child of a process that
        used the adapter.
        """

    @abstractmethod
    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        """Compile ``source`` (in ``target.language``), which defines the kernels ``entries``.

        The bytes are stored on disk and given to ``load``, perhaps in another process or after a restart; returning the
        source is allowed where the driver compiles. Needs no open device, and keeps nothing. Threads: called from
        several at once, beside calls of drivers. Raises CompileError with the log and the source
        (``CompileError.from_log``), also where an entry is not defined; the device stays usable.
        """

    def cache_key(self, target: Target) -> str:
        """What besides target and source the compiled bytes depend on: versions of compiler and driver, options.

        The same text every time while these are the same, in every process; another one when any has changed. Called
        often: cheap after the first time.
        """
        return self.version
