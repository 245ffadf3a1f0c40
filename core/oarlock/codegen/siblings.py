"""Siblings: one row times several fixed matrices is one product with these side by side.

A decoder that makes one token at a time multiplies the same row with the weights of queries, keys and values: launches
then cost as much as the work. The matrices are joined once, when the plan is made.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable

from oarlock.codegen.free import is_free, significant
from oarlock.codegen.lower.anchors import pairs
from oarlock.codegen.values import shape_of
from oarlock.ir import Context, Operation, Value, traits
from oarlock.ops import ArrayBuilder, tensor

__all__ = ["join_siblings"]


def join_siblings(function: Operation, context: Context, fixed: Collection[Value]) -> None:
    """Join the products in ``function`` of one row and arguments that are ``fixed`` matrices, where the kernel of one
    alone would not compute what follows it as well."""
    families: defaultdict[Hashable, list[Operation]] = defaultdict(list)
    for op in function.regions[0].block.ops:
        if op.name == "array.dot_general" and _is_row_times_argument(op, fixed) and not _is_followed(op):
            x, _ = op.operands
            families[(x, pairs(op, "contract"), tensor(op.result).dtype)].append(op)
    for family in families.values():
        if len(family) > 1:
            _join(family, context)


def _is_row_times_argument(op: Operation, fixed: Collection[Value]) -> bool:
    x, y = op.operands
    (left, right), batch = pairs(op, "contract"), pairs(op, "batch")
    rows = math.prod(n for d, n in enumerate(shape_of(x)) if d not in left)
    plain = y in fixed and y.defining_op is None and len(shape_of(y)) == 2
    return plain and len(right) == 1 and batch == ((), ()) and rows == 1


def _is_followed(op: Operation) -> bool:
    """Whether element-wise operators on the whole result follow, which its kernel would compute."""
    pending = [op.result]
    while pending:
        for user in pending.pop().users:
            if not user.results or significant(shape_of(user.results[0])) != significant(shape_of(op.result)):
                continue
            if user.definition.has(traits.ELEMENTWISE):
                return True
            if is_free(user):
                pending += user.results
    return False


def _join(family: list[Operation], context: Context) -> None:
    first = family[0]
    assert first.parent is not None
    b = ArrayBuilder(context, first.parent, first)
    b.location = first.location
    free = 1 - pairs(first, "contract")[1][0]
    joined = b("concat", *(op.operands[1] for op in family), axis=free)
    product = b.create(first.name, [first.operands[0], joined], first.attributes).result
    shape = shape_of(product)
    start, before, steps = 0, (0,) * (len(shape) - 1), (1,) * len(shape)
    for op in family:
        end = start + shape_of(op.result)[-1]
        part = b("slice", product, starts=(*before, start), limits=(*shape[:-1], end), steps=steps)
        op.result.replace_all_uses_with(part)
        start = end
    for op in family:
        op.erase()
