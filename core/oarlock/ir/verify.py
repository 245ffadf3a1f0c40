"""Verifies operations: shape of the data structure, definitions, inference, dominance, isolation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from oarlock.errors import VerifyError
from oarlock.ir.attributes import is_attribute
from oarlock.ir.dialects import traits
from oarlock.ir.operations import Block, BlockArgument, Operation, OpResult, Value
from oarlock.ir.printer import Printer
from oarlock.ir.types import Type

__all__ = ["verify"]


def verify(op: Operation) -> None:
    """Raise VerifyError when ``op`` or anything in it breaks a rule; linear in the number of operations.

    The message names the operation, the line of user code, and shows the operation. Where ``op`` stands in a block,
    what is defined around it is taken as it is.
    """
    verifier = _Verifier()
    verifier.visible.update(dict.fromkeys(_around(op)))
    verifier.visible.update(dict.fromkeys(op.operands_))
    verifier.operation(op)
    verifier.uses(op)


def _around(op: Operation) -> list[Value]:
    """The values that ``op`` may use because of where it stands."""
    values: list[Value] = []
    inner: Operation | None = op
    while inner is not None and inner.parent is not None and not inner.definition.has(traits.ISOLATED):
        values += inner.parent.args
        before = inner.prev_op
        while before is not None:
            values += before.results
            before = before.prev_op
        inner = inner.parent_op
    return values


def _fail(op: Operation, message: str, cause: Exception | None = None) -> NoReturn:
    where = f" ({op.location})" if op.location else ""
    raise VerifyError(f"{op.name}{where}: {message}\n  in: {Printer(regions=False).print(op)}") from cause


class _Verifier:
    """One walk over a tree of operations; ``visible`` are the values in scope, ``seen`` the operations met."""

    def __init__(self) -> None:
        self.visible: dict[Value, None] = {}
        self.seen: dict[Operation, None] = {}

    def operation(self, op: Operation) -> None:
        self.seen[op] = None
        self._counts(op)
        self._attributes(op)
        self._operands(op)
        for index, result in enumerate(op.results):
            if not isinstance(result, OpResult) or result.op is not op or result.index != index:
                _fail(op, f"result {index} does not know that it is result {index} of this operation")
        self._nested(op)
        self._rules(op)

    def _counts(self, op: Operation) -> None:
        definition = op.definition
        for what, wanted, there in (
            ("operands", definition.operands, len(op.operands_)),
            ("results", definition.results, len(op.results)),
            ("regions", definition.regions, len(op.regions)),
        ):
            if wanted is not None and wanted != there:
                _fail(op, f"{there} {what}, not {wanted}")

    def _attributes(self, op: Operation) -> None:
        definition = op.definition
        for name, value in op.attributes.items():
            if not is_attribute(value):
                _fail(op, f"attribute {name} is a {type(value).__name__}, which cannot be an attribute")
            kinds = definition.attributes.get(name)
            if kinds is None:
                known = ", ".join(definition.attributes) or "none"
                _fail(op, f"no attribute is called {name}; there are {known}")
            kinds = kinds if isinstance(kinds, tuple) else (kinds,)
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                wanted = " or ".join(kind.__name__ for kind in kinds)
                _fail(op, f"attribute {name} is a {type(value).__name__}, not {wanted}")
        for name in definition.attributes:
            if name not in op.attributes and name not in definition.optional:
                _fail(op, f"attribute {name} is missing")

    def _operands(self, op: Operation) -> None:
        for position, value in enumerate(op.operands_):
            if (op, position) not in value.uses:
                _fail(op, f"operand {position} does not know of this use")
            if value not in self.visible:
                _fail(op, f"operand {position} is not defined above, in this or an enclosing block ({_origin(value)})")

    def _nested(self, op: Operation) -> None:
        outer = self.visible
        if op.definition.has(traits.ISOLATED):
            self.visible = {}
        for region in op.regions:
            if region.parent is not op:
                _fail(op, "a region belongs to another operation")
            for block in region.blocks:
                if block.parent is not region:
                    _fail(op, "a block belongs to another region")
                self._block(op, block)
        self.visible = outer

    def _block(self, owner: Operation, block: Block) -> None:
        defined: list[Value] = []
        for index, argument in enumerate(block.args):
            if not isinstance(argument, BlockArgument) or argument.block is not block or argument.index != index:
                _fail(owner, f"block argument {index} does not know its place")
            defined.append(argument)
            self.visible[argument] = None
        previous: Operation | None = None
        op = block.first_op
        while op is not None:
            if op.parent is not block or op.prev_op is not previous or op in self.seen:
                _fail(op, "it is not linked into its block")
            self.operation(op)
            for result in op.results:
                defined.append(result)
                self.visible[result] = None
            previous, op = op, op.next_op
        if block.last_op is not previous:
            _fail(owner, "the last operation of a block is not linked")
        for value in defined:
            self.visible.pop(value)

    def _rules(self, op: Operation) -> None:
        definition = op.definition
        try:
            for trait in definition.traits:
                if trait.verify is not None:
                    trait.verify(op)
            if definition.infer is not None:
                inferred = list(definition.infer([v.type for v in op.operands_], op.attributes))
                actual = [r.type for r in op.results]
                if inferred != actual:
                    raise VerifyError(f"results are {_types(actual)}; inference gives {_types(inferred)}")
            if definition.verify is not None:
                definition.verify(op)
        except Exception as error:  # a rule may stumble in any way over an operation that breaks it
            message = str(error) if isinstance(error, VerifyError) else f"{type(error).__name__}: {error}"
            _fail(op, message, error)

    def uses(self, root: Operation) -> None:
        """Every use of a value that is defined inside ``root`` is a real one, by an operation inside ``root``."""
        for op in self.seen:
            values: list[Value] = [] if op is root else list(op.results)
            values += [argument for region in op.regions for block in region.blocks for argument in block.args]
            for value in values:
                for user, position in value.uses:
                    if position >= len(user.operands_) or user.operands_[position] is not value:
                        _fail(op, f"{user.name} is listed as a user of {_origin(value)}, but does not use it")
                    if user not in self.seen:
                        _fail(op, f"{user.name} uses {_origin(value)}, but stands outside the program")


def _origin(value: Value) -> str:
    if isinstance(value, OpResult):
        return f"result {value.index} of {value.op.name}"
    return f"a block argument of type {value.type}"


def _types(types: Sequence[Type]) -> str:
    return "(" + ", ".join(map(str, types)) + ")"
