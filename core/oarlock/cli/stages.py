"""The stages that ``oarlock inspect`` shows, each as text for people and as JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.codegen.free import is_free
from oarlock.codegen.groups import Group
from oarlock.codegen.lower.call import KernelCall, LibraryCall
from oarlock.codegen.lower.group import label_of
from oarlock.codegen.pipeline import Lowered, lower, prepare, render
from oarlock.errors import ModelError
from oarlock.ir import Operation, Value
from oarlock.ir.json import to_json
from oarlock.ir.passes import Pass, PassManager
from oarlock.ir.printer import Printer
from oarlock.ir.text import print_op
from oarlock.ops import tensor
from oarlock.registry.compiler import all_passes, context
from oarlock.runtime.library import claims_of
from oarlock.runtime.plan import Launch, LibraryStep, Plan, Step
from oarlock.runtime.tuning.known import schedules_of

if TYPE_CHECKING:
    from oarlock.runtime.device import Device
    from oarlock.runtime.kernels import Progress

__all__ = ["Choice", "Pipeline", "Stage", "array_stage", "fused_stage", "kernel_stage", "plan_stage", "source_stage"]

_LINE = 400
"""Characters of one operation that people are shown in a group."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage as ``text``, and as ``data`` that JSON can hold."""

    text: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """What ``--only`` lets through: names that hold ``pattern``, where ``*`` and ``?`` are wildcards; None: all."""

    pattern: str | None = None

    def __call__(self, *names: str) -> bool:
        return self.pattern is None or any(fnmatchcase(name, f"*{self.pattern}*") for name in names)

    def check(self, found: object, what: str, names: Sequence[str]) -> None:
        """Raise ModelError where nothing was ``found``, naming some of what there is."""
        if self.pattern is not None and not found:
            some = list(dict.fromkeys(names))
            shown = ", ".join(some[:8]) + (f" and {len(some) - 8} more" if len(some) > 8 else "")
            raise ModelError(f"--only {self.pattern}: no {what} has that in its name; there are {shown or 'none'}")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The passes that programs take: ``passes`` (None: what every program takes) up to ``level``.

    ``print_after`` names those whose outcome is shown, or is True for all.
    """

    passes: tuple[Pass, ...] | None = None
    level: int = 2
    print_after: bool | frozenset[str] = False
    reproducers: Path | None = None

    def manager(self) -> PassManager:
        """Runs them, verifying after each."""
        return PassManager(
            context(),
            all_passes() if self.passes is None else self.passes,
            print_after=self.print_after,
            level=self.level,
            reproducers=self.reproducers,
        )

    def prepare(self, function: Operation, device: Device) -> Operation:
        """``function`` as it is compiled for ``device``."""
        passes = all_passes() if self.passes is None else self.passes
        return prepare(function, device.target, passes, context(), self.level)


STANDARD = Pipeline()
"""What every program takes."""


class Namer:
    """The values of a function as its text calls them: arguments first, then results in order."""

    def __init__(self, function: Operation) -> None:
        self._printer = Printer(regions=False)
        block = function.regions[0].block
        for value in (*block.args, *(result for op in block.ops for result in op.results)):
            self._printer.name(value)

    def __call__(self, value: Value) -> str:
        return self._printer.name(value)

    def typed(self, value: Value) -> str:
        """The value with its type."""
        return f"{self(value)}: {value.type}"

    def line(self, op: Operation) -> str:
        """An operation on one line that is not endless."""
        text = self._printer.line(op)
        return text if len(text) <= _LINE else text[:_LINE] + " ..."


# --- array ------------------------------------------------------------------------------------------------------------


def array_stage(function: Operation, choice: Choice, passes: bool, pipeline: Pipeline = STANDARD) -> Stage:
    """The program as it came, and after the passes."""
    manager = pipeline.manager()
    after = manager.run_on_copy(function)
    names = [op.name for part in (function, after) for op in part.regions[0].block.ops]
    choice.check(any(map(choice, names)), "operation", names)
    text = f"before passes\n{_program(function, choice)}\n\nafter passes\n{_program(after, choice)}"
    data: dict[str, Any] = {"before": _program_data(function, choice), "after": _program_data(after, choice)}
    between = [(result.name, result.text) for result in manager.results if result.text is not None]
    if between:
        text += "".join(f"\n\nafter {name}\n{program}" for name, program in between)
        data["between"] = [{"pass": name, "program": program} for name, program in between]
    if passes:
        text += f"\n\npasses\n{manager.report()}"
        data["passes"] = [
            {
                "name": result.name,
                "milliseconds": result.seconds * 1e3,
                "operations_before": result.operations_before,
                "operations_after": result.operations_after,
                "statistics": dict(result.statistics),
            }
            for result in manager.results
        ]
    return Stage(text, data)


def _chosen_lines(function: Operation, choice: Choice) -> list[str]:
    namer = Namer(function)
    return [namer.line(op) for op in function.regions[0].block.ops if choice(op.name)]


def _program(function: Operation, choice: Choice) -> str:
    if choice.pattern is None:
        return print_op(function)
    return "\n".join(f"  {line}" for line in _chosen_lines(function, choice)) or "  none"


def _program_data(function: Operation, choice: Choice) -> Any:
    return to_json(function, context()) if choice.pattern is None else _chosen_lines(function, choice)


# --- fused ------------------------------------------------------------------------------------------------------------


def _lowered(function: Operation, device: Device, pipeline: Pipeline) -> Lowered:
    prepared = pipeline.prepare(function, device)
    return lower(prepared, device.target, claims_of(device), schedules_of(device))


def fused_stage(function: Operation, device: Device, choice: Choice, pipeline: Pipeline = STANDARD) -> Stage:
    """The groups of operators that share a kernel."""
    lowered = _lowered(function, device, pipeline)
    namer = Namer(lowered.function)
    named = [(number, label_of(group), group) for number, group in enumerate(lowered.groups)]
    chosen = [item for item in named if choice(item[1], *(member.name for member in item[2].members))]
    choice.check(chosen, "group or operator", [label for _, label, _ in named])
    parts = [_group(number, label, group, namer) for number, label, group in chosen]
    return Stage(
        "\n\n".join([f"groups on {device.name}: {len(named)}", *(part.text for part in parts)]),
        {"device": device.name, "groups": [part.data for part in parts]},
    )


def _kind(group: Group) -> str:
    if group.library is not None:
        return "the adapter's own kernel"
    if group.anchor is not None:
        return group.anchor.name
    if group.axes is None:
        return "elements"
    return "columns" if group.is_column else "rows"


def _inlined(group: Group) -> list[Operation]:
    """The operators that move or make elements and are computed where members read them, in program order."""
    inside = set(group.members)
    found: dict[Operation, None] = {}
    work = [value for member in group.members for value in member.operands]
    while work:
        op = work.pop().defining_op
        if op is None or op in inside or op in found or not is_free(op):
            continue
        found[op] = None
        work += op.operands
    block = group.members[0].parent
    assert block is not None
    return [op for op in block.ops if op in found]


def _group(number: int, label: str, group: Group, namer: Namer) -> Stage:
    kind, reduced = _kind(group), sorted(group.reduced)
    domain = " x ".join(map(str, group.domain)) or "one element"
    head = f"group {number}  {label}\n  {kind} over {domain}"
    if reduced:
        head += f", reduced along dimension{'s' if len(reduced) > 1 else ''} {', '.join(map(str, reduced))}"
    inlined = _inlined(group)
    lines = [head]
    lines += [f"  reads     {namer.typed(value)}" for value in group.leaves]
    lines += [f"  inlines   {namer.line(op)}" for op in inlined]
    lines += [f"  computes  {namer.line(op)}" for op in group.members]
    lines += [f"  writes    {namer.typed(value)}" for value in group.stored]
    data = {
        "group": number,
        "label": label,
        "kind": kind,
        "domain": list(group.domain),
        "reduced": reduced,
        "leaves": [namer.typed(value) for value in group.leaves],
        "inlined": [namer.line(op) for op in inlined],
        "members": [namer.line(op) for op in group.members],
        "outputs": [namer.typed(value) for value in group.stored],
    }
    return Stage("\n".join(lines), data)


# --- kernel and source ------------------------------------------------------------------------------------------------


def _kernel_name(call: KernelCall) -> str:
    return str(call.function.attributes["name"])


def _kernels(
    function: Operation, device: Device, choice: Choice, pipeline: Pipeline
) -> tuple[dict[str, list[KernelCall]], Counter[str]]:
    """The chosen kernels by name with their launches, and how often each of the adapter's own kernels runs."""
    calls = _lowered(function, device, pipeline).calls
    kernels: dict[str, list[KernelCall]] = {}
    library: Counter[str] = Counter()
    names: list[str] = []
    for call in calls:
        if isinstance(call, LibraryCall):
            library[call.label] += choice(call.label)
            continue
        names.append(_kernel_name(call))
        if choice(names[-1], call.label):
            kernels.setdefault(names[-1], []).append(call)
    library = +library
    choice.check(kernels or library, "kernel", [*names, *library])
    return kernels, library


