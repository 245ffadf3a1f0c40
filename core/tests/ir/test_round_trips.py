"""Property tests: generated programs survive text and JSON; broken text and JSON end in ParseError alone."""

from __future__ import annotations

import copy
import json
import math
import random
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oarlock import dtypes
from oarlock.errors import ParseError, VerifyError
from oarlock.ir import (
    Attribute,
    Block,
    BufferType,
    Builder,
    Context,
    Dense,
    Dialect,
    OpDefinition,
    Operation,
    Region,
    ScalarType,
    Size,
    TensorType,
    Type,
    Value,
    parse,
    print_op,
    symbol,
    traits,
    verify,
)
from oarlock.ir.attributes import attribute_key
from oarlock.ir.json import from_json, to_json

ANY = OpDefinition("test.any", operands=None, results=None, regions=None)
ISOLATED = OpDefinition("test.isolated", operands=None, results=None, regions=None, traits=frozenset({traits.ISOLATED}))
CONTEXT = Context([Dialect("test", 3, [ANY, ISOLATED])])
QUICK = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))

NAMES = st.text(min_size=0, max_size=6) | st.sampled_from(["x", "0", "a#1", "/conv/Add_1", "é", "\n", "%"])
SIZES = st.recursive(
    st.sampled_from(["n", "batch", "x4", "max", "ñ"]).map(symbol),
    lambda inner: st.builds(
        lambda operator, left, right: Size(operator, "", left, right),
        st.sampled_from(["+", "-", "*", "//", "%", "max", "min"]),
        inner | st.integers(-9, 1 << 40),
        inner | st.integers(-9, 1 << 40),
    ),
    max_leaves=4,
)
DTYPES = st.sampled_from(dtypes.ALL)
TYPES: st.SearchStrategy[Type] = st.one_of(
    st.builds(TensorType, DTYPES, st.lists(st.integers(0, 1 << 50) | SIZES, max_size=4).map(tuple)),
    st.builds(ScalarType, DTYPES, st.sampled_from([1, 4])),
    st.builds(
        BufferType, DTYPES, st.sampled_from(["global", "local", "private"]), st.sampled_from(["read", "write", "both"])
    ),
)


@st.composite
def dense(draw: st.DrawFn) -> Dense:
    dtype = draw(DTYPES)
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    count = math.prod(shape)
    if dtype.kind == "bool":
        return Dense(np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), np.bool_).reshape(shape))
    data = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    return Dense(np.frombuffer(data, dtype.numpy).reshape(shape))


FLOATS = st.floats() | st.binary(min_size=8, max_size=8).map(lambda raw: float(struct.unpack("<d", raw)[0]))
ATTRIBUTES: st.SearchStrategy[Attribute] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | FLOATS
    | st.text(st.characters(exclude_categories=()), max_size=8)
    | DTYPES
    | TYPES
    | SIZES
    | dense(),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


@st.composite
def blocks(draw: st.DrawFn, depth: int, visible: list[Value]) -> Block:
    block = Block(draw(st.lists(TYPES, max_size=2)))
    for argument in block.args:
        argument.name_hint = draw(st.none() | NAMES)
    builder = Builder(CONTEXT, block)
    inside: list[Value] = [*visible, *block.args]
    for _ in range(draw(st.integers(0, 3))):
        isolated = draw(st.booleans())
        operands = draw(st.lists(st.sampled_from(inside), max_size=3)) if inside else []
        count = draw(st.integers(0, 2)) if depth > 0 else 0
        outer = [] if isolated else inside
        regions = [Region(draw(st.lists(blocks(depth - 1, outer), max_size=2))) for _ in range(count)]
        attributes = draw(st.dictionaries(NAMES, ATTRIBUTES, max_size=2))
        builder.location = draw(st.none() | NAMES)
        name = "test.isolated" if isolated else "test.any"
        op = builder.create(name, operands, attributes, draw(st.lists(TYPES, max_size=2)), regions)
        for result in op.results:
            result.name_hint = draw(st.none() | NAMES)
        inside += op.results
    return block


