"""Dialects: operations as records, with traits and interfaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from oarlock.errors import IRError, VerifyError
from oarlock.ir.attributes import Attribute
from oarlock.ir.operations import Operation
from oarlock.ir.types import Type

__all__ = ["Dialect", "InferTypes", "OpDefinition", "Patch", "Trait", "is_pure", "traits"]

I = TypeVar("I")  # noqa: E741

InferTypes = Callable[[Sequence[Type], Mapping[str, Attribute]], Sequence[Type]]
"""Result types from operand types and attributes; raises ShapeError or DTypeError."""


@dataclass(frozen=True, slots=True)
class Trait:
    """A property of an operation, with the rule that it brings (None: only a mark)."""

    name: str
    verify: Callable[[Operation], None] | None = field(default=None, compare=False)


def _same_operands_and_result(op: Operation) -> None:
    types = {value.type for value in (*op.operands, *op.results)}
    if len(types) > 1:
        raise VerifyError(f"{op.name}: operands and results differ in type: {', '.join(sorted(map(str, types)))}")


def _terminator(op: Operation) -> None:
    if op.parent is not None and op.next_op is not None:
        raise VerifyError(f"{op.name} ends a block, but {op.next_op.name} follows it")


class traits:
    """The traits that there are."""

    PURE = Trait("pure")
    """No effect but its results: may be removed, merged and moved."""
    RECURSIVELY_PURE = Trait("recursively_pure")
    """As pure as what its regions hold."""
    COMMUTATIVE = Trait("commutative")
    TERMINATOR = Trait("terminator", _terminator)
    ISOLATED = Trait("isolated")
    """Its regions use no value from outside."""
    ELEMENTWISE = Trait("elementwise")
    VIEW = Trait("view")
    """Each element of its result is one of its operand, found by its position alone."""
    CONSTANT = Trait("constant")
    SAME_TYPES = Trait("same_types", _same_operands_and_result)


@dataclass(frozen=True, slots=True, eq=False)
class OpDefinition:
    """What is true of every operation called ``name``.

    ``operands``/``results``/``regions`` are counts, or None for any number. ``attributes`` maps each attribute to the
    Python type(s) it must have; those in ``optional`` may be absent. ``infer`` gives the result types.
    ``interfaces`` maps an interface (any class) to its implementation for this operation.
    """

    name: str
    summary: str = ""
    operands: int | None = None
    results: int | None = 1
    regions: int | None = 0
    attributes: Mapping[str, type | tuple[type, ...]] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    traits: frozenset[Trait] = frozenset()
    infer: InferTypes | None = None
    verify: Callable[[Operation], None] | None = None
    interfaces: Mapping[type, Any] = field(default_factory=dict)

    @property
    def dialect(self) -> str:
        return self.name.split(".", 1)[0]

    def has(self, trait: Trait) -> bool:
        return trait in self.traits

    def interface(self, interface: type[I]) -> I | None:
        """This operation's implementation of ``interface``, or None."""
        return self.interfaces.get(interface)


Patch = Callable[[dict[str, Any]], None]
"""Brings a JSON document from one version of a dialect to the next, in place; see ``ir.json.operations_in``."""


def is_pure(op: Operation) -> bool:
    """Whether ``op`` has no effect but its results, so that it may be removed, merged and moved."""
    if traits.PURE in op.definition.traits:
        return True
    if traits.RECURSIVELY_PURE not in op.definition.traits:
        return False
    inside = (inner for region in op.regions for block in region.blocks for inner in block.ops)
    return all(is_pure(inner) or traits.TERMINATOR in inner.definition.traits for inner in inside)


class Dialect:
    """A named, versioned set of operations. ``patches[n]`` brings JSON documents from version n to n + 1."""

    def __init__(
        self,
        name: str,
        version: int,
        operations: Sequence[OpDefinition] = (),
        patches: Mapping[int, Patch] | None = None,
    ) -> None:
        self.name = name
        self.version = version
        self.patches: dict[int, Patch] = dict(patches or {})
        self.operations: dict[str, OpDefinition] = {}
        for definition in operations:
            self.add(definition)

    def add(self, definition: OpDefinition) -> OpDefinition:
        """Add an operation; raises IRError for a wrong prefix or a name that is taken."""
        if definition.dialect != self.name:
            raise IRError(f"{definition.name} does not belong to dialect {self.name}")
        if definition.name in self.operations:
            raise IRError(f"dialect {self.name} has {definition.name} already")
        self.operations[definition.name] = definition
        return definition
