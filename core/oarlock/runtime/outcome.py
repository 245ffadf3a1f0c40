"""What lowering came to, as far as a plan needs it: the function with its values, and launches by kernels' names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oarlock.codegen.free import is_free
from oarlock.codegen.groups import Group
from oarlock.codegen.lower.call import KernelCall, LibraryCall
from oarlock.codegen.pipeline import Lowered
from oarlock.hal import OperatorKernel
from oarlock.ir import Operation, Value

__all__ = ["Outcome", "Part", "outcome_of", "read_parts", "written_parts"]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A ``KernelCall`` or ``LibraryCall`` with the name of its kernel, or the adapter's own, in place of the IR.

    ``operators`` are those whose results it stores, for people: ``multiply+rsqrt``.
    """

    kernel: str | OperatorKernel
    buffers: tuple[Value, ...]
    outputs: int
    grid: tuple[int, int, int]
    scalars: tuple[int | float | Value, ...]
    label: str
    operators: str


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The function after expansion, which defines the values, and what runs."""

    function: Operation
    parts: tuple[Part, ...]


def outcome_of(lowered: Lowered) -> Outcome:
    """The outcome of a lowering that has just been done."""
    makers: dict[Value, list[int]] = {}
    for number, group in enumerate(lowered.groups):
        for value in group.stored:
            makers.setdefault(value, []).append(number)
    parts: list[Part] = []
    for call in lowered.calls:
        results = call.buffers[len(call.buffers) - call.outputs :]
        groups = [lowered.groups[i] for i in sorted({i for v in results for i in makers.get(v, ())})]
        parts.append(_part(call, _operators(groups)))
    return Outcome(lowered.function, tuple(parts))


def _part(call: KernelCall | LibraryCall, operators: str) -> Part:
    if isinstance(call, LibraryCall):
        kernel: OperatorKernel = call.kernel  # type: ignore[assignment]
        return Part(kernel, call.buffers, call.outputs, (1, 1, 1), (), call.label, operators)
    name = str(call.function.attributes["name"])
    return Part(name, call.buffers, call.outputs, call.grid, call.scalars, call.label, operators)


def _operators(groups: Sequence[Group]) -> str:
    members = [member for group in groups for member in group.members]
    return "+".join(m.name.partition(".")[2] for m in members if not is_free(m) or len(members) == 1)


# --- as JSON ----------------------------------------------------------------------------------------------------------


def written_parts(outcome: Outcome, kernels: Sequence[object]) -> list[dict[str, Any]]:
    """The parts as JSON: values by their number in the function, adapters' kernels by theirs in ``kernels``.

    Raises LookupError or TypeError for what has none.
    """
    numbers = {value: number for number, value in enumerate(_values(outcome.function))}
    own = {id(kernel): number for number, kernel in enumerate(kernels) if kernel is not None}
    return [
        {
            "kernel": part.kernel if isinstance(part.kernel, str) else own[id(part.kernel)],
            "buffers": [numbers[v] for v in part.buffers],
            "outputs": part.outputs,
            "grid": [_number(n, numbers) for n in part.grid],
            "scalars": [_number(s, numbers) for s in part.scalars],
            "label": part.label,
            "operators": part.operators,
        }
        for part in outcome.parts
    ]


def read_parts(records: Sequence[Mapping[str, Any]], function: Operation, kernels: Sequence[Any]) -> tuple[Part, ...]:
    """What ``written_parts`` wrote, in the values of ``function``."""
    values = _values(function)
    return tuple(
        Part(
            record["kernel"] if isinstance(record["kernel"], str) else kernels[record["kernel"]],
            tuple([values[number] for number in record["buffers"]]),
            record["outputs"],
            tuple(record["grid"]),
            tuple([values[s[0]] if isinstance(s, list) else s for s in record["scalars"]]),
            record["label"],
            record["operators"],
        )
        for record in records
    )


def _values(function: Operation) -> list[Value]:
    """Arguments and results of the function's block, in order: what buffers and run-time scalars are among."""
    block = function.regions[0].block
    return [*block.args, *(result for op in block.ops for result in op.results)]


def _number(value: int | float | Value, numbers: Mapping[Value, int]) -> int | float | list[int]:
    """A number as it is, a value as a list of its number."""
    if isinstance(value, Value):
        return [numbers[value]]
    if type(value) not in (int, float, bool):
        raise TypeError(f"{value!r} is no plain number")
    return value