def _library_lines(library: Counter[str]) -> list[str]:
    return [f"the adapter's own kernel for {label}, {_times(count)}" for label, count in library.items()]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def kernel_stage(function: Operation, device: Device, choice: Choice, pipeline: Pipeline = STANDARD) -> Stage:
    """Each distinct kernel in the kernel dialect, as lowered."""
    kernels, library = _kernels(function, device, choice, pipeline)
    parts: list[str] = []
    for name, calls in kernels.items():
        grids = ", ".join(dict.fromkeys(_extent(call.grid) for call in calls))
        parts.append(f"{name}, launched {_times(len(calls))}, blocks {grids}\n{print_op(calls[0].function)}")
    data = {
        "device": device.name,
        "kernels": [
            {
                "name": name,
                "launches": len(calls),
                "grids": [list(call.grid) for call in calls],
                "text": print_op(calls[0].function),
            }
            for name, calls in kernels.items()
        ],
        "library": dict(library),
    }
    return Stage("\n\n".join([*parts, *_library_lines(library)]), data)


def source_stage(function: Operation, device: Device, choice: Choice, pipeline: Pipeline = STANDARD) -> Stage:
    """The kernels as one text in the language of the device's target."""
    kernels, library = _kernels(function, device, choice, pipeline)
    functions = [calls[0].function for calls in kernels.values()]
    source = render(functions, device.target) if functions else ""
    data = {
        "device": device.name,
        "language": device.target.language,
        "target": device.target.to_json(),
        "kernels": list(kernels),
        "source": source,
        "library": dict(library),
    }
    return Stage("\n\n".join(part for part in (source.rstrip(), *_library_lines(library)) if part), data)


