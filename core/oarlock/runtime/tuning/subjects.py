"""The subjects of a program: what of it a tuner may look at, each once, as a program of its own."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from oarlock.codegen.candidates import Axis, space_of
from oarlock.codegen.lower.subject import Subject
from oarlock.codegen.pipeline import lower, prepare
from oarlock.codegen.schedule import RULES, Schedule
from oarlock.ir import Operation
from oarlock.registry.compiler import all_passes, context
from oarlock.runtime.device import Device
from oarlock.runtime.library import claims_of
from oarlock.target import Target

__all__ = ["Work", "works_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """A subject as a function; ``fixed`` are the positions of arguments that are the same in every run.

    ``count``: how often the program does it. ``space``: what may be tried. ``operator``: the contraction that it is, in
    ``function``; None for a group.
    """

    key: str
    function: Operation
    fixed: tuple[int, ...]
    count: int
    space: tuple[Axis, ...]
    operator: Operation | None


class _Recorder:
    """A choice that leaves all to the rules, and notes what it was asked for."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.works: dict[str, Work] = {}

    def __call__(self, subject: Subject) -> Schedule:
        key = subject.key
        known = self.works.get(key)
        if known is None:  # made now: expansion goes on to take operators apart
            function, fixed = subject.program()
            name = subject.members[0].name if subject.is_operator else None
            operator = next((op for op in function.regions[0].block.ops if op.name == name), None)
            known = Work(key, function, fixed, 0, space_of(subject, self.target), operator)
        self.works[key] = replace(known, count=known.count + 1)
        return RULES


def works_of(function: Operation, device: Device, fixed: Collection[int] = ()) -> tuple[list[Work], list[str]]:
    """The subjects of ``function`` that have something to try, and the keys of those that are not the same by
    themselves, because the compiler would make something else of them."""
    works: list[Work] = []
    changed: list[str] = []
    for key, work in _subjects(function, device, fixed).items():
        if not work.space or len(work.fixed) == len(work.function.regions[0].block.args):
            continue  # nothing to try, or it runs once, when a plan is made
        if key in _subjects(work.function, device, work.fixed):
            works.append(work)
        else:
            changed.append(key)
    return works, changed


def _subjects(function: Operation, device: Device, fixed: Collection[int]) -> dict[str, Work]:
    """What the compiler asks a schedule for, by key, when it compiles ``function``."""
    recorder = _Recorder(device.target)
    lower(prepare(function, device.target, all_passes(), context()), device.target, claims_of(device), recorder, fixed)
    return recorder.works