@st.composite
def programs(draw: st.DrawFn) -> Operation:
    return Operation(CONTEXT.definition("test.any"), regions=[Region([draw(blocks(2, []))])])


def signature(op: Operation) -> list[Any]:
    """All that a round trip must keep, values by number."""
    numbers: dict[Value, int] = {}

    def value(item: Value) -> tuple[int, str, str | None]:
        return (numbers.setdefault(item, len(numbers)), str(item.type), item.name_hint)

    def visit(op: Operation) -> list[Any]:
        return [
            op.name,
            op.location,
            list(map(value, op.operands)),
            {name: attribute_key(attribute) for name, attribute in op.attributes.items()},
            list(map(value, op.results)),
            [[[list(map(value, b.args)), list(map(visit, b.ops))] for b in region.blocks] for region in op.regions],
        ]

    return visit(op)


@QUICK
@given(programs())
def test_round_trips_keep_everything(program: Operation) -> None:
    text = print_op(program, locations=True)
    document = to_json(program, CONTEXT)
    from_text = parse(text, CONTEXT)
    from_document = from_json(json.loads(json.dumps(document)), CONTEXT)
    assert print_op(from_text, locations=True) == text
    assert to_json(from_document, CONTEXT) == document
    expected = signature(program)
    assert signature(from_text) == expected
    assert signature(from_document) == expected
    assert signature(program.clone()) == expected


@settings(QUICK, max_examples=10)
@given(programs(), st.randoms(use_true_random=False))
def test_mutated_text_parses_or_raises_parse_error(program: Operation, random_: random.Random) -> None:
    text = print_op(program, locations=True)
    for _ in range(20):
        start = random_.randrange(len(text) + 1)
        end = min(len(text), start + random_.choice([0, 1, 1, 3, 20]))
        piece = random_.choice(["", "{", "}", "(", ")", "%0", '"', "x", "9" * 30, "dense<9x9xint8: ", "\\u{", "-", "<"])
        try:
            broken = parse(text[:start] + piece + text[end:], CONTEXT)
        except ParseError as error:
            assert str(error).startswith("line ")
        else:
            print_op(broken)


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a document."""
    found = []
    waiting = [data]
    while waiting:
        item = waiting.pop()
        keys = list(item) if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else []
        found += [(item, key) for key in keys]
        waiting += [item[key] for key in keys]
    return found


JUNK = [None, True, -1, 1 << 70, 1.5, "", "tensor<", "int8", [], [[]], {}, {"dense": {}}, {"x": 1}, {"id": 0}, {1: 2},
        {"dense": {"dtype": "int64", "shape": [1 << 40, 1 << 40], "data": "AAAA"}}, {"size": "(" * 5000}]  # fmt: skip


@settings(QUICK, max_examples=10)
@given(programs(), st.randoms(use_true_random=False))
def test_mutated_json_parses_or_raises_parse_error(program: Operation, random_: random.Random) -> None:
    document = to_json(program, CONTEXT)
    for _ in range(20):
        broken = copy.deepcopy(document)
        container, key = random_.choice(_places(broken))
        container[key] = random_.choice(JUNK)
        try:
            operation = from_json(broken, CONTEXT)
            verify(operation)
        except (ParseError, VerifyError):
            continue
        print_op(operation)


@pytest.mark.parametrize("count", [10_000])
def test_large_programs_take_linear_time(count: int) -> None:
    kind = TensorType(dtypes.float32, (4, 8))
    block = Block([kind])
    builder = Builder(CONTEXT, block)
    value: Value = block.args[0]
    for _ in range(count):
        value = builder.create("test.any", [value, block.args[0]], {}, [kind]).result
    program = Operation(CONTEXT.definition("test.any"), regions=[Region([block])])
    text = print_op(program)
    again = parse(text, CONTEXT)
    verify(again)
    assert print_op(again) == text
    assert sum(1 for _ in from_json(to_json(program, CONTEXT), CONTEXT).walk()) == count + 1
