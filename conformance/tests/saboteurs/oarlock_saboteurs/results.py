"""Faults of results: what some kernels stored is changed, or not stored after all."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from oarlock.hal import LaunchStep
from oarlock_saboteurs import BrokenDriver, saboteur
from oarlock_sim.memory import Allocation
from oarlock_sim.program import Program

Array = npt.NDArray[Any]


class Tampering(BrokenDriver):
    """Changes what kernels wrote. ``words``: kernels whose name holds one of them (empty: all); ``kinds``: dtypes of
    the buffers that are changed, in their storage (empty: all)."""

    words: ClassVar[tuple[str, ...]] = ()
    kinds: ClassVar[tuple[str, ...]] = ("float32",)

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        """Change ``new`` in place: a buffer's whole allocation, which was ``old`` before the launch. ``wrote`` holds
        the indices where the bytes differ."""
        raise NotImplementedError

    def _run(self, step: LaunchStep) -> None:
        if self.words and not any(word in step.entry for word in self.words):
            super()._run(step)
            return
        signature = self.find(step.program, Program, "tamper").signatures[step.entry]
        kept: list[tuple[Array, Array]] = []
        for (handle, _, _), argument in zip(step.buffers, signature.buffers, strict=True):
            if argument.access != "read" and (not self.kinds or argument.dtype.name in self.kinds):
                memory: Allocation = self.find(handle, Allocation, "tamper")
                dtype = argument.storage.numpy
                new = np.frombuffer(memory.view[: memory.nbytes // dtype.itemsize * dtype.itemsize], dtype)
                kept.append((new.copy(), new))
        super()._run(step)
        for old, new in kept:
            bits = np.dtype(f"u{new.itemsize}")
            wrote = np.flatnonzero(old.view(bits) != new.view(bits))
            if not len(wrote):
                continue
            before = new.tobytes()
            with np.errstate(all="ignore"):
                self.tamper(old, new, wrote)
            if new.tobytes() != before:
                self.hit()


def _scale(factor: float) -> Any:
    """A tamper method that multiplies."""

    def tamper(self: Tampering, old: Array, new: Array, wrote: Array) -> None:
        new[wrote] *= new.dtype.type(factor)

    return tamper


@saboteur("arithmetic", "results change a little from run to run")
class ResultsWander(Tampering):
    number = 0

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        self.number += 1
        if self.number % 2:
            bits = new.view(np.uint32)
            bits[wrote] ^= (np.isfinite(new[wrote]) & (new[wrote] != 0)).astype(np.uint32)


@saboteur("arithmetic", "subnormal results are flushed, and flush_to_zero does not say so")
class FlushesSilently(Tampering):
    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        small = wrote[np.abs(new[wrote]) < np.finfo(np.float32).tiny]
        new[small] *= 0.0


@saboteur("arithmetic", "a negative zero is stored as zero")
class NegativeZeroLost(Tampering):
    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        new[wrote[new[wrote] == 0]] = 0.0


@saboteur("arithmetic", "an infinite result is the largest finite number")
class InfinityClipped(Tampering):
    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        infinite = wrote[np.isinf(new[wrote])]
        new[infinite] = np.copysign(np.finfo(np.float32).max, new[infinite])


@saboteur("arithmetic", "int64 results pass through float32")
class LongThroughFloat(Tampering):
    kinds = ("int64",)

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        new[wrote] = new[wrote].astype(np.float32).astype(np.int64)


@saboteur("arithmetic", "float64 is computed as float32")
class DoubleThroughFloat(Tampering):
    kinds = ("float64",)

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        new[wrote] = new[wrote].astype(np.float32)


@saboteur("arithmetic", "the last element of a result of more than 64 is not stored")
class LastElementDropped(Tampering):
    kinds = ()

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        if len(wrote) > 64:
            new[wrote[-1]] = old[wrote[-1]]


@saboteur("arithmetic", "elements of a result past the 256th come from the tile before")
class TilesRepeat(Tampering):
    kinds = ()

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        if len(wrote) > 256:
            new[wrote[256:]] = new[wrote[: len(wrote) - 256]].copy()


@saboteur("arithmetic", "a result that is zero is not stored, and what was in its memory shows")
class ZerosNotStored(Tampering):
    kinds = ()

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        zeros = wrote[new[wrote] == 0]
        new[zeros] = old[zeros]


@saboteur("arithmetic", "a kernel clears the element behind its result")
class WritesBehind(Tampering):
    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        if wrote[-1] + 1 < len(new):
            new[wrote[-1] + 1] = 0


@saboteur("arithmetic", "a kernel leaves the sign of its first operand's first element cleared")
class WritesOperand(BrokenDriver):
    def _run(self, step: LaunchStep) -> None:
        super()._run(step)
        signature = self.find(step.program, Program, "tamper").signatures[step.entry]
        if len(signature.buffers) > 1 and signature.buffers[0].access == "read":
            handle, offset = step.buffers[0][0], int.from_bytes(step.scalars[:4], "little")
            at = (offset + 1) * signature.buffers[0].storage.itemsize - 1
            memory = self.find(handle, Allocation, "tamper")
            if at < memory.nbytes and memory.view[at] & 0x80:
                self.hit()
                memory.view[at] &= 0x7F


@saboteur("arithmetic", "true is stored as 255")
class BooleansDirty(Tampering):
    kinds = ("bool",)

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        raw = new.view(np.uint8)
        raw[wrote[raw[wrote] == 1]] = 255


@saboteur("elementary", "exp is off by 6 ulp")
class ExpInexact(Tampering):
    words = ("exp",)
    tamper = _scale(1 + 7e-7)


@saboteur("elementary", "the square root is off by 3 ulp")
class RootInexact(Tampering):
    words = ("sqrt",)
    tamper = _scale(1 + 3.6e-7)


@saboteur("elementary", "the logarithm of a number below 1 is off by one part in 100,000")
class LogInexact(Tampering):
    words = ("log",)

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        negative = wrote[new[wrote] < 0]
        new[negative] *= np.float32(1.00001)


@saboteur("reduce", "reductions to the largest and smallest value swallow NaN")
class ExtremesSwallowNan(Tampering):
    words = ("reduce_max", "reduce_min")

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        new[wrote[np.isnan(new[wrote])]] = 0.0


@saboteur("reduce", "sums are off by one part in 100,000")
class SumsInexact(Tampering):
    words = ("reduce_sum",)
    tamper = _scale(1.00001)


@saboteur("reduce", "an integer sum saturates at 255")
class SumsSaturate(Tampering):
    words = ("reduce_sum",)
    kinds = ("int32", "int64")

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        new[wrote] = np.clip(new[wrote], -255, 255)


@saboteur("products", "products are off by 2 %")
class ProductsInexact(Tampering):
    words = ("dot_general",)
    tamper = _scale(1.02)


@saboteur("products", "products of float32 are rounded to the 10 bits of a matrix unit's short float")
class ProductsShort(Tampering):
    words = ("dot_general",)

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        bits = new.view(np.uint32)
        bits[wrote] = (bits[wrote] + np.uint32(0x1000)) & np.uint32(0xFFFFE000)


@saboteur("movement", "the last eight elements of a result of more than 64 keep what was there")
class LastVectorStale(Tampering):
    kinds = ()

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        if len(wrote) > 64:
            new[wrote[-8:]] = old[wrote[-8:]]


@saboteur("movement", "two neighbours of a transposed result change places")
class NeighboursSwap(Tampering):
    words = ("transpose",)
    kinds = ()

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        if len(wrote) > 1:
            new[wrote[:2]] = new[wrote[1::-1]].copy()


@saboteur("sort", "NaN is sorted to the front")
class SortPutsNanFirst(Tampering):
    words = ("sort", "top_k", "merge")

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        found = new[wrote]
        new[wrote] = np.concatenate([found[np.isnan(found)], found[~np.isnan(found)]])


@saboteur("random", "random bits are off in the last place")
class RandomDiffers(Tampering):
    words = ("random",)
    kinds = ()

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        if new.dtype.kind == "u":
            new[wrote] ^= 1


@saboteur("random", "random bits repeat after 64 elements")
class RandomRepeats(Tampering):
    words = ("random",)
    kinds = ()

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        if len(wrote) > 64:
            new[wrote] = np.resize(new[wrote[:64]], len(wrote))


@saboteur("fused", "a kernel that joins several operators loses one part in 10,000")
class FusedInexact(Tampering):
    words = ("_and_", "softmax", "norm")
    tamper = _scale(1.0001)


@saboteur("fused", "elements past the 200th of a kernel with exp are off by 1 %")
class LongRowsWrong(Tampering):
    words = ("exp",)

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        if len(wrote) > 200:
            new[wrote[200:]] *= np.float32(1.01)