# --- plan -------------------------------------------------------------------------------------------------------------


def _extent(grid: tuple[int, ...]) -> str:
    return "x".join(map(str, grid))


def plan_stage(function: Operation, device: Device, choice: Choice, progress: Progress | None = None) -> Stage:
    """Steps and memory of the plan; compiles its kernels."""
    plan = Plan(function, device, progress)
    namer = Namer(plan.function)
    steps = [(number, step) for number, step in enumerate(plan.steps) if choice(step.label, _step_name(step))]
    choice.check(steps, "step", [step.label for step in plan.steps])
    temporaries = _temporaries(plan, namer)
    rows = [_step_data(number, step, namer) for number, step in steps]
    fixed = {
        "arguments": [namer.typed(value) for value in plan.arguments],
        "constants": [namer.typed(value) for value in plan.constants],
        "results": [namer.typed(value) for value in plan.returned],
    }
    lines = [f"plan on {device.name}, {_count(plan)}"]
    for what, values in fixed.items():
        lines += [f"  {what}{'' if values else ' none'}", *(f"    {value}" for value in values)]
    lines.append(f"  temporaries {_memory(plan, len(temporaries))}")
    lines += [f"    {_temporary_line(row)}" for row in temporaries]
    lines.append("  steps")
    lines += [_step_line(row) for row in rows]
    data = {
        "device": device.name,
        **fixed,
        "arena_bytes": 0 if plan.separate else plan.arena_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "separate": plan.separate,
        "temporaries": temporaries,
        "steps": rows,
    }
    return Stage("\n".join(lines), data)


def _count(plan: Plan) -> str:
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    kernels = len({step.signature.name for step in launches})
    text = f"kernels: {kernels}, launches: {len(launches)}"
    own = len(plan.steps) - len(launches)
    return f"{text}, runs of the adapter's own kernels: {own}" if own else text


def _memory(plan: Plan, count: int) -> str:
    if not count:
        return "none"
    if plan.separate:
        return f"{count}, each an allocation of its own; {plan.lower_bound_bytes} bytes at once"
    return f"{count} in an arena of {plan.arena_bytes} bytes; no layout needs less than {plan.lower_bound_bytes}"


def _temporaries(plan: Plan, namer: Namer) -> list[dict[str, Any]]:
    """Each temporary with its bytes, its place and the steps that it lives through."""
    found: list[dict[str, Any]] = []
    for value, offset in plan.offsets.items():
        steps = [number for number, step in enumerate(plan.steps) if value in step.buffers]
        storage = plan.device.target.storage_of(tensor(value).dtype)
        nbytes = math.prod(tensor(value).static_shape) * storage.itemsize
        found.append(
            {
                "value": namer.typed(value),
                "bytes": nbytes,
                "offset": None if plan.separate else offset,
                "first_step": steps[0],
                "last_step": steps[-1],
            }
        )
    return found


def _temporary_line(row: dict[str, Any]) -> str:
    place = "" if row["offset"] is None else f" at {row['offset']}"
    return f"{row['value']}  {row['bytes']} bytes{place}, steps {row['first_step']} to {row['last_step']}"


def _step_name(step: Step) -> str:
    return step.label if isinstance(step, LibraryStep) else step.signature.name


def _step_data(number: int, step: Step, namer: Namer) -> dict[str, Any]:
    split = len(step.buffers) - step.outputs
    data: dict[str, Any] = {
        "step": number,
        "kind": "library" if isinstance(step, LibraryStep) else "launch",
        "name": _step_name(step),
        "label": step.label,
        "reads": [namer(value) for value in step.buffers[:split]],
        "writes": [namer(value) for value in step.buffers[split:]],
    }
    if isinstance(step, Launch):
        data["grid"] = list(step.grid)
        data["block"] = list(step.signature.block)
        data["scalars"] = [namer(s) if isinstance(s, Value) else s for s in step.scalars]
    return data


def _step_line(row: dict[str, Any]) -> str:
    line = f"    {row['step']:>3}  {row['name']}({', '.join(row['reads'])}) -> {', '.join(row['writes'])}"
    if row["kind"] == "library":
        return line + "  the adapter's own kernel"
    line += f"  blocks {_extent(row['grid'])} of {_extent(row['block'])}"
    return line + (f"  scalars {', '.join(map(str, row['scalars']))}" if row["scalars"] else "")
