"""Devices whose answers have nothing to do with the question: every case that compares values must fail on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from oarlock.hal import LaunchStep
from oarlock_saboteurs import BrokenDriver, saboteur
from oarlock_saboteurs.results import Array, Tampering
from oarlock_sim.memory import Allocation
from oarlock_sim.program import Program


@saboteur("arithmetic", "every result is zero")
class ResultsZeroed(Tampering):
    kinds = ()

    def tamper(self, old: Array, new: Array, wrote: Array) -> None:
        new[wrote] = 0


@saboteur("arithmetic", "kernels read something else than what was given: every byte of their operands is scrambled")
class InputsScrambled(BrokenDriver):
    def _run(self, step: LaunchStep) -> None:
        arguments = self.find(step.program, Program, "scramble").signatures[step.entry].buffers
        written = {handle for (handle, _, _), a in zip(step.buffers, arguments, strict=True) if a.access != "read"}
        read = {
            handle for (handle, _, _), a in zip(step.buffers, arguments, strict=True) if a.access == "read"
        } - written
        kept: list[tuple[Any, bytes]] = []
        for handle in read:
            view = self.find(handle, Allocation, "scramble").view
            kept.append((view, bytes(view)))
            scrambled = np.frombuffer(view, np.uint8)
            scrambled ^= 0x5A
            self.hit()
        super()._run(step)
        for view, content in kept:
            view[:] = content
