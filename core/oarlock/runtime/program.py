"""A program loaded on a device: its kernels by name, alive as long as work uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oarlock.abi import Executable, KernelSignature
from oarlock.hal import Handle
from oarlock.runtime.retired import Retired

if TYPE_CHECKING:
    from oarlock.runtime.device import Device
    from oarlock.runtime.stream import Stream

__all__ = ["Plan", "Program"]


class _Loaded:
    """A driver's handle with the last use per stream; retired when the last reference goes."""

    __slots__ = ("__weakref__", "device", "handle", "uses")

    def __init__(self, device: Device, handle: Handle) -> None:
        self.device = device
        self.handle = handle
        self.uses: dict[Stream, int] = {}


class Program(_Loaded):
    """Kernels of one Executable on one device, by name in ``signatures``. Made by ``Device.load``."""

    __slots__ = ("executable", "signatures")

    def __init__(self, device: Device, handle: Handle, executable: Executable) -> None:
        super().__init__(device, handle)
        self.executable = executable
        self.signatures: dict[str, KernelSignature] = {item.name: item for item in executable.signatures}

    def __del__(self) -> None:
        self.device.dropped.append(Retired("program", self.handle, self.uses))

    def __repr__(self) -> str:
        return f"<Program {self.device.name} {', '.join(self.signatures)}>"


class Plan(_Loaded):
    """A whole plan that the driver keeps and replays by one call. Made by ``Device.prepare``."""

    __slots__ = ("programs",)

    def __init__(self, device: Device, handle: Handle, programs: Sequence[Program]) -> None:
        super().__init__(device, handle)
        self.programs = tuple(programs)

    def __del__(self) -> None:
        self.device.dropped.append(Retired("plan", self.handle, self.uses))
