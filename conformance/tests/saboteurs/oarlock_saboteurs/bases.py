"""The simulators that faults are planted in, without a fault: roomy, tight, two devices, and memory with addresses."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

from oarlock.hal import DeviceInfo, Driver, Handle
from oarlock_saboteurs.base import BrokenAdapter, BrokenDriver, healthy
from oarlock_sim.device import SimAdapter, SimDriver
from oarlock_sim.memory import Allocation

__all__ = ["Addressed", "AddressedDriver", "Healthy", "Pair", "Tight"]


@healthy
class Healthy(BrokenAdapter):
    """The roomy device."""


@healthy
class Tight(BrokenAdapter):
    """The tight device: few buffers, aligned bindings and copies, no optional ability."""

    def devices(self) -> list[DeviceInfo]:
        return SimAdapter.devices(self)[1:]


@healthy
class Pair(BrokenAdapter):
    """Two roomy devices, which copy from each other."""

    def devices(self) -> list[DeviceInfo]:
        (info,) = super().devices()
        return [replace(info, name=f"{info.name} {index}") for index in range(2)]


class AddressedDriver(BrokenDriver):
    """A driver whose memory the host may use."""

    def address(self, handle: Handle) -> int:
        return int(self.find(handle, Allocation, "address").address)

    def adopt(self, address: int, nbytes: int, owner: object) -> Handle:
        return self.keep(Foreign(address, nbytes, owner))

    def allocate_pinned(self, nbytes: int) -> memoryview:
        return memoryview(bytearray(nbytes))


class Foreign(Allocation):
    """Memory that belongs to ``owner``."""

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.nbytes = nbytes
        self.owner = owner
        self.address = address
        kind: Any = ctypes.c_char * nbytes
        self.view = memoryview(kind.from_address(address)).cast("B")

    def check_guards(self, kernel: str) -> None:
        return None  # what lies around it is not ours


@healthy
class Addressed(BrokenAdapter):
    """The roomy device with addresses that the host may use, and page-locked memory."""

    driver: type[SimDriver] = AddressedDriver

    def devices(self) -> list[DeviceInfo]:
        (info,) = super().devices()
        return [replace(info, capabilities=info.capabilities | {"address", "host_memory", "pinned"})]

    def open(self, index: int) -> Driver:
        return self.driver(self.devices()[index], self.plan)
