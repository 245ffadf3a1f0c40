"""Plans with fixed arguments: what depends on them alone runs once, and every run gives the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.errors import ShapeError
from oarlock.ir import Block, Operation, Region, TensorType, Value
from oarlock.ops import ArrayBuilder, array_context
from oarlock.runtime import Device, from_numpy, open_device, to_numpy
from oarlock.runtime.plan import Plan

F32 = dtypes.float32


@pytest.fixture(params=["cpu", "sim:0"])
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param)


def program(shapes: list[tuple[int, ...]], body: Callable[..., Any]) -> Operation:
    block = Block([TensorType(F32, shape) for shape in shapes])
    builder = ArrayBuilder(array_context(), block)
    results = body(builder, *block.args)
    builder.create("builtin.return", results if isinstance(results, tuple) else [results])
    return Operation(
        array_context().definition("builtin.function"), attributes={"name": "f"}, regions=[Region([block])]
    )


def scaled_sum(b: ArrayBuilder, w: Value, x: Value) -> Value:
    total = b("reduce_sum", b("multiply", w, w), axes=(0,), keepdims=False)
    return b("add", b("reduce_max", total, axes=(0,), keepdims=True), b("reduce_sum", x, axes=(0,), keepdims=False))


def test_what_depends_on_fixed_arguments_alone_runs_once(device: Device) -> None:
    function = program([(6, 5), (3, 5)], scaled_sum)
    rng = np.random.default_rng(3)
    w, x, y = (rng.standard_normal(shape, dtype=np.float32) for shape in ((6, 5), (3, 5), (3, 5)))
    fixed = Plan(function, device, fixed={0: from_numpy(w, device)})
    whole = Plan(function, device)
    assert 0 < len(fixed.steps) < len(whole.steps)
    for given in (x, y, x):
        (got,) = fixed.run([from_numpy(given, device)])
        (want,) = whole.run([from_numpy(w, device), from_numpy(given, device)])
        np.testing.assert_array_equal(to_numpy(got), to_numpy(want))


def test_a_result_may_be_fixed_too(device: Device) -> None:
    function = program([(4,), (4,)], lambda b, w, x: (b("exp", w), b("negative", x), w))
    w, x = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    plan = Plan(function, device, fixed={0: from_numpy(w, device)})
    for _ in range(2):
        results = [to_numpy(r) for r in plan.run([from_numpy(x, device)])]
        np.testing.assert_allclose(results[0], np.exp(w), rtol=1e-6)
        np.testing.assert_array_equal(results[1], -x)
        np.testing.assert_array_equal(results[2], w)


def test_operators_on_constants_run_once(device: Device) -> None:
    table = np.arange(5000, dtype=np.float32).reshape(50, 100)

    def body(b: ArrayBuilder, x: Value) -> Value:
        moved = b("reduce_sum", b.constant(table), axes=(0,), keepdims=False)
        return b("multiply", b("reduce_sum", x, axes=(0,), keepdims=False), moved)

    plan = Plan(program([(3, 100)], body), device)
    x = np.ones((3, 100), np.float32)
    (got,) = plan.run([from_numpy(x, device)])
    np.testing.assert_allclose(to_numpy(got), 3 * table.sum(0), rtol=1e-5)


def test_fixed_arguments_are_checked(device: Device) -> None:
    function = program([(6, 5), (3, 5)], scaled_sum)
    with pytest.raises(ShapeError, match="argument 0"):
        Plan(function, device, fixed={0: from_numpy(np.zeros((5, 6), np.float32), device)})
    plan = Plan(function, device, fixed={0: from_numpy(np.zeros((6, 5), np.float32), device)})
    with pytest.raises(ShapeError, match="1 arguments, got 2"):
        plan.run([from_numpy(np.zeros((6, 5), np.float32), device), from_numpy(np.zeros((3, 5), np.float32), device)])
