"""Kernels that C compilers have got wrong: GCC 12.2 at -O3 vectorises a sum over a reversed window, wrongly."""

from __future__ import annotations

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.ir import Block, Operation, Region, TensorType
from oarlock.ir.interpret import interpret
from oarlock.ops import ArrayBuilder, array_context
from oarlock.runtime import from_numpy, open_device, to_numpy
from oarlock.runtime.plan import Plan


@pytest.mark.parametrize("axes", [(3,), (2, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_windows_of_a_reversed_image(axes: tuple[int, ...], kind: str) -> None:
    shape = (1, 5, 17, 9)
    block = Block([TensorType(dtypes.float64, shape)])
    b = ArrayBuilder(array_context(), block)
    none = ((0, 0),) * 4
    ones = (1, 1, 1, 1)
    reversed_ = b("reverse", block.args[0], axes=axes)
    window = b("window_reduce", reversed_, kind=kind, window=(1, 1, 17, 9), strides=ones, padding=none, dilation=ones)
    b.create("builtin.return", [window])
    function = Operation(
        array_context().definition("builtin.function"), attributes={"name": "f"}, regions=[Region([block])]
    )
    x = np.random.default_rng(0).standard_normal(shape)
    device = open_device("sim:0")
    (got,) = Plan(function, device).run([from_numpy(x, device)])
    np.testing.assert_allclose(to_numpy(got), interpret(function, [x])[0], rtol=1e-12)
