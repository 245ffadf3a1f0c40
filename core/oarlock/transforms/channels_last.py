"""Channels last: convolutions of images whose channels lie side by side, where a processor's vectors take them.

A vector then holds neighbouring channels of one pixel: rows of the result have any length, every element of a kernel
meets whole vectors, and padding and pooling copy and compare them. What lies between convolutions and works alike in
any layout goes with them, so that an image is transposed where it enters and leaves such a part of a program.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from oarlock.ir import Block, Context, Operation, Value
from oarlock.ir.passes import Pass
from oarlock.ops.record import ArrayBuilder, tensor
from oarlock.target import Target
from oarlock.transforms.matching import ints, splat_of
from oarlock.transforms.movers import Permutation, in_layout, is_movable, moved, operands_moved, significant

__all__ = ["ChannelsLast"]

_LEAST_VECTOR = 4
_CONVOLUTION = "array.convolution"
REPAID = 200
"""Multiply-adds of convolutions that repay one element of what is transposed: the former take about 0.4 of 10 ps less
each on two cores with vectors of 8, the latter 1 to 2 ns."""


class ChannelsLast(Pass):
    """Turns the parts of a program around convolutions of all channels (one group)."""

    name = "channels_last"
    level = 2
    after = ("simplify", "alias")
    before = ("layout",)

    def applies(self, target: Target) -> bool:
        """Where a block is a processor with vectors."""
        return not target.has_threads and target.limits.vector_width >= _LEAST_VECTOR

    def run(self, op: Operation, context: Context) -> Mapping[str, int]:
        """Turn what is in ``op``; how many convolutions, and what else works alike."""
        counts = {"convolutions": 0, "others": 0}
        for block in [block for inner in op.walk() for region in inner.regions for block in region.blocks]:
            for part in _parts(block):
                turned = sum(member.name == _CONVOLUTION for member in part)
                counts["convolutions"] += turned
                counts["others"] += len(part) - turned
                _turn(block, part, context)
        return counts


def _parts(block: Block) -> list[dict[Operation, None]]:
    """What is to be turned together: convolutions and what is between them, of one rank."""
    found: list[dict[Operation, None]] = []
    seen: set[Operation] = set()
    for op in block.ops:
        if op.name == _CONVOLUTION and op not in seen:
            part = dict.fromkeys(_around(op))
            seen.update(part)
            dense = all(_is_dense(member) for member in part if member.name == _CONVOLUTION)
            known = all(tensor(v).is_static for member in part for v in (*member.operands_, member.result))
            if dense and known and sum(map(_work, part)) >= REPAID * _transposed(part):
                found.append(part)
    return found


def _elements(value: Value) -> int:
    """How many elements ``value`` has."""
    return math.prod(tensor(value).static_shape)


def _work(op: Operation) -> int:
    """Multiply-adds of a convolution, 0 of all else."""
    if op.name != _CONVOLUTION:
        return 0
    return _elements(op.result) * math.prod(tensor(op.operands_[1]).static_shape[1:])


def _transposed(part: Mapping[Operation, None]) -> int:
    """How many elements come into ``part`` and go out of it."""
    values: dict[Value, None] = {}
    for op in part:
        made = {operand: None for operand in op.operands_[: _moved_operands(op)] if operand.defining_op not in part}
        values |= {v: None for v in made if splat_of(v) is None and significant(v) > 1}
        if any(user not in part or position >= _moved_operands(user) for user, position in op.result.uses):
            values[op.result] = None
    return sum(map(_elements, values))


def _is_dense(op: Operation) -> bool:
    return op.attributes["groups"] == 1 and not op.attributes.get("channels_last", False)


def _around(first: Operation) -> list[Operation]:
    """``first`` and all that is connected to it by values of its rank, through what works alike in any layout."""
    rank = tensor(first.result).rank
    part = {first: None}
    waiting = [first]
    while waiting:
        op = waiting.pop()
        for other in _neighbours(op):
            if other not in part and other.parent is first.parent and _goes_along(other, rank):
                part[other] = None
                waiting.append(other)
    return list(part)


def _neighbours(op: Operation) -> Iterator[Operation]:
    for operand in op.operands_[: _moved_operands(op)]:
        if operand.defining_op is not None:
            yield operand.defining_op
    for user, position in op.result.uses:
        if position < _moved_operands(user):
            yield user


def _goes_along(op: Operation, rank: int) -> bool:
    return (op.name == _CONVOLUTION or is_movable(op)) and tensor(op.result).rank == rank


def _moved_operands(op: Operation) -> int:
    return 1 if op.name == _CONVOLUTION else operands_moved(op)


def _turn(block: Block, part: Mapping[Operation, None], context: Context) -> None:
    """Compute the operations of ``part`` with the channels last, and transpose what comes in and what goes out."""
    made: dict[Value, Value] = {}
    order = [op for op in block.ops if op in part]
    rank = tensor(order[0].result).rank
    p: Permutation = (0, *range(2, rank), 1)
    for op in order:
        build = ArrayBuilder(context, block, op)
        build.location = op.location
        count = _moved_operands(op)
        operands = []
        for operand in op.operands_[:count]:
            if operand not in made:
                made[operand] = in_layout(build, operand, p)
            operands.append(made[operand])
        operands += op.operands_[count:]
        attributes = {**op.attributes, "channels_last": True} if op.name == _CONVOLUTION else moved(op, p)
        made[op.result] = build.create(op.name, operands, attributes).result
        _hand_over(op, made[op.result], part, build, p)
    for op in reversed(order):
        op.erase()


def _hand_over(
    op: Operation, result: Value, part: Mapping[Operation, None], build: ArrayBuilder, p: Permutation
) -> None:
    """Give those who are not in ``part`` the result as they know it."""
    back: Value | None = None
    for user, position in list(op.result.uses):
        if user in part and position < _moved_operands(user):
            continue
        if user.name == "array.transpose" and ints(user, "permutation") == p and user.parent is op.parent:
            user.result.replace_all_uses_with(result)
            continue
        if back is None:
            back = build("transpose", result, permutation=tuple(p.index(d) for d in range(len(p))))
        user.set_operand(position, back)
