"""Compile time grows with the number of operators and no faster: counted in steps of the worklist, not in seconds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.ir import Block, Builder, Operation, Region, TensorType, Value, verify
from oarlock.ir.passes import PassManager
from oarlock.ir.rewrite import Rewriter
from oarlock.ops import ArrayBuilder, array_context, tensor
from oarlock.transforms import optional_passes, standard_passes

CONTEXT = array_context()
Layer = Callable[[ArrayBuilder, Value, Value], Value]


def normalised(b: ArrayBuilder, x: Value, weights: Value) -> Value:
    """A layer as models write it: a product, reshapes around a softmax, a residual sum."""
    y = b("dot_general", x, weights, batch=((), ()), contract=((1,), (0,)), dtype=dtypes.float32)
    split = b("reshape", y, shape=(4, 2, 4))
    soft = b("softmax", split, axis=2)
    return b("add", x, b("relu", b("reshape", soft, shape=(4, 8))))


def turned(b: ArrayBuilder, x: Value, weights: Value) -> Value:
    """Transposes that come back after element-wise work on two paths."""
    y = b("transpose", x, permutation=(1, 0))
    z = b("transpose", b("multiply", b("exp", y), b("negative", y)), permutation=(1, 0))
    return b("add", b("multiply", z, b.constant(np.float32(1))), b.constant(np.float32(-0.0)))


def sunk(b: ArrayBuilder, x: Value, weights: Value) -> Value:
    """Element-wise work below one reshape of a computed value."""
    if tensor(x).rank == 2 and x.defining_op is None:
        x = b("reshape", b("exp", x), shape=(2, 2, 8))
    return b("negative", b("exp", x))


def constant(b: ArrayBuilder, x: Value, weights: Value) -> Value:
    """What folds, is equal, or is dead."""
    known = b("exp", b.constant(np.arange(8, dtype=np.float32)))
    b("cos", x)
    return b("add", b("add", x, known), b("add", x, known))


def siblings(b: ArrayBuilder, x: Value, weights: Value) -> Value:
    """Slices of one value side by side, and many users of the first argument."""
    halves = [b("slice", x, starts=(0, i), limits=(4, i + 4), steps=(1, 1)) for i in (0, 4)]
    return b("concat", *halves, axis=1)


def program(layer: Layer, count: int) -> Operation:
    block = Block([TensorType(dtypes.float32, (4, 8)), TensorType(dtypes.float32, (8, 8))])
    b = ArrayBuilder(CONTEXT, block)
    value, weights = block.args[0], block.args[1]
    results: list[Value] = []
    current: Value = value
    for _ in range(count):
        current = layer(b, current, weights)
        if tensor(current).shape == tensor(value).shape:
            results.append(b("add", value, current))
    Builder(CONTEXT, block).create("builtin.return", [current, *results[:1]])
    return Operation(CONTEXT.definition("builtin.function"), (), {"name": "f"}, (), [Region([block])])


@pytest.mark.parametrize("layer", [normalised, turned, sunk, constant, siblings])
def test_steps_grow_with_operators(layer: Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    plain = Rewriter.next

    def counted(rewriter: Rewriter) -> Operation | None:
        steps[-1] += 1
        return plain(rewriter)

    monkeypatch.setattr(Rewriter, "next", counted)
    for count in (20, 40, 80):
        steps.append(0)
        function = program(layer, count)
        PassManager(CONTEXT, [*standard_passes(), *optional_passes()[:1]], verify_each=False, level=3).run(function)
        verify(function)
    first, second = steps[1] - steps[0], steps[2] - steps[1]
    assert second <= 2.1 * first, steps
    assert steps[2] <= 80 * 400, steps
