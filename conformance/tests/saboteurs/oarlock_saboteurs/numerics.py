"""Faults of results: what some kernels store is changed afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock.hal import LaunchStep
from oarlock_saboteurs import BrokenDriver, saboteur
from oarlock_sim.memory import Allocation
from oarlock_sim.program import Program

Array = npt.NDArray[Any]


class Tampering(BrokenDriver):
    """Changes what kernels wrote. ``words``: those whose name holds one of them (empty: all)."""

    words: tuple[str, ...] = ()

    def tamper(self, values: Array) -> None:
        """Change the floats that lie in an output's allocation."""
        raise NotImplementedError

    def _run(self, step: LaunchStep) -> None:
        super()._run(step)
        if self.words and not any(word in step.entry for word in self.words):
            return
        signatures = self.find(step.program, Program, "tamper").signatures
        for (handle, _, _), argument in zip(step.buffers, signatures[step.entry].buffers, strict=True):
            if argument.access == "read" or argument.dtype.name != "float32":
                continue
            memory = self.find(handle, Allocation, "tamper")
            with np.errstate(all="ignore"):
                self.tamper(np.frombuffer(memory.view[: memory.nbytes // 4 * 4], np.float32))


@saboteur("numerics", "reductions to the largest and smallest value swallow NaN")
class ExtremesSwallowNan(Tampering):
    words = ("reduce_max", "reduce_min")

    def tamper(self, values: Array) -> None:
        values[np.isnan(values)] = 0.0


@saboteur("numerics", "every result is zero")
class ResultsZeroed(Tampering):
    def tamper(self, values: Array) -> None:
        values[:] = 0.0


@saboteur("numerics", "tanh is off by 16 ulp")
class TanhInexact(Tampering):
    words = ("tanh",)

    def tamper(self, values: Array) -> None:
        values *= np.float32(1 + 2e-6)


@saboteur("numerics", "sums are off by one part in 100,000")
class SumsInexact(Tampering):
    words = ("reduce_sum",)

    def tamper(self, values: Array) -> None:
        values *= np.float32(1.00001)


@saboteur("numerics", "results change a little from run to run")
class ResultsWander(Tampering):
    number = 0

    def tamper(self, values: Array) -> None:
        self.number += 1
        if self.number % 2:
            bits = values.view(np.uint32)
            bits ^= (np.isfinite(values) & (values != 0)).astype(np.uint32)


@saboteur("numerics", "subnormal results are flushed, and flush_to_zero does not say so")
class FlushesSilently(Tampering):
    def tamper(self, values: Array) -> None:
        values[np.abs(values) < np.finfo(np.float32).tiny] *= 0.0
