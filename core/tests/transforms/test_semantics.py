"""Property tests: the passes keep every bit of what random programs compute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import OarlockError
from oarlock.ir import Block, Builder, Operation, Region, TensorType, Value, interpret, parse, print_op, verify
from oarlock.ir.interpret import Array
from oarlock.ir.passes import Pass, PassManager
from oarlock.ops import RECORDS, ArrayBuilder, array_context, tensor
from oarlock.transforms import (
    Alias,
    CommonSubexpressions,
    DeadCode,
    Fold,
    Layout,
    Simplify,
    Sink,
    standard_passes,
)

CONTEXT = array_context()
DTYPES = (dtypes.bool_, dtypes.uint8, dtypes.int32, dtypes.float16, dtypes.float32)
SHAPES = ((), (1,), (3,), (2, 3), (3, 1), (1, 3), (2, 0, 3))
FLOATS = (0.0, -0.0, 1.0, -1.0, 2.0, 4.0, 3.0, 0.5, np.inf, -np.inf, np.nan, 1e-7, 60000.0)
INTEGERS = (0, 1, 2, 3, 4, 7, 100, 255)
BINARY = (
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "trunc_remainder", "maximum", "minimum",
    "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "power", "equal", "less", "copysign",
)  # fmt: skip
UNARY = ("negative", "abs", "bitwise_invert", "floor", "ceil", "trunc", "round", "sqrt", "isnan", "sign")


def array(draw: st.DrawFn, dtype: DType, shape: tuple[int, ...]) -> Array:
    count = int(np.prod(shape))
    pool: tuple[float, ...] = (False, True) if dtype.kind == "bool" else FLOATS if dtype.is_float else INTEGERS
    if draw(st.booleans()):
        return np.full(shape, draw(st.sampled_from(pool))).astype(dtype.numpy)
    values = draw(st.lists(st.sampled_from(pool), min_size=count, max_size=count))
    return np.array(values).astype(dtype.numpy).reshape(shape)


class Generator:
    """Adds random operators to a block; what does not fit together is left out."""

    def __init__(self, draw: st.DrawFn, builder: ArrayBuilder, values: list[Value]) -> None:
        self.draw = draw
        self.b = builder
        self.values = values

    def pick(self, dtype: DType | None = None) -> Value:
        values = [v for v in self.values if dtype is None or tensor(v).dtype == dtype]
        return self.draw(st.sampled_from(values or self.values))

    def constant(self) -> Value:
        dtype, shape = self.draw(st.sampled_from(DTYPES)), self.draw(st.sampled_from(SHAPES))
        return self.b.constant(array(self.draw, dtype, shape))

    def unary(self) -> Value:
        return self.b(self.draw(st.sampled_from(UNARY)), self.pick())

    def binary(self) -> Value:
        x = self.pick()
        return self.b(self.draw(st.sampled_from(BINARY)), x, self.pick(tensor(x).dtype))

    def select(self) -> Value:
        x = self.pick()
        return self.b("select", self.pick(dtypes.bool_), x, self.pick(tensor(x).dtype))

    def convert(self) -> Value:
        return self.b("convert", self.pick(), dtype=self.draw(st.sampled_from(DTYPES)))

    def transpose(self) -> Value:
        x = self.pick()
        return self.b("transpose", x, permutation=tuple(self.draw(st.permutations(range(tensor(x).rank)))))

    def reshape(self) -> Value:
        x = self.pick()
        shape = tensor(x).static_shape
        shapes = [s for s in (*SHAPES, (6,), (3, 2), (0,)) if np.prod(s) == np.prod(shape)]
        return self.b("reshape", x, shape=self.draw(st.sampled_from([shape, *shapes])))

    def broadcast(self) -> Value:
        x = self.pick()
        shape = tensor(x).static_shape
        larger = tuple(2 if d == 1 and self.draw(st.booleans()) else d for d in shape)
        front = self.draw(st.sampled_from([(), (2,)]))
        dims = tuple(range(len(front), len(front) + len(shape)))
        return self.b("broadcast", x, shape=(*front, *larger), dims=dims)

    def slice(self) -> Value:
        x = self.pick()
        shape = tensor(x).static_shape
        starts = tuple(self.draw(st.integers(0, d)) for d in shape)
        limits = tuple(self.draw(st.integers(s, d)) for s, d in zip(starts, shape, strict=True))
        return self.b(
            "slice", x, starts=starts, limits=limits, steps=tuple(self.draw(st.integers(1, 3)) for _ in shape)
        )

    def reverse(self) -> Value:
        x = self.pick()
        axes = [a for a in range(tensor(x).rank) if self.draw(st.booleans())]
        return self.b("reverse", x, axes=tuple(axes))

    def pad(self) -> Value:
        x = self.pick()
        low, high, interior = (tuple(self.draw(st.integers(0, 1)) for _ in tensor(x).shape) for _ in range(3))
        return self.b("pad", x, self.pick(tensor(x).dtype), low=low, high=high, interior=interior)

    def concat(self) -> Value:
        x = self.pick()
        parts = [v for v in self.values if tensor(v).dtype == tensor(x).dtype and tensor(v).rank == tensor(x).rank]
        count = self.draw(st.integers(1, 3))
        others = [self.draw(st.sampled_from(parts)) for _ in range(count - 1)]
        return self.b("concat", x, *others, axis=self.draw(st.integers(0, max(tensor(x).rank - 1, 0))))

    def reduce(self) -> Value:
        x = self.pick()
        axes = tuple(a for a in range(tensor(x).rank) if self.draw(st.booleans()))
        name = self.draw(st.sampled_from(["reduce_sum", "reduce_max", "reduce_prod"]))
        return self.b(name, x, axes=axes, keepdims=self.draw(st.booleans()))

    def branch(self) -> Value:
        condition = next(v for v in reversed(self.values) if tensor(v) == TensorType(dtypes.bool_, ()))
        x = self.pick()
        regions = []
        for _ in range(2):
            block = Block()
            inner = Generator(self.draw, ArrayBuilder(CONTEXT, block), list(self.values))
            inner.grow(2)
            same = [v for v in inner.values if v.type == x.type]
            ArrayBuilder(CONTEXT, block).create("control.yield", [self.draw(st.sampled_from(same))])
            regions.append(Region([block]))
        return self.b.create("control.if", [condition], {}, [x.type], regions).result

    def grow(self, steps: int) -> None:
        makers: list[Callable[[], Value]] = [
            self.constant, self.unary, self.binary, self.binary, self.binary, self.select, self.convert,
            self.transpose, self.reshape, self.broadcast, self.slice, self.reverse, self.pad, self.concat, self.reduce,
            self.branch,
        ]  # fmt: skip
        for _ in range(steps):
            try:
                value = self.draw(st.sampled_from(makers))()
            except (OarlockError, StopIteration):
                continue
            if np.prod(tensor(value).static_shape) <= 64:
                self.values.append(value)


@st.composite
def programs(draw: st.DrawFn) -> tuple[Operation, list[Array]]:
    arguments = [array(draw, draw(st.sampled_from(DTYPES)), draw(st.sampled_from(SHAPES))) for _ in range(3)]
    block = Block([TensorType(dtypes.from_numpy(a.dtype), a.shape) for a in arguments])
    generator = Generator(draw, ArrayBuilder(CONTEXT, block), [*block.args])
    for number in (0, 1):
        generator.values.append(generator.b.constant(np.asarray(bool(number))))
    generator.grow(12)
    Builder(CONTEXT, block).create("builtin.return", generator.values[-5:])
    function = Operation(CONTEXT.definition("builtin.function"), (), {"name": "main"}, (), [Region([block])])
    return function, arguments


def assert_same_bits(actual: Array, expected: Array) -> None:
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    wide = expected.astype(np.float64)
    np.testing.assert_array_equal(actual.astype(np.float64), wide)
    np.testing.assert_array_equal(
        np.signbit(actual.astype(np.float64)) & ~np.isnan(wide), np.signbit(wide) & ~np.isnan(wide)
    )


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.permutations([Fold(), Simplify(), Alias(), Layout(), Sink(), CommonSubexpressions(), DeadCode()]))
def test_passes_keep_every_bit(program: tuple[Operation, list[Array]], passes: list[Pass]) -> None:
    function, arguments = program
    verify(function)
    expected = interpret(function, arguments)
    PassManager(CONTEXT, passes).run(function)
    assert str(parse(print_op(function), CONTEXT)) == str(function)
    for actual, wanted in zip(interpret(function, arguments), expected, strict=True):
        assert_same_bits(actual, wanted)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_passes_settle(program: tuple[Operation, list[Array]]) -> None:
    function, _ = program
    passes = [Fold(), Simplify(), Alias(), Layout(), Sink(), CommonSubexpressions(), DeadCode()]
    for _ in range(6):
        before = str(function)
        PassManager(CONTEXT, passes).run(function)
        if str(function) == before:
            return
    raise AssertionError(f"still changing:\n{function}")


@pytest.mark.parametrize("name", sorted(name for name, record in RECORDS.items() if record.decompose))
def test_composite_decomposes_into_primitives(name: str) -> None:
    record = RECORDS[name]
    assert record.samples is not None
    dtype = dtypes.float32 if dtypes.float32 in record.dtypes else record.dtypes[-1]
    call = record.samples(dtype, np.random.default_rng(0))[0]
    block = Block([TensorType(dtypes.from_numpy(a.dtype), a.shape) for a in call.operands])
    results = ArrayBuilder(CONTEXT, block).many(name, *block.args, **call.attributes)
    Builder(CONTEXT, block).create("builtin.return", results)
    function = Operation(CONTEXT.definition("builtin.function"), (), {"name": name}, (), [Region([block])])
    expected = interpret(function, call.operands)
    PassManager(CONTEXT, standard_passes()).run(function)
    left = {op.name.removeprefix("array.") for op in function.walk()} & set(RECORDS)
    assert all(RECORDS[other].is_primitive for other in left)
    for actual, wanted in zip(interpret(function, call.operands), expected, strict=True):
        np.testing.assert_allclose(actual.astype(np.float64), wanted.astype(np.float64), rtol=1e-4, atol=1e-5)
