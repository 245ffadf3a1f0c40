"""Faults of what the adapter says about itself and its devices before anything runs."""

from __future__ import annotations

import itertools
from dataclasses import replace

from oarlock.errors import DeviceError
from oarlock.hal import DeviceInfo
from oarlock.target import Target
from oarlock_saboteurs import BrokenAdapter, saboteur
from oarlock_saboteurs.bases import Pair


@saboteur("discovery", "the devices come in another order each time")
class DevicesReordered(Pair):
    number = 0

    def devices(self) -> list[DeviceInfo]:
        self.number += 1
        self.hit()
        found = super().devices()
        return found[::-1] if self.number % 2 else found


@saboteur("discovery", "the target's architecture differs from call to call")
class TargetWanders(BrokenAdapter):
    numbers = itertools.count()

    def devices(self) -> list[DeviceInfo]:
        (info,) = super().devices()
        self.hit()
        return [replace(info, target=replace(info.target, arch=f"sim-roomy-{next(self.numbers)}"))]


@saboteur("discovery", "the cache key differs from call to call")
class CacheKeyWanders(BrokenAdapter):
    numbers = itertools.count()

    def cache_key(self, target: Target) -> str:
        self.hit()
        return f"{super().cache_key(target)} {next(self.numbers)}"


@saboteur("discovery", "the cache key is empty")
class CacheKeyEmpty(BrokenAdapter):
    def cache_key(self, target: Target) -> str:
        self.hit()
        return ""


@saboteur("discovery", "a device has no name, vendor or driver")
class InfoBlank(BrokenAdapter):
    def devices(self) -> list[DeviceInfo]:
        (info,) = super().devices()
        self.hit()
        return [replace(info, name="", vendor="", driver="")]


@saboteur("discovery", "a device has no memory")
class MemoryZero(BrokenAdapter):
    def devices(self) -> list[DeviceInfo]:
        (info,) = super().devices()
        self.hit()
        return [replace(info, memory=0)]


@saboteur("discovery", "a device says it has a capability that the contract does not know")
class CapabilityUnknown(BrokenAdapter):
    def devices(self) -> list[DeviceInfo]:
        (info,) = super().devices()
        self.hit()
        return [replace(info, capabilities=info.capabilities | {"turbo"})]


@saboteur("discovery", "the adapter was written for a contract that does not exist yet")
class ContractAhead(BrokenAdapter):
    contract = (9, 0)

    def devices(self) -> list[DeviceInfo]:
        self.hit()
        return super().devices()

    def __init__(self) -> None:
        self.hit()
        super().__init__()


@saboteur("discovery", "devices() fails when it is called for the fourth time")
class DevicesOnce(BrokenAdapter):
    number = 0

    def devices(self) -> list[DeviceInfo]:
        self.number += 1
        if self.number > 3:
            self.hit()
            raise DeviceError("the driver is initialised already")
        return super().devices()
