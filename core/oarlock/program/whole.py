"""Whole programs: what ``ol.jit`` makes of a trace, ready to be called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oarlock.ir import Operation
from oarlock.program.backend import Compiled, Data, Place, backend
from oarlock.program.calls import Kind, Number
from oarlock.program.plans import build, first_numbers
from oarlock.program.tape import concrete
from oarlock.program.tracing import Trace
from oarlock.program.trees import LEAF, Spec, rebuild

__all__ = ["WholeProgram", "compiled", "whole"]


@dataclass(frozen=True, slots=True)
class WholeProgram:
    """One compiled program: ``run`` takes the data of the arguments ``used``, then ``held``, and gives ``kinds``."""

    run: Compiled
    function: Operation
    used: tuple[int, ...]
    held: tuple[Data, ...]
    kinds: tuple[Kind, ...]
    results: Spec
    given: tuple[Any, ...]
    """For each leaf of ``results`` the position of its value, or what it is."""
    assigned: tuple[tuple[int, int], ...]
    """(argument, position of its new value)."""
    place: Place
    plain: bool
    """Whether what it gives is one tensor, and nothing is assigned."""
    in_order: bool
    """Whether ``run`` takes the data of the first arguments, as many as are ``used``."""

    def __call__(self, data: Sequence[Data], tensors: Sequence[Any]) -> Any:
        """What the function gives for arguments with these ``data``; ``tensors`` are what is assigned to."""
        values = self.run(
            data
            if self.in_order and len(data) == len(self.used)
            else [*[data[position] for position in self.used], *self.held]
        )
        where = self.place
        if self.plain:
            return concrete(self.kinds[0], where, values[0])
        made = [concrete(kind, where, value) for kind, value in zip(self.kinds, values, strict=True)]
        for position, number in self.assigned:
            tensors[position]._become(made[number])
        found = [made[item] if type(item) is int else item for item in self.given]
        return rebuild(self.results, iter(found))


def compiled(traced: Trace, where: Place, arguments: int) -> WholeProgram:
    """The program of a trace, whose first leaves are ``arguments``: what else it reads is the same in every call."""
    plan = build(traced.entries, traced.outputs, traced.sites)
    fixed = {
        parameter: traced.payloads[leaf].value if type(traced.payloads[leaf]) is Number else traced.payloads[leaf]
        for parameter, leaf in enumerate(plan.leaves)
        if leaf >= arguments
    }
    run = backend().compiled(plan.function, where.device, fixed)
    return whole(traced, where, run, plan.function, [leaf for leaf in plan.leaves if leaf < arguments], ())


def whole(
    traced: Trace, where: Place, run: Compiled, function: Operation, used: Sequence[int], held: Sequence[Data]
) -> WholeProgram:
    """The program that ``run`` runs, with the results of ``traced``."""
    kinds = {
        number + i: result
        for number, entry in zip(first_numbers(traced.entries), traced.entries, strict=True)
        for i, result in enumerate(entry[0].results)
    }
    return WholeProgram(
        run,
        function,
        tuple(used),
        tuple(held),
        tuple(kinds[number] for number in traced.outputs),
        traced.results,
        traced.given,
        traced.assigned,
        where,
        traced.results is LEAF and not traced.assigned and type(traced.given[0]) is int,
        tuple(used) == tuple(range(len(used))) and not held,
    )
