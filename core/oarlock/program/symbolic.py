"""Programs of ``ol.jit`` that serve a range of sizes: declared by name, compiled for an example, used under guards."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from oarlock.errors import ShapeError
from oarlock.ir.extents import Extents, resolved
from oarlock.program.backend import Data, Place, Template, backend
from oarlock.program.calls import Call, Kind, Number, kind
from oarlock.program.plans import build
from oarlock.program.tracing import Trace
from oarlock.program.trees import flatten
from oarlock.program.whole import WholeProgram, whole

__all__ = ["Dimension", "Dimensions", "Symbolic", "Variant", "Variants"]


@dataclass(frozen=True, slots=True)
class Dimension:
    """A size called ``name`` that may be ``least`` to ``most``; the same one wherever the name stands."""

    name: str
    least: int
    most: int


Dimensions: TypeAlias = "Mapping[str, Mapping[int, Dimension]]"
"""The symbolic dimensions of each argument, by its name."""

_MOST = (1 << 31) - 1
VARIANTS = 64
"""Programs kept for calls that differ in symbolic sizes alone; the oldest goes first."""


def dimensions_in(function: Callable[..., Any], given: Mapping[str, Mapping[int, Any]]) -> Dimensions:
    """``symbolic`` of ``ol.jit``, checked: ``{"x": {0: "n", 1: ("m", 1, 4096)}}``. Raises ShapeError."""
    parameters = inspect.signature(function).parameters
    known: dict[str, Dimension] = {}
    found: dict[str, dict[int, Dimension]] = {}
    for argument, dims in given.items():
        if argument not in parameters:
            raise ShapeError(f"symbolic names {argument!r}; the function takes {', '.join(parameters) or 'nothing'}")
        for axis, text in dims.items():
            one = _dimension(text)
            ranged = known.setdefault(one.name, one)
            if one != ranged and (one.least, one.most) != (0, _MOST):
                if (ranged.least, ranged.most) != (0, _MOST):
                    raise ShapeError(f"symbolic gives size {one.name} two ranges: {ranged} and {one}")
                known[one.name] = one
            found.setdefault(argument, {})[axis] = one
    return {a: {axis: known[one.name] for axis, one in dims.items()} for a, dims in found.items()}


def _dimension(given: Any) -> Dimension:
    parts = (given, 0, _MOST) if isinstance(given, str) else given
    if not isinstance(parts, tuple) or len(parts) != 3 or not isinstance(parts[0], str):
        raise ShapeError(f'symbolic: a size is "name" or ("name", least, most), not {given!r}')
    name, least, most = parts
    if not isinstance(least, int) or not isinstance(most, int) or not 0 <= least <= most:
        raise ShapeError(f"symbolic: {name} cannot go from {least!r} to {most!r}")
    return Dimension(name, least, most)


class Symbolic:
    """The symbolic dimensions of one call's tensors, with their ``sizes`` by name."""

    def __init__(self, dimensions: Dimensions, names: Sequence[str], kinds: Sequence[Kind]) -> None:
        self.sizes: dict[str, int] = {}
        self.served = True
        """Whether every size is in its range."""
        self._dims: list[Mapping[int, Dimension]] = []
        where: dict[str, str] = {}
        for name, given in zip(names, kinds, strict=True):
            dims = dimensions.get(name, {})
            for axis, one in dims.items():
                if not 0 <= axis < len(given.shape):
                    raise ShapeError(f"symbolic: {name} has shape {given.shape}, which has no dimension {axis}")
                size = given.shape[axis]
                if self.sizes.setdefault(one.name, size) != size:
                    raise ShapeError(
                        f"size {one.name} is {self.sizes[one.name]} in {where[one.name]} and {size} in dimension "
                        f"{axis} of {name}"
                    )
                where.setdefault(one.name, f"dimension {axis} of {name}")
                self.served &= one.least <= size <= one.most
            self._dims.append(dims)
        self._kinds = kinds

    @property
    def key(self) -> tuple[Any, ...]:
        """What all calls have in common that differ in these sizes alone."""
        return tuple(
            (given.dtype.name, tuple(dims[i].name if i in dims else size for i, size in enumerate(given.shape)))
            for given, dims in zip(self._kinds, self._dims, strict=True)
        )

    def calls(self, extents: Extents, calls: Sequence[Call]) -> list[Call]:
        """The leaves of a program with extents in place of the sizes."""
        made = {name: extents.symbol(name, size) for name, size in self.sizes.items()}
        return [
            call
            if not dims
            else kind(
                given.dtype, [made[dims[i].name] if i in dims else size for i, size in enumerate(given.shape)]
            ).leaf
            for call, given, dims in zip(calls, self._kinds, self._dims, strict=True)
        ]


