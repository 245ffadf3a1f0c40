"""Operators are computed with the attributes that a program gives: those that may be absent have their defaults."""

from __future__ import annotations

import numpy as np
import pytest

from oarlock.dtypes import float32, int32
from oarlock.ir import Block, Operation, Region, TensorType, interpret
from oarlock.ops import ArrayBuilder, array_context
from oarlock.runtime import from_numpy, open_device, to_numpy
from oarlock.runtime.execute import execute

CALLS = {
    "reduce_sum": {"axes": (1,)},
    "argmax": {"axis": 1, "dtype": int32},
    "scan": {"kind": "sum", "axis": 1},
    "sort": {"axis": 1},
    "cumsum": {"axis": 0},
    "softmax": {"axis": 1},
}


@pytest.mark.parametrize("length", [5, 3000])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_optional_attributes_may_be_absent(name: str, length: int, device: str) -> None:
    context = array_context()
    x = (np.arange(2 * length) % 7).reshape(2, length).astype(np.float32)
    block = Block([TensorType(float32, x.shape)])
    b = ArrayBuilder(context, block)
    b.create("builtin.return", b.many(name, block.args[0], **CALLS[name]))
    function = Operation(context.definition("builtin.function"), (), {"name": name}, (), [Region([block])])
    opened = open_device(device)
    found = [to_numpy(r) for r in execute(function, opened, [from_numpy(x, opened)])]
    for got, want in zip(found, interpret(function, [x]), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5)
