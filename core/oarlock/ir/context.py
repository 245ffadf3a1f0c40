"""The context: the dialects and operations that a program may use, explicit and extensible by plugins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from oarlock.errors import IRError
from oarlock.ir.attributes import Attribute
from oarlock.ir.builtin import BUILTIN
from oarlock.ir.dialects import Dialect, OpDefinition
from oarlock.ir.operations import Block, Operation, Region, Value
from oarlock.ir.types import Type

__all__ = ["Builder", "Context"]


class Context:
    """Dialects by name. The ``builtin`` dialect is always there.

    ``find`` is asked for a dialect that is not there, so that those of plugins are loaded when they are needed; it
    gives None for a name that it does not know.
    """

    def __init__(self, dialects: Sequence[Dialect] = (), find: Callable[[str], Dialect | None] | None = None) -> None:
        self.dialects: dict[str, Dialect] = {}
        self._find = find
        for dialect in (BUILTIN, *dialects):
            self.register(dialect)

    def register(self, dialect: Dialect) -> None:
        """Add a dialect; raises IRError when its name is taken by another one."""
        if self.dialects.get(dialect.name, dialect) is not dialect:
            raise IRError(f"there is a dialect {dialect.name!r} already")
        self.dialects[dialect.name] = dialect

    def dialect(self, name: str) -> Dialect:
        """The dialect called ``name``; raises IRError when there is none."""
        dialect = self._known(name)
        if dialect is None:
            raise IRError(f"no dialect {name!r}: a plugin is missing; there are {', '.join(self.dialects)}")
        return dialect

    def _known(self, name: str) -> Dialect | None:
        if name not in self.dialects and self._find is not None:
            found = self._find(name)
            if found is not None:
                self.register(found)
        return self.dialects.get(name)

    def definition(self, name: str) -> OpDefinition:
        """The operation called ``dialect.operation``; raises IRError saying whether dialect or operation is unknown."""
        prefix = name.split(".", 1)[0]
        dialect = self._known(prefix)
        if dialect is None:
            there = ", ".join(self.dialects)
            raise IRError(f"no dialect {prefix!r} (for {name}): a plugin is missing; there are {there}")
        definition = dialect.operations.get(name)
        if definition is None:
            raise IRError(f"dialect {prefix} (version {dialect.version}) has no operation {name}")
        return definition


class Builder:
    """Creates operations at an insertion point: the end of ``block``, or before ``anchor`` in it."""

    def __init__(self, context: Context, block: Block, anchor: Operation | None = None) -> None:
        self.context = context
        self.block = block
        self.anchor = anchor
        self.location: str | None = None
        self.listener: Callable[[Operation], None] | None = None
        """Called with every operation that is inserted."""

    def create(
        self,
        name: str,
        operands: Sequence[Value] = (),
        attributes: Mapping[str, Attribute] | None = None,
        result_types: Sequence[Type] | None = None,
        regions: Sequence[Region] = (),
    ) -> Operation:
        """Create and insert an operation; without ``result_types`` they are inferred."""
        definition = self.context.definition(name)
        if result_types is None:
            if definition.infer is not None:
                result_types = definition.infer([v.type for v in operands], attributes or {})
            elif definition.results == 0:
                result_types = ()
            else:
                raise IRError(f"{name} cannot infer its result types: give them")
        op = Operation(definition, operands, attributes, result_types, regions, self.location)
        return self.insert(op)

    def insert(self, op: Operation) -> Operation:
        """Insert a detached operation."""
        if self.anchor is not None:
            self.block.insert_before(self.anchor, op)
        else:
            self.block.append(op)
        if self.listener is not None:
            self.listener(op)
        return op
