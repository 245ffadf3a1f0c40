"""Operations, regions, blocks and SSA values with O(1) use lists: the data structure that every program is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from oarlock.errors import IRError
from oarlock.ir.attributes import Attribute
from oarlock.ir.types import Type

if TYPE_CHECKING:
    from oarlock.ir.dialects import OpDefinition

__all__ = ["Block", "BlockArgument", "OpResult", "Operation", "Region", "Value"]


class Value:
    """An SSA value: defined once, by an operation or as an argument of a block. ``uses`` holds (user, position)."""

    __slots__ = ("name_hint", "type", "uses")

    def __init__(self, type: Type) -> None:
        self.type = type
        self.uses: dict[tuple[Operation, int], None] = {}
        self.name_hint: str | None = None

    @property
    def users(self) -> list[Operation]:
        """The operations that use this value, each once, in the order in which they began to."""
        return list(dict.fromkeys(user for user, _ in self.uses))

    @property
    def owner(self) -> Operation | Block:
        raise NotImplementedError

    @property
    def defining_op(self) -> Operation | None:
        """The operation that this is a result of; None for a block argument."""
        return None

    def replace_all_uses_with(self, other: Value) -> None:
        """Make every user of this value use ``other``."""
        if other is self:
            return
        for user, position in list(self.uses):
            user.set_operand(position, other)


class OpResult(Value):
    """Result ``index`` of ``op``."""

    __slots__ = ("index", "op")

    def __init__(self, type: Type, op: Operation, index: int) -> None:
        super().__init__(type)
        self.op = op
        self.index = index

    @property
    def owner(self) -> Operation:
        return self.op

    @property
    def defining_op(self) -> Operation:
        return self.op


class BlockArgument(Value):
    """Argument ``index`` of ``block``."""

    __slots__ = ("block", "index")

    def __init__(self, type: Type, block: Block, index: int) -> None:
        super().__init__(type)
        self.block = block
        self.index = index

    @property
    def owner(self) -> Block:
        return self.block


class Operation:
    """One operation: a definition, operands, results, attributes, regions. It lives in at most one block.

    ``location`` is the line of user code it came from, or None.
    """

    __slots__ = (
        "attributes",
        "definition",
        "location",
        "next_op",
        "operands_",
        "parent",
        "prev_op",
        "regions",
        "results",
    )

    def __init__(
        self,
        definition: OpDefinition,
        operands: Sequence[Value] = (),
        attributes: Mapping[str, Attribute] | None = None,
        result_types: Sequence[Type] = (),
        regions: Sequence[Region] = (),
        location: str | None = None,
    ) -> None:
        self.definition = definition
        self.operands_: list[Value] = []
        self.attributes: dict[str, Attribute] = dict(attributes or {})
        self.results: tuple[OpResult, ...] = tuple(OpResult(t, self, i) for i, t in enumerate(result_types))
        self.regions: list[Region] = []
        self.parent: Block | None = None
        self.prev_op: Operation | None = None
        self.next_op: Operation | None = None
        self.location = location
        self.set_operands(operands)
        for region in regions:
            self.add_region(region)

    @property
    def name(self) -> str:
        """``dialect.operation``."""
        return self.definition.name

    @property
    def operands(self) -> tuple[Value, ...]:
        return tuple(self.operands_)

    @property
    def result(self) -> OpResult:
        """The only result; raises IRError when there is not exactly one."""
        if len(self.results) != 1:
            raise IRError(f"{self.name} has {len(self.results)} results, not one")
        return self.results[0]

    @property
    def parent_op(self) -> Operation | None:
        """The operation whose region holds this one."""
        return self.parent.parent.parent if self.parent is not None and self.parent.parent is not None else None

    def set_operand(self, position: int, value: Value) -> None:
        """Use ``value`` as operand ``position``."""
        self.operands_[position].uses.pop((self, position), None)
        self.operands_[position] = value
        value.uses[(self, position)] = None

    def set_operands(self, values: Sequence[Value]) -> None:
        """Use ``values`` as the operands."""
        for position, old in enumerate(self.operands_):
            old.uses.pop((self, position), None)
        self.operands_ = list(values)
        for position, value in enumerate(self.operands_):
            value.uses[(self, position)] = None

    def add_region(self, region: Region) -> None:
        """Append ``region``, which must have no parent."""
        if region.parent is not None:
            raise IRError(f"{self.name}: region already belongs to {region.parent.name}")
        region.parent = self
        self.regions.append(region)

    def detach(self) -> Operation:
        """Take this operation out of its block, keeping it usable."""
        block = self.parent
        if block is None:
            return self
        if self.prev_op is not None:
            self.prev_op.next_op = self.next_op
        else:
            block.first_op = self.next_op
        if self.next_op is not None:
            self.next_op.prev_op = self.prev_op
        else:
            block.last_op = self.prev_op
        self.parent = self.prev_op = self.next_op = None
        return self

    def erase(self) -> None:
        """Remove this operation and all it holds; raises IRError when a result is still used."""
        for result in self.results:
            if result.uses:
                raise IRError(f"cannot erase {self.name}: result {result.index} is used by {result.users[0].name}")
        self.detach()
        self.drop_references()

    def drop_references(self) -> None:
        """Stop using all operands, here and in the regions."""
        self.set_operands(())
        for region in self.regions:
            for block in region.blocks:
                for op in block.ops:
                    op.drop_references()

    def walk(self) -> Iterator[Operation]:
        """This operation and all inside it, in order; the current one may be erased while walking."""
        yield self
        for region in self.regions:
            for block in region.blocks:
                op = block.first_op
                while op is not None:
                    following = op.next_op
                    if op.regions:
                        yield from op.walk()
                    else:
                        yield op
                    op = following

    def is_before(self, other: Operation) -> bool:
        """Whether this operation stands before ``other`` in the same block."""
        op = self.next_op
        while op is not None:
            if op is other:
                return True
            op = op.next_op
        return False

    def clone(self, mapping: dict[Value, Value] | None = None) -> Operation:
        """A detached copy of this operation and all it holds.

        ``mapping`` gives replacements of values from outside, and receives old result -> new result.
        """
        mapping = mapping if mapping is not None else {}
        copy = Operation(
            self.definition,
            [mapping.get(v, v) for v in self.operands_],
            self.attributes,
            [r.type for r in self.results],
            (),
            self.location,
        )
        for old, new in zip(self.results, copy.results, strict=True):
            new.name_hint = old.name_hint
            mapping[old] = new
        for region in self.regions:
            copy.add_region(region.clone(mapping))
        return copy

    def __str__(self) -> str:
        from oarlock.ir.text import print_op

        return print_op(self)


class Block:
    """A list of operations with arguments. Operations are linked, so inserting and erasing are O(1)."""

    __slots__ = ("args", "first_op", "last_op", "parent")

    def __init__(self, arg_types: Sequence[Type] = ()) -> None:
        self.args: list[BlockArgument] = [BlockArgument(t, self, i) for i, t in enumerate(arg_types)]
        self.first_op: Operation | None = None
        self.last_op: Operation | None = None
        self.parent: Region | None = None

    @property
    def ops(self) -> Iterator[Operation]:
        """The operations in order; the current one may be erased while iterating."""
        op = self.first_op
        while op is not None:
            following = op.next_op
            yield op
            op = following

    @property
    def parent_op(self) -> Operation | None:
        return self.parent.parent if self.parent is not None else None

    @property
    def terminator(self) -> Operation:
        """The last operation; raises IRError in an empty block."""
        if self.last_op is None:
            raise IRError("block is empty: it has no terminator")
        return self.last_op

    def add_argument(self, type: Type) -> BlockArgument:
        """Append an argument."""
        argument = BlockArgument(type, self, len(self.args))
        self.args.append(argument)
        return argument

    def erase_argument(self, argument: BlockArgument) -> None:
        """Remove an unused argument; raises IRError when it is used."""
        if argument.uses:
            raise IRError(f"cannot erase block argument {argument.index}: it is used")
        self.args.remove(argument)
        for index, rest in enumerate(self.args):
            rest.index = index

    def append(self, op: Operation) -> Operation:
        """Put ``op``, which must be detached, at the end."""
        return self._link(op, self.last_op, None)

    def insert_before(self, anchor: Operation, op: Operation) -> Operation:
        """Put ``op``, which must be detached, before ``anchor``."""
        return self._link(op, anchor.prev_op, anchor)

    def insert_after(self, anchor: Operation, op: Operation) -> Operation:
        """Put ``op``, which must be detached, after ``anchor``."""
        return self._link(op, anchor, anchor.next_op)

    def _link(self, op: Operation, before: Operation | None, after: Operation | None) -> Operation:
        if op.parent is not None:
            raise IRError(f"{op.name} already stands in a block: detach it first")
        op.parent, op.prev_op, op.next_op = self, before, after
        if before is None:
            self.first_op = op
        else:
            before.next_op = op
        if after is None:
            self.last_op = op
        else:
            after.prev_op = op
        return op


class Region:
    """The blocks that an operation holds. Control flow is structured, so most regions have one block."""

    __slots__ = ("blocks", "parent")

    def __init__(self, blocks: Sequence[Block] = ()) -> None:
        self.blocks: list[Block] = []
        self.parent: Operation | None = None
        for block in blocks:
            self.add_block(block)

    @property
    def block(self) -> Block:
        """The only block; raises IRError when there is not exactly one."""
        if len(self.blocks) != 1:
            raise IRError(f"region has {len(self.blocks)} blocks, not one")
        return self.blocks[0]

    def add_block(self, block: Block) -> Block:
        """Append ``block``, which must have no parent."""
        if block.parent is not None:
            raise IRError("block already belongs to a region")
        block.parent = self
        self.blocks.append(block)
        return block

    def clone(self, mapping: dict[Value, Value]) -> Region:
        """A copy; see ``Operation.clone``."""
        copy = Region()
        for block in self.blocks:
            twin = copy.add_block(Block([a.type for a in block.args]))
            for old, new in zip(block.args, twin.args, strict=True):
                new.name_hint = old.name_hint
                mapping[old] = new
        for block, twin in zip(self.blocks, copy.blocks, strict=True):
            for op in block.ops:
                twin.append(op.clone(mapping))
        return copy
