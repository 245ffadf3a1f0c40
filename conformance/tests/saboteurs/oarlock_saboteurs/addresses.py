"""Faults of addresses, adopted memory and page-locked memory."""

from __future__ import annotations

import ctypes

from oarlock.hal import Handle
from oarlock_saboteurs import saboteur
from oarlock_saboteurs.bases import Addressed, AddressedDriver
from oarlock_sim.memory import Allocation


@saboteur("address", "allocations begin one byte past an aligned address", Addressed)
class AddressMisaligned(AddressedDriver):
    def allocate(self, nbytes: int) -> Handle:
        self.hit()
        handle = super().allocate(nbytes + 1)
        memory = self.find(handle, Allocation, "allocate")
        memory.nbytes, memory.view, memory.address = nbytes, memory.view[1:], memory.address + 1
        self.used -= 1
        return handle


@saboteur("address", "address gives the address of a copy that was made when it was asked", Addressed)
class AddressOfCopy(AddressedDriver):
    def address(self, handle: Handle) -> int:
        self.hit()
        memory = self.find(handle, Allocation, "address")
        copies: dict[Handle, ctypes.Array[ctypes.c_char]] = self.__dict__.setdefault("copies", {})
        copies[handle] = ctypes.create_string_buffer(bytes(memory.view), memory.nbytes)
        return ctypes.addressof(copies[handle])


@saboteur("address", "adopt copies the foreign memory", Addressed)
class AdoptCopies(AddressedDriver):
    def adopt(self, address: int, nbytes: int, owner: object) -> Handle:
        self.hit()
        handle = self.allocate(nbytes)
        self.find(handle, Allocation, "adopt").view[:] = ctypes.string_at(address, nbytes)
        return handle


@saboteur("address", "adopt does not keep the owner of the memory", Addressed)
class AdoptForgetsOwner(AddressedDriver):
    def adopt(self, address: int, nbytes: int, owner: object) -> Handle:
        self.hit()
        return super().adopt(address, nbytes, None)


@saboteur("address", "page-locked memory cannot be written", Addressed)
class PinnedReadOnly(AddressedDriver):
    def allocate_pinned(self, nbytes: int) -> memoryview:
        self.hit()
        return memoryview(bytes(nbytes))


@saboteur("address", "page-locked memory is used again while a view of a part of it lives", Addressed)
class PinnedReused(AddressedDriver):
    kept: bytearray | None = None

    def allocate_pinned(self, nbytes: int) -> memoryview:
        if self.kept is not None and len(self.kept) == nbytes:
            self.hit()
            return memoryview(self.kept)
        self.kept = bytearray(nbytes)
        return memoryview(self.kept)
