"""Common subexpressions: equal pure operations are computed once."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Hashable, Mapping

from oarlock.ir import Block, Context, Operation, traits
from oarlock.ir.attributes import attribute_key
from oarlock.ir.passes import Pass
from oarlock.transforms.matching import is_commutative

__all__ = ["CommonSubexpressions"]


def _key(op: Operation) -> Hashable:
    """Equal for operations that compute the same."""
    operands = [id(operand) for operand in op.operands_]
    if is_commutative(op):
        operands.sort()
    attributes = tuple((name, attribute_key(value)) for name, value in sorted(op.attributes.items()))
    return (op.name, tuple(operands), attributes, tuple(result.type for result in op.results))


class CommonSubexpressions(Pass):
    """Replaces a pure operation by an equal one before it, in its block or around it."""

    name = "cse"
    level = 1

    def run(self, op: Operation, context: Context) -> Mapping[str, int]:
        """Share what is equal in ``op``; the number of operations removed."""
        return {"shared": _regions(op, ChainMap())}


def _regions(op: Operation, known: ChainMap[Hashable, Operation]) -> int:
    isolated = op.definition.has(traits.ISOLATED)
    return sum(
        _block(block, ChainMap() if isolated else known.new_child()) for region in op.regions for block in region.blocks
    )


def _block(block: Block, known: ChainMap[Hashable, Operation]) -> int:
    removed = 0
    for op in block.ops:
        if op.regions:
            removed += _regions(op, known)
        elif op.definition.has(traits.PURE) and op.results:
            first = known.setdefault(_key(op), op)
            if first is not op:
                _merge(op, first)
                removed += 1
    return removed


def _merge(op: Operation, first: Operation) -> None:
    for old, new in zip(op.results, first.results, strict=True):
        new.name_hint = new.name_hint or old.name_hint
        old.replace_all_uses_with(new)
    op.erase()
