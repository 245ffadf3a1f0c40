"""The data structure: use lists, linked blocks, cloning, dialects in a context."""

from __future__ import annotations

import time

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.errors import DTypeError, IRError
from oarlock.ir import (
    Block,
    Builder,
    Context,
    Dense,
    Dialect,
    OpDefinition,
    Operation,
    Region,
    ScalarType,
    TensorType,
    Value,
    symbol,
    traits,
)
from oarlock.ir.attributes import attribute_key, is_attribute
from oarlock.ir.dialects import is_pure

I1 = TensorType(dtypes.int32, ())
ANY = OpDefinition("t.any", operands=None, results=None, regions=None)
NONE = OpDefinition("t.none", operands=None, results=0, regions=None)
PURE = OpDefinition("t.pure", operands=None, results=None, traits=frozenset({traits.PURE}))
IF = OpDefinition("t.if", operands=None, results=None, regions=None, traits=frozenset({traits.RECURSIVELY_PURE}))
END = OpDefinition("t.end", operands=None, results=0, traits=frozenset({traits.TERMINATOR}))
CONTEXT = Context([Dialect("t", 1, [ANY, NONE, PURE, IF, END])])


def test_use_lists_follow_operands() -> None:
    block = Block([I1, I1])
    x, y = block.args
    op = Builder(CONTEXT, block).create("t.any", [x, x, y], {}, [I1])
    assert list(x.uses) == [(op, 0), (op, 1)] and x.users == [op]
    op.set_operand(0, y)
    assert list(x.uses) == [(op, 1)] and list(y.uses) == [(op, 2), (op, 0)]
    x.replace_all_uses_with(y)
    assert not x.uses and op.operands == (y, y, y)
    y.replace_all_uses_with(y)
    op.set_operands([x])
    assert op.operands == (x,) and not y.uses


def test_replacing_many_uses_is_linear() -> None:
    block = Block([I1, I1])
    builder = Builder(CONTEXT, block)
    for _ in range(20_000):
        builder.create("t.none", block.args[:1])
    start = time.perf_counter()
    block.args[0].replace_all_uses_with(block.args[1])
    assert time.perf_counter() - start < 2
    assert len(block.args[1].uses) == 20_000


def test_blocks_are_linked() -> None:
    block = Block()
    a, b, c = (Operation(ANY) for _ in range(3))
    block.append(b)
    block.insert_before(b, a)
    block.insert_after(b, c)
    assert list(block.ops) == [a, b, c] and block.terminator is c
    assert a.is_before(c) and not c.is_before(a)
    assert b.detach() is b and list(block.ops) == [a, c] and b.parent is None and b.detach() is b
    with pytest.raises(IRError, match="stands in a block"):
        block.append(a)
    a.erase()
    c.erase()
    assert block.first_op is None and block.last_op is None
    with pytest.raises(IRError, match="empty"):
        _ = block.terminator


def test_erase_refuses_used_results_and_drops_uses_inside() -> None:
    block = Block([I1])
    builder = Builder(CONTEXT, block)
    first = builder.create("t.any", (), {}, [I1])
    inner = Block()
    Builder(CONTEXT, inner).create("t.none", [first.result, block.args[0]])
    holder = builder.create("t.none", regions=[Region([inner])])
    with pytest.raises(IRError, match="result 0 is used by t.none"):
        first.erase()
    holder.erase()
    first.erase()
    assert not block.args[0].uses


def test_arguments_can_go_when_unused() -> None:
    block = Block([I1, I1, I1])
    Builder(CONTEXT, block).create("t.none", [block.args[2]])
    block.erase_argument(block.args[0])
    assert [a.index for a in block.args] == [0, 1]
    with pytest.raises(IRError, match="cannot erase block argument 1"):
        block.erase_argument(block.args[1])
    assert block.add_argument(I1).index == 2


def test_clone_maps_values_and_keeps_outside_ones() -> None:
    block = Block([I1])
    x = block.args[0]
    inner = Block([I1])
    inner.args[0].name_hint = "a"
    made = Builder(CONTEXT, inner).create("t.any", [x, inner.args[0]], {"k": 1}, [I1])
    holder = Builder(CONTEXT, block).create("t.any", [x], {}, [], [Region([inner])])
    other = Block([I1]).args[0]
    mapping: dict[Value, Value] = {x: other}
    copy = holder.clone(mapping)
    twin = next(copy.regions[0].block.ops)
    assert copy.operands == (other,) and copy.parent is None
    assert twin.operands == (other, copy.regions[0].block.args[0]) and mapping[made.result] is twin.result
    assert copy.regions[0].block.args[0].name_hint == "a"
    twin.attributes["k"] = 2
    assert made.attributes == {"k": 1} and holder.operands == (x,)


