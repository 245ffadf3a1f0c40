"""Devices whose answers have nothing to do with the question: every case that compares values must fail on them."""

from __future__ import annotations

from oarlock.hal import Handle
from oarlock_saboteurs import BrokenDriver, saboteur
from oarlock_saboteurs.results import Array, Tampering


@saboteur("arithmetic", "every result is zero: what kernels write, and what is copied to the host")
class ResultsZeroed(Tampering):
    kinds = ()

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        new[wrote] = 0

    def copy_out(self, stream: Handle | None, dst: memoryview, src: Handle, src_offset: int) -> None:
        super().copy_out(stream, dst, src, src_offset)
        self.synchronize(stream, 60.0)  # the copy is done beside the host
        dst[:] = bytes(len(dst))


@saboteur("arithmetic", "the device gets something else than what it was given: every byte is scrambled")
class InputsScrambled(BrokenDriver):
    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        self.hit()
        super().copy_in(stream, dst, dst_offset, memoryview(bytes(byte ^ 0x5A for byte in src.cast("B"))))
