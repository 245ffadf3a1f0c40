"""Programs of many run-time scalars are split so that no kernel's scalar block passes the device's limit."""

from __future__ import annotations

import numpy as np
import pytest

from oarlock.dtypes import float32
from oarlock.ir import Block, Operation, Region, ScalarType, TensorType
from oarlock.ops import ArrayBuilder, array_context
from oarlock.runtime import from_numpy, open_device, to_numpy
from oarlock.runtime.execute import plan_for


@pytest.mark.parametrize("device", ["sim:1", "cpu"])
def test_many_run_time_scalars_are_split_over_kernels(device: str) -> None:
    count = 90
    context = array_context()
    block = Block([TensorType(float32, (5,)), *[ScalarType(float32)] * count])
    b = ArrayBuilder(context, block)
    value = block.args[0]
    for scalar in block.args[1:]:
        value = b("add", value, b("from_scalar", scalar))
    b.create("builtin.return", [value])
    function = Operation(context.definition("builtin.function"), (), {"name": "many"}, (), [Region([block])])
    opened = open_device(device)
    plan = plan_for(function, opened)
    limit = opened.target.limits.max_scalar_bytes
    assert all(step.signature.scalar_bytes <= limit for step in plan.steps)  # type: ignore[union-attr]
    x = np.arange(5, dtype=np.float32)
    (result,) = plan.run([from_numpy(x, opened), *map(float, range(count))])
    assert to_numpy(result).tolist() == (x + sum(range(count))).tolist()
