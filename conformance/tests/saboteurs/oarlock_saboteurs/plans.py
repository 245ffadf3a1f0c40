"""Faults of whole plans: prepared once, replayed with other memory and other scalars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oarlock.hal import CopyStep, Handle, LaunchStep
from oarlock_saboteurs import BrokenDriver, saboteur
from oarlock_sim.program import Recorded

Scalars = Sequence[tuple[int, int, bytes]]
Steps = Sequence[LaunchStep | CopyStep]


@saboteur("plan", "replay forgets the scalars that it is given")
class ReplayForgetsScalars(BrokenDriver):
    def replay(self, stream: Handle | None, plan: Handle, bindings: Sequence[Handle], scalars: Scalars) -> None:
        if scalars:
            self.hit()
        super().replay(stream, plan, bindings, ())


@saboteur("plan", "scalars that a replay was given stay for later ones")
class ReplayScalarsStay(BrokenDriver):
    def replay(self, stream: Handle | None, plan: Handle, bindings: Sequence[Handle], scalars: Scalars) -> None:
        kept: dict[Any, bytes] = self.__dict__.setdefault("kept", {}).setdefault(plan, {})
        kept.update({(step, offset): data for step, offset, data in scalars})
        if len(kept) > len(scalars):
            self.hit()
        super().replay(stream, plan, bindings, [(*key, data) for key, data in kept.items()])


@saboteur("plan", "replay keeps the memory of its first run")
class ReplayKeepsBindings(BrokenDriver):
    def replay(self, stream: Handle | None, plan: Handle, bindings: Sequence[Handle], scalars: Scalars) -> None:
        first: dict[Handle, list[Handle]] = self.__dict__.setdefault("first", {})
        old = first.setdefault(plan, list(bindings))
        if old != list(bindings):
            self.hit()
        super().replay(stream, plan, old, scalars)


@saboteur("plan", "replay leaves out the last step of a plan of several")
class ReplayDropsLast(BrokenDriver):
    def prepare(self, steps: Steps) -> Handle:
        if len(steps) > 1:
            self.hit()
        return super().prepare(steps[:-1] if len(steps) > 1 else steps)


@saboteur("plan", "the copies of a plan run before its launches")
class ReplayCopiesFirst(BrokenDriver):
    def prepare(self, steps: Steps) -> Handle:
        copies = [step for step in steps if isinstance(step, CopyStep)]
        if copies and any(isinstance(step, LaunchStep) for step in steps):
            self.hit()
            steps = [*copies, *(step for step in steps if isinstance(step, LaunchStep))]
        return super().prepare(steps)


@saboteur("plan", "the copies of a plan move whole allocations from their start")
class ReplayCopiesAtStart(BrokenDriver):
    def prepare(self, steps: Steps) -> Handle:
        if any(isinstance(step, CopyStep) and (step.dst_offset or step.src_offset) for step in steps):
            self.hit()
        return super().prepare(
            [CopyStep(s.dst, 0, s.src, 0, s.nbytes) if isinstance(s, CopyStep) else s for s in steps]
        )


@saboteur("plan", "a plan runs on the default stream")
class ReplayIgnoresStream(BrokenDriver):
    def replay(self, stream: Handle | None, plan: Handle, bindings: Sequence[Handle], scalars: Scalars) -> None:
        if stream is not None:
            self.hit()
        super().replay(None, plan, bindings, scalars)


@saboteur("plan", "preparing a plan replaces the one before it")
class PlansReplaced(BrokenDriver):
    def prepare(self, steps: Steps) -> Handle:
        handle = super().prepare(steps)
        for key, thing in self.objects.items():
            if isinstance(thing, Recorded) and key != handle:
                self.hit()
                self.objects[key] = self.objects[handle]
        return handle
