"""Plans: from the structure of a tape to the IR function that computes what is still alive of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from oarlock.dtypes import DType
from oarlock.ir import Block, Builder, Operation, Region, ScalarType, Value
from oarlock.program.backend import Compiled
from oarlock.program.calls import Call, context
from oarlock.program.sites import Site, describe

__all__ = ["Counters", "Entry", "Plan", "Runner", "build", "counters", "first_numbers"]

Entry: TypeAlias = "tuple[Any, ...]"
"""A call, then the numbers of its operands. Results and leaves are numbered in the order of the entries."""


@dataclass(slots=True)
class Counters:
    """What recording has done in this process so far; for tests and reports."""

    built: int = 0
    """Functions built: structures seen for the first time."""
    flushed: int = 0
    """Programs run."""
    outputs: int = 0
    """Results that were alive when their program ran."""
    traces: int = 0
    """Runs of a Python function to find out what it records (``ol.jit``)."""
    compiles: int = 0
    """Whole programs compiled for ``ol.jit``."""


counters = Counters()


@dataclass(frozen=True, slots=True)
class Plan:
    """The function for one structure; ``leaves`` are the positions, among the tape's leaves, of its parameters."""

    function: Operation
    leaves: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Runner:
    """A plan that its device is ready to run: ``run`` takes the data of ``leaves``."""

    function: Operation
    leaves: tuple[int, ...]
    run: Compiled


def build(entries: Sequence[Entry], outputs: Sequence[int], sites: Sequence[Site]) -> Plan:
    """The plan that computes the values numbered ``outputs``; entries that they do not need are left out."""
    counters.built += 1
    first = first_numbers(entries)
    needed = _needed(entries, first, outputs)
    block = Block()
    builder = Builder(context(), block)
    values: dict[int, Value] = {}
    leaves: list[int] = []
    position = -1
    for index, entry in enumerate(entries):
        call: Call = entry[0]
        position += call.role != "operator"
        if index not in needed:
            continue
        builder.location = describe(sites[index])
        if call.role == "operator":
            assert call.definition is not None
            op = Operation(
                call.definition,
                [values[number] for number in entry[1:]],
                call.attributes,
                [result.type for result in call.results],
                (),
                builder.location,
            )
            builder.insert(op)
            values.update((first[index] + i, result) for i, result in enumerate(op.results))
            continue
        leaves.append(position)
        assert call.type is not None
        argument = block.add_argument(call.type)
        values[first[index]] = _enter(builder, argument, call) if call.role == "scalar" else argument
    builder.create("builtin.return", [values[number] for number in outputs])
    definition = context().definition("builtin.function")
    function = Operation(definition, (), {"name": "recorded"}, (), [Region([block])])
    return Plan(function, tuple(leaves))


def first_numbers(entries: Sequence[Entry]) -> list[int]:
    """The number of each entry's first value."""
    numbers: list[int] = []
    number = 0
    for entry in entries:
        numbers.append(number)
        number += entry[0].count
    return numbers


def _needed(entries: Sequence[Entry], first: Sequence[int], outputs: Sequence[int]) -> set[int]:
    """Indices of the entries that ``outputs`` depend on."""
    wanted = set(outputs)
    needed: set[int] = set()
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if any(first[index] + i in wanted for i in range(entry[0].count)):
            needed.add(index)
            wanted.update(entry[1:])
    return needed


def _enter(builder: Builder, argument: Value, call: Call) -> Value:
    """A run-time scalar as a 0-d tensor of the call's dtype."""
    assert isinstance(argument.type, ScalarType)
    value: Value = builder.create("array.from_scalar", [argument]).result
    wanted: DType = call.results[0].dtype
    if argument.type.dtype != wanted:
        value = builder.create("array.convert", [value], {"dtype": wanted}).result
    return value
