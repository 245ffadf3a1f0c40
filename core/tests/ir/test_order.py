"""Positions of operations in a block: right after any insertions, and cheap."""

from __future__ import annotations

import random

import pytest

from oarlock.ir import Block, Context, Dialect, OpDefinition, Operation
from oarlock.ir.order import Order

DEFINITION = OpDefinition("t.op", operands=0, results=0)
CONTEXT = Context([Dialect("t", 1, [DEFINITION])])


def some(count: int) -> Block:
    block = Block()
    for _ in range(count):
        block.append(Operation(DEFINITION))
    return block


def check(order: Order, block: Block) -> None:
    numbers = [order.position(op) for op in block.ops]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("seed", range(5))
def test_positions_grow_along_the_block_whatever_is_inserted(seed: int) -> None:
    rng = random.Random(seed)
    block, order = some(5), Order()
    for _ in range(300):
        anchor = rng.choice(list(block.ops))
        made = Operation(DEFINITION)
        block.insert_before(anchor, made) if rng.random() < 0.5 else block.insert_after(anchor, made)
        if rng.random() < 0.3:
            assert order.before(anchor, made) == anchor.is_before(made)
        if rng.random() < 0.1:
            rng.choice(list(block.ops)).erase()
    check(order, block)


def test_block_is_numbered_anew_where_no_number_is_left() -> None:
    block, order = some(2), Order()
    check(order, block)
    first = block.first_op
    assert first is not None
    for _ in range(200):  # each goes right after the first, into half of what is left
        order.position(block.insert_after(first, Operation(DEFINITION)))
    check(order, block)


def test_operation_moved_to_another_block_is_numbered_there() -> None:
    left, right, order = some(3), some(3), Order()
    check(order, left)
    check(order, right)
    moved = left.first_op
    assert moved is not None
    right.append(moved.detach())
    check(order, right)
