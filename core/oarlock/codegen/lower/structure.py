"""Groups of the same structure are lowered once: an unrolled recurrence repeats a few kernels hundreds of times.

The structure is everything that lowering looks at: operators, attributes, types and how values flow. Where slices start
is left out (but for 0 and 1, which fold), because kernels take it as a scalar.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from oarlock.codegen.free import is_free
from oarlock.codegen.groups import Group
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.schedule import Schedule
from oarlock.codegen.values import ints
from oarlock.ir import Operation, Value
from oarlock.ir.attributes import attribute_key
from oarlock.target import Target

__all__ = ["Structure", "lower_once"]

CAPACITY = 4096
"""Structures remembered; the oldest goes first."""


@dataclass(frozen=True, slots=True, eq=False)
class _Template:
    """A kernel call whose values are numbers in the structure."""

    function: Operation
    grid: tuple[int, int, int]
    scalars: tuple[int | float | tuple[int], ...]
    """Numbers, or (value number,) for a run-time scalar of the program."""
    starts: tuple[tuple[int, int, int], ...]
    label: str


class Structure:
    """Numbers the values of a group in the order in which its members reach them."""

    def __init__(self, group: Group) -> None:
        self.numbers: dict[Value, int] = {}
        self.values: list[Value] = []
        self.parts: list[Hashable] = []
        self.inside = {r for m in group.members for r in m.results}
        for member in group.members:
            operands = tuple(self.visit(v) for v in member.operands)
            self.note(member, operands)
        ends = (*group.leaves, *group.outputs)
        shape = (group.shape, group.axes, len(group.leaves), tuple(self.numbers[v] for v in ends))
        self.key = (tuple(self.parts), shape)

    def number(self, value: Value) -> int:
        found = self.numbers.get(value)
        if found is None:
            found = self.numbers[value] = len(self.values)
            self.values.append(value)
        return found

    def visit(self, value: Value) -> int:
        """The number of an operand, with what free operators stand behind it noted."""
        if value in self.numbers:
            return self.numbers[value]
        op = value.defining_op
        if value not in self.inside and op is not None and is_free(op):
            operands = tuple(self.visit(v) for v in op.operands)
            self.note(op, operands)
            return self.numbers[value]
        number = self.number(value)
        self.parts.append((number, value.type))
        return number

    def note(self, op: Operation, operands: tuple[int, ...]) -> None:
        attributes = op.attributes
        if op.name == "array.slice":
            folded = tuple(min(start, 2) for start in ints(op, "starts"))
            attributes = {**{k: v for k, v in attributes.items() if k != "limits"}, "starts": folded}
        key = tuple((name, attribute_key(value)) for name, value in sorted(attributes.items()))
        results = tuple((self.number(r), r.type) for r in op.results)
        self.parts.append((op.name, operands, key, results))


_templates: dict[Hashable, _Template] = {}
_lock = threading.Lock()


def lower_once(group: Group, target: Target, schedule: Schedule, lower: Callable[[], KernelCall]) -> KernelCall:
    """What ``lower()`` gives for ``group`` by ``schedule``, from memory where a group of the same structure was lowered
    like that before."""
    structure = Structure(group)
    key = (target, structure.key, schedule, _placed(group))
    found = _templates.get(key)
    if found is None:
        call = lower()
        found = _template(call, structure)
        with _lock:
            _templates[key] = found
            while len(_templates) > CAPACITY:
                _templates.pop(next(iter(_templates)))
        return call
    return _instantiate(found, structure.values, (*group.leaves, *group.stored), len(group.stored))


def _placed(group: Group) -> Hashable:
    """What lowering asks of where outputs are stored."""
    stored = group.stored
    places = [(i, group.placed[v]) for i, v in enumerate(group.outputs) if v in group.placed]
    return tuple((i, p.axis, p.start, stored.index(p.whole), p.whole.type) for i, p in places)


def _template(call: KernelCall, structure: Structure) -> _Template:
    scalars = tuple((structure.numbers[s],) if isinstance(s, Value) else s for s in call.scalars)
    starts = tuple((position, structure.numbers[value], dim) for position, value, dim in call.starts)
    return _Template(call.function, call.grid, scalars, starts, call.label)


def _instantiate(found: _Template, values: Sequence[Value], buffers: tuple[Value, ...], outputs: int) -> KernelCall:
    scalars = [values[s[0]] if isinstance(s, tuple) else s for s in found.scalars]
    for position, number, dim in found.starts:
        op = values[number].defining_op
        assert op is not None
        scalars[position] = ints(op, "starts")[dim]
    return KernelCall(found.function, buffers, outputs, found.grid, tuple(scalars), found.label)
