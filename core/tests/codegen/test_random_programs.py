"""Random programs give on devices what the interpreter gives."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import DTypeError, ShapeError
from oarlock.ir import Block, Operation, Region, TensorType, Value
from oarlock.ir.interpret import interpret
from oarlock.ops import ArrayBuilder, array_context, tensor
from oarlock.runtime import from_numpy, open_device, to_numpy
from oarlock.runtime.execute import execute

SHAPES = [(3, 4), (4,), (3, 1), (1, 4), (2, 3, 4), (), (5, 70), (70,), (5, 1)]
LARGEST = 3000
"""Elements of a value that a program may hold."""


class Generator:
    """Appends random operators, most of them on recent values."""

    def __init__(self, seed: int, dtype: DType) -> None:
        self.random = random.Random(seed)
        self.dtype = dtype

    def types(self) -> list[TensorType]:
        return [TensorType(self.dtype, self.random.choice(SHAPES)) for _ in range(self.random.randint(1, 3))]

    def results(self, b: ArrayBuilder, arguments: list[Value], length: int) -> list[Value]:
        values = list(arguments)
        while len(values) < length:
            x = self.random.choice(values[-6:] if self.random.random() < 0.7 else values)
            try:
                value = self.random.choice(self.makers())(b, x, self.random.choice(values))
            except (ShapeError, DTypeError):  # operands that do not fit together: draw again
                continue
            if math.prod(tensor(value).static_shape) <= LARGEST:
                values.append(value)
        return list(dict.fromkeys([values[-1], *self.random.sample(values, min(2, len(values)))]))

    def makers(self) -> list[Callable[[ArrayBuilder, Value, Value], Value]]:
        element_wise = [self.unary, self.binary, self.binary, self.binary, self.select]
        moves = [self.transpose, self.slice, self.reverse, self.pad, self.concat, self.reshape, self.broadcast]
        return [*element_wise, self.reduce, self.reduce, *moves, self.scan]

    def axis(self, x: Value) -> int:
        rank = tensor(x).rank
        if not rank:
            raise ShapeError("no axis to choose")
        return self.random.randrange(rank)

    def unary(self, b: ArrayBuilder, x: Value, y: Value) -> Value:
        return b(self.random.choice(["abs", "negative", "sign"]), x)

    def binary(self, b: ArrayBuilder, x: Value, y: Value) -> Value:
        return b(self.random.choice(["add", "subtract", "multiply", "maximum", "minimum"]), x, y)

    def select(self, b: ArrayBuilder, x: Value, y: Value) -> Value:
        return b("select", b("less", x, y), x, y)

    def reduce(self, b: ArrayBuilder, x: Value, y: Value) -> Value:
        self.axis(x)
        rank = tensor(x).rank
        axes = tuple(sorted(self.random.sample(range(rank), self.random.randint(1, rank))))
        kind = self.random.choice(["sum", "max", "min"])
        return b(f"reduce_{kind}", x, axes=axes, keepdims=self.random.random() < 0.6)

    def transpose(self, b: ArrayBuilder, x: Value, y: Value) -> Value:
        order = list(range(tensor(x).rank))
        self.random.shuffle(order)
        return b("transpose", x, permutation=tuple(order))

    def slice(self, b: ArrayBuilder, x: Value, y: Value) -> Value:
        shape = tensor(x).static_shape
        starts = tuple(self.random.randint(0, d - 1) for d in shape)
        limits = tuple(self.random.randint(s + 1, d) for s, d in zip(starts, shape, strict=True))
        return b("slice", x, starts=starts, limits=limits, steps=tuple(self.random.choice([1, 1, 2]) for _ in shape))

    def reverse(self, b: ArrayBuilder, x: Value, y: Value) -> Value:
        return b("reverse", x, axes=(self.axis(x),))

    def pad(self, b: ArrayBuilder, x: Value, y: Value) -> Value:
        def some(most: int) -> tuple[int, ...]:
            return tuple(self.random.randint(0, most) for _ in tensor(x).shape)

        return b("pad", x, b.constant(np.asarray(1), self.dtype), low=some(1), high=some(2), interior=some(1))

    def concat(self, b: ArrayBuilder, x: Value, y: Value) -> Value:
        return b("concat", x, x, axis=self.axis(x))

    def reshape(self, b: ArrayBuilder, x: Value, y: Value) -> Value:
        shape = tensor(x).static_shape
        count = math.prod(shape)
        divisors = [d for d in range(1, count + 1) if count % d == 0]
        first = self.random.choice(divisors)
        return b("reshape", x, shape=self.random.choice([(count,), (1, *shape), (first, count // first)]))

    def broadcast(self, b: ArrayBuilder, x: Value, y: Value) -> Value:
        shape = tensor(x).static_shape
        return b("broadcast", x, shape=(2, *shape), dims=tuple(range(1, len(shape) + 1)))

    def scan(self, b: ArrayBuilder, x: Value, y: Value) -> Value:
        return b("scan", x, kind="max", axis=self.axis(x), reverse=self.random.random() < 0.5, exclusive=False)


def build(seed: int, length: int, dtype: DType) -> tuple[Operation, list[np.ndarray]]:
    """A random program, and operands of small whole numbers, whose sums are exact."""
    generator = Generator(seed, dtype)
    context = array_context()
    block = Block(generator.types())
    b = ArrayBuilder(context, block)
    b.create("builtin.return", generator.results(b, list(block.args), length))
    function = Operation(context.definition("builtin.function"), attributes={"name": "f"}, regions=[Region([block])])
    rng = np.random.default_rng(seed)
    return function, [rng.integers(-3, 4, tensor(a).static_shape).astype(dtype.numpy) for a in block.args]


def check(device_name: str, seed: int, length: int, dtype: DType) -> None:
    device = open_device(device_name)
    function, operands = build(seed, length, dtype)
    got = execute(function, device, [from_numpy(x, device) for x in operands])
    for result, expected in zip(got, interpret(function, operands), strict=True):
        np.testing.assert_allclose(to_numpy(result), expected, rtol=1e-5, err_msg=str(function))


@pytest.mark.parametrize("seed", range(20))
def test_random_program_on_cpu_equals_interpreter(seed):
    check("cpu", seed, 16, dtypes.float32 if seed % 2 else dtypes.int32)


@pytest.mark.parametrize("seed", range(3))
def test_random_program_on_tight_device_equals_interpreter(seed):
    check("sim:1", seed, 14, dtypes.int32)


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(100, 300))
@pytest.mark.parametrize("device", ["cpu", "sim:0", "opencl:0"])
def test_many_random_programs_equal_interpreter(device, seed):
    check(device, seed, 30, dtypes.float32)