def leaf_names(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """The name of the parameter that each tensor of a call belongs to, in order."""
    parameters = list(inspect.signature(function).parameters.values())
    positional = [p for p in parameters if p.kind is not p.KEYWORD_ONLY and p.kind is not p.VAR_KEYWORD]
    names: list[str] = []
    for position, argument in enumerate(args):
        name = positional[min(position, len(positional) - 1)].name if positional else str(position)
        names += [name] * _count(argument)
    for name, argument in kwargs.items():
        names += [name] * _count(argument)
    return names


def _count(tree: Any) -> int:
    leaves: list[Any] = []
    flatten(tree, leaves, "an argument")
    return len(leaves)


class Variants:
    """The programs of one function for symbolic sizes."""

    def __init__(self, function: Callable[..., Any], given: Mapping[str, Mapping[int, Any]]) -> None:
        self._function = function
        self._dimensions = dimensions_in(function, given)
        self._found: dict[Any, list[Variant]] = {}

    def sizes(self, args: Sequence[Any], kwargs: Mapping[str, Any], kinds: Sequence[Kind]) -> Symbolic | None:
        """The symbolic sizes of a call with tensors of ``kinds``; None where a size is out of its range."""
        found = Symbolic(self._dimensions, leaf_names(self._function, args, kwargs), kinds)
        return found if found.served and found.sizes else None

    def program(self, key: Any, traced: Trace, sizes: Mapping[str, int]) -> WholeProgram | None:
        """The program of ``traced``, where one that is there serves it; ``key`` is the form of the call."""
        for variant in self._found.get(key, ()):
            program = variant.program(traced, sizes)
            if program is not None:
                return program
        return None

    def add(self, key: Any, variant: Variant) -> None:
        """Keep one more."""
        variants = self._found.setdefault(key, [])
        variants.append(variant)
        del variants[:-VARIANTS]


class Variant:
    """A program compiled for one example of its sizes, and for all others for which its guards hold.

    ``example`` is the trace at these sizes, ``traced`` the same with extents: what differs between the two besides
    sizes belongs to one call.
    """

    def __init__(self, traced: Trace, example: Trace, arguments: int, extents: Extents, where: Place) -> None:
        self.traced = traced
        self.extents = extents
        self.arguments = arguments
        self.where = where
        extents.guards.clear()  # a trace at other sizes is compared with this one: see ``program``
        plan = build(traced.entries, traced.outputs, traced.sites)
        self.function = plan.function
        fixed: dict[int, Data] = {}
        self.numbers: dict[int, int] = {}
        """Parameters that are numbers for each size, and their leaves."""
        self.used: list[int] = []
        """The leaves of the parameters that are given in each call."""
        for parameter, leaf in enumerate(plan.leaves):
            payload = traced.payloads[leaf]
            if leaf >= arguments and type(payload) is Number:
                self.numbers[parameter] = leaf
            elif leaf >= arguments and payload is example.payloads[leaf]:
                fixed[parameter] = payload
            else:
                self.used.append(leaf)
        held = fixed | {p: traced.payloads[leaf].value for p, leaf in self.numbers.items()}
        self.template: Template = backend().template(plan.function, where.device, held, extents)

    def program(self, trace: Trace, sizes: Mapping[str, int]) -> WholeProgram | None:
        """The program of ``trace``, made at ``sizes``; None where that is another one."""
        values = self.extents.evaluate(sizes)
        if values is None or not self._same(trace, values):
            return None
        numbers = {parameter: trace.payloads[leaf].value for parameter, leaf in self.numbers.items()}
        run = self.template(sizes, numbers)
        if run is None:
            return None
        given = [leaf for leaf in self.used if leaf < self.arguments]
        held = [trace.payloads[leaf] for leaf in self.used if leaf >= self.arguments]
        return whole(trace, self.where, run, self.function, given, held)

    def _same(self, trace: Trace, values: Sequence[int]) -> bool:
        """Whether ``trace`` recorded what this did, but for the sizes."""
        mine = self.traced
        if len(trace.entries) != len(mine.entries) or trace.outputs != mine.outputs or trace.assigned != mine.assigned:
            return False
        for own, other in zip(mine.entries, trace.entries, strict=True):
            if own[1:] != other[1:] or not _same_call(own[0], other[0], values):
                return False
        return all(
            (type(own) is Number and type(other) is Number) or own is other or leaf in self.used
            for leaf, (own, other) in enumerate(zip(mine.payloads, trace.payloads, strict=True))
        )


def _same_call(own: Call, other: Call, values: Sequence[int]) -> bool:
    """Whether two calls differ in sizes alone."""
    if own is other:
        return True
    if own.role != other.role or own.definition is not other.definition or len(own.results) != len(other.results):
        return False
    if own.attributes.keys() != other.attributes.keys():
        return False
    kinds = zip(own.results, other.results, strict=True)
    return all(a.dtype is b.dtype and resolved(a.shape, values) == b.shape for a, b in kinds) and all(
        resolved(own.attributes[name], values) == value for name, value in other.attributes.items()
    )