def test_parents_are_known_and_unique() -> None:
    block = Block()
    region = Region([block])
    op = Operation(ANY, regions=[region])
    inner = Builder(CONTEXT, block).create("t.none")
    assert inner.parent_op is op and block.parent_op is op and op.parent_op is None
    with pytest.raises(IRError, match="region already belongs to t.any"):
        Operation(ANY).add_region(region)
    with pytest.raises(IRError, match="block already belongs"):
        Region([block])
    with pytest.raises(IRError, match="region has 0 blocks"):
        _ = Region().block
    with pytest.raises(IRError, match="has 0 results, not one"):
        _ = op.result


def test_walk_survives_erasing_the_current_operation() -> None:
    block = Block()
    builder = Builder(CONTEXT, block)
    for _ in range(5):
        builder.create("t.none")
    root = Operation(ANY, regions=[Region([block])])
    for op in root.walk():
        if op is not root:
            op.erase()
    assert list(root.walk()) == [root]


def test_purity_of_regions_decides() -> None:
    def branch(*names: str) -> Operation:
        block = Block()
        for name in names:
            Builder(CONTEXT, block).create(name, (), {}, ())
        return Operation(IF, regions=[Region([block])])

    assert is_pure(branch("t.pure", "t.end"))
    assert not is_pure(branch("t.any", "t.end"))
    assert not is_pure(Operation(ANY))


def test_builder_tells_its_listener_and_sets_locations() -> None:
    block = Block()
    builder = Builder(CONTEXT, block)
    heard: list[Operation] = []
    builder.listener = heard.append
    builder.location = "a.py:1"
    op = builder.create("t.none")
    assert heard == [op] and op.location == "a.py:1"
    before = Builder(CONTEXT, block, op).create("t.none")
    assert list(block.ops) == [before, op]
    with pytest.raises(IRError, match="cannot infer"):
        Builder(Context([Dialect("u", 1, [OpDefinition("u.x", operands=0)])]), block).create("u.x")


def test_names_are_taken_once() -> None:
    dialect = Dialect("t", 1, [ANY])
    with pytest.raises(IRError, match="dialect t has t.any already"):
        dialect.add(ANY)
    with pytest.raises(IRError, match="does not belong to dialect u"):
        Dialect("u", 1, [ANY])
    context = Context([dialect])
    context.register(dialect)
    with pytest.raises(IRError, match="there is a dialect 't' already"):
        context.register(Dialect("t", 2))
    with pytest.raises(IRError, match="no dialect 'w': a plugin is missing; there are builtin, t"):
        context.dialect("w")


def test_attribute_keys_tell_apart_what_python_calls_equal() -> None:
    values = [1, 1.0, True, 0, 0.0, -0.0, False, None, "1", (1,), (1.0,), (), symbol("n"), dtypes.int8, I1]
    keys = [attribute_key(value) for value in values]
    assert len(set(keys)) == len(values)
    assert attribute_key((float("nan"),)) == attribute_key((float("nan"),))


def test_dense_equality_is_by_bits() -> None:
    assert Dense(np.array([np.nan])) == Dense(np.array([np.nan]))
    assert Dense(np.array([0.0])) != Dense(np.array([-0.0]))
    assert Dense(np.array([1], np.int32)) != Dense(np.array([1], np.uint32))
    assert hash(Dense(np.array([1, 2]))) == hash(Dense(np.array([1, 2])))
    source = np.array([1, 2])
    dense = Dense(source)
    source[0] = 5
    assert dense.array[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        dense.array[0] = 5
    with pytest.raises(DTypeError):
        Dense(np.array(["text"]))


def test_attributes_are_immutable_values() -> None:
    assert is_attribute(((1, "x"), None, 2.0, I1, dtypes.int8, symbol("n"), Dense(np.array(1))))
    assert not is_attribute([1]) and not is_attribute((1, {}))


def test_types_print_and_compare_by_value() -> None:
    n = symbol("n")
    kind = TensorType(dtypes.float32, (n, 4, n + 1))
    assert str(kind) == "tensor<(n)x4x(n + 1)xfloat32>"
    assert kind == TensorType(dtypes.float32, (symbol("n"), 4, n + 1)) and kind.rank == 3 and not kind.is_static
    with pytest.raises(TypeError, match="symbolic"):
        _ = kind.static_shape
    assert str(ScalarType(dtypes.int8, 4)) == "scalar<int8, 4>"
