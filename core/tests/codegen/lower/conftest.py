"""Shared by the tests of lowering: building small programs, and running their kernels in the kernel interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.codegen.free import memory_of
from oarlock.codegen.kernel.interpret import run_kernel
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.pipeline import lower, prepare
from oarlock.codegen.values import numel, shape_of
from oarlock.ir import Block, Operation, Region, TensorType, Type, Value
from oarlock.ir.interpret import interpret
from oarlock.ir.verify import verify
from oarlock.ops import ArrayBuilder, array_context, tensor
from oarlock.target import Limits, Target

Body = Callable[..., Any]

FUNCTIONS = Target(
    "llvm",
    compute=frozenset(d.name for d in dtypes.ALL if not (d.is_float and d.bits == 16)),
    storage=(("float16", "uint16"), ("bfloat16", "uint16"), ("bool", "uint8")),
    limits=Limits(vector_width=8),
)
THREADS = FUNCTIONS.with_limits(max_block=(64, 1, 1), max_threads=64, local_memory=1 << 15, max_grid=(7, 7, 7))
TIGHT = FUNCTIONS.with_limits(max_buffers=4, max_grid=(11, 11, 11), vector_width=1)
TARGETS = {"functions": FUNCTIONS, "threads": THREADS, "tight": TIGHT}


def t(*shape: int, dtype: dtypes.DType = dtypes.float32) -> TensorType:
    """A tensor type."""
    return TensorType(dtype, shape)


def program(types: Sequence[Type], body: Body) -> Operation:
    """A function of ``types`` whose results are what ``body(builder, *arguments)`` returns."""
    context = array_context()
    block = Block(types)
    builder = ArrayBuilder(context, block)
    results = body(builder, *block.args)
    builder.create("builtin.return", results if isinstance(results, (tuple, list)) else [results])
    return Operation(context.definition("builtin.function"), attributes={"name": "f"}, regions=[Region([block])])


def run_lowered(
    function: Operation, operands: Sequence[Any], target: Target
) -> tuple[list[np.ndarray], list[KernelCall]]:
    """Lower ``function`` and run its kernels in the interpreter."""
    lowered = lower(prepare(function), target)
    block = lowered.function.regions[0].block
    memory: dict[Value, Any] = {}
    for argument, operand in zip(block.args, operands, strict=True):
        memory[argument] = operand if isinstance(operand, (int, float)) else np.ascontiguousarray(operand).reshape(-1)
    for op in block.ops:
        if op.name == "array.constant":
            memory[op.result] = op.attributes["value"].array.reshape(-1)
    calls = [c for c in lowered.calls if isinstance(c, KernelCall)]
    for call in calls:
        verify(call.function)
        for value in call.buffers:
            if value not in memory:
                memory[value] = np.full(numel(value), 77).astype(tensor(value).dtype.numpy)
        scalars = [0] * len(call.buffers) + [memory[s] if isinstance(s, Value) else s for s in call.scalars]
        run_kernel(call.function, call.grid, [memory[v] for v in call.buffers], scalars)
    results = []
    for value in block.terminator.operands:
        place = memory_of(value)
        if place not in memory and numel(place) == 0:
            memory[place] = np.zeros(0, tensor(place).dtype.numpy)
        results.append(memory[place].reshape(shape_of(value)))
    return results, calls


def random_operands(types: Sequence[TensorType], seed: int = 0) -> list[np.ndarray]:
    """Random operands: normal floats, small integers, both truth values."""
    rng = np.random.default_rng(seed)
    found = []
    for kind in types:
        if kind.dtype.is_float:
            found.append(rng.standard_normal(kind.static_shape).astype(kind.dtype.numpy))
        else:
            found.append(rng.integers(0, 5 if kind.dtype.is_integer else 2, kind.static_shape).astype(kind.dtype.numpy))
    return found


def assert_close(got: Sequence[np.ndarray], expected: Sequence[np.ndarray], rtol: float, atol: float) -> None:
    for g, e in zip(got, expected, strict=True):
        assert g.shape == e.shape
        assert g.dtype == e.dtype
        if g.dtype.kind in "biu":
            np.testing.assert_array_equal(g, e)
        else:
            np.testing.assert_allclose(g.astype(np.float64), e.astype(np.float64), rtol=rtol, atol=atol)


@pytest.fixture(params=sorted(TARGETS))
def target(request: pytest.FixtureRequest) -> Target:
    """Each kind of target: blocks as functions, blocks with threads, and tight limits without vectors."""
    return TARGETS[request.param]


@pytest.fixture
def check(target: Target) -> Callable[..., list[KernelCall]]:
    """Compare the lowered program with the interpreter; gives the kernels' calls."""

    def run(
        types: Sequence[TensorType],
        body: Body,
        operands: Sequence[Any] | None = None,
        rtol: float = 1e-5,
        atol: float = 1e-5,
    ) -> list[KernelCall]:
        function = program(types, body)
        given = random_operands(types) if operands is None else list(operands)
        got, calls = run_lowered(function, given, target)
        assert_close(got, interpret(function, given), rtol, atol)
        return calls

    return run


@pytest.fixture
def lowered_names() -> Callable[[Sequence[TensorType], Body], list[str]]:
    """The names of a program's kernels on the functions target."""

    def run(types: Sequence[TensorType], body: Body) -> list[str]:
        lowered = lower(prepare(program(types, body)), FUNCTIONS)
        return [str(c.function.attributes["name"]) for c in lowered.calls if isinstance(c, KernelCall)]

    return run
