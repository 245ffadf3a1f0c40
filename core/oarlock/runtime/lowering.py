"""From a function to what a plan is made of: read from the disk where another process left it, else lowered here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.pipeline import Lowered, lower, prepare
from oarlock.codegen.schedule import Choice
from oarlock.ir import Operation, Pass
from oarlock.ir.extents import Extents
from oarlock.registry.compiler import all_passes, context
from oarlock.runtime.collector import rare_collections
from oarlock.runtime.device import Device
from oarlock.runtime.kernels import Progress, kernels_of
from oarlock.runtime.outcome import Part, outcome_of
from oarlock.runtime.program import Program
from oarlock.runtime.tuning.known import schedules_of
from oarlock.runtime.warm import Claims, entry_for

__all__ = ["Ready", "lowered", "ready"]


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """The function after expansion, what runs, the programs that hold its kernels by name, and the lowering if one
    was done."""

    function: Operation
    parts: tuple[Part, ...]
    programs: dict[str, Program]
    lowered: Lowered | None


@rare_collections()
def ready(
    function: Operation,
    device: Device,
    progress: Progress | None,
    fixed: Collection[int],
    choice: Choice | None,
    extents: Extents | None,
) -> Ready:
    """``function`` for ``device``; see ``Plan``. Raises UnsupportedError or CompileError."""
    passes = all_passes()
    entry = None
    if choice is None and extents is None:
        entry = entry_for(function, device, passes, schedules_of(device), fixed)
        found = entry.read(progress) if entry is not None else None
        if found is not None:
            outcome, programs = found
            return Ready(outcome.function, outcome.parts, programs, None)
    claims = Claims(device)
    made = _lowered(function, device, passes, claims, fixed, choice, extents)
    programs = kernels_of(device).get([call for call in made.calls if isinstance(call, KernelCall)], progress)
    outcome = outcome_of(made)
    if entry is not None:
        entry.write(outcome, programs, claims)
    return Ready(outcome.function, outcome.parts, programs, made)


def lowered(
    function: Operation, device: Device, fixed: Collection[int], choice: Choice | None, extents: Extents | None
) -> Lowered:
    """``function`` lowered for ``device``, without a look at the disk."""
    return _lowered(function, device, all_passes(), Claims(device), fixed, choice, extents)


def _lowered(
    function: Operation,
    device: Device,
    passes: list[Pass],
    claims: Claims,
    fixed: Collection[int],
    choice: Choice | None,
    extents: Extents | None,
) -> Lowered:
    prepared = prepare(function, device.target, passes, context())
    if extents is None:
        return lower(prepared, device.target, claims, choice or schedules_of(device), fixed)
    return lower(prepared, device.target, fixed=fixed)  # adapters' kernels and measured schedules are for exact sizes
