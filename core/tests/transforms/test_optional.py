"""Passes that are asked for: how far mixed precision changes numbers, and where it applies; joined products."""

from __future__ import annotations

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import DTypeError
from oarlock.ir import Block, Builder, Operation, Region, TensorType, Value, interpret
from oarlock.ir.passes import PassManager
from oarlock.ops import ArrayBuilder, array_context
from oarlock.target import Target
from oarlock.transforms import MixedPrecision, choose_passes

CONTEXT = array_context()
RNG = np.random.default_rng(7)


def projections(weights: list[np.ndarray]) -> Operation:
    """A value times several constants, and a convolution."""
    block = Block([TensorType(dtypes.float32, (5, 16)), TensorType(dtypes.float32, (1, 2, 6, 6))])
    b = ArrayBuilder(CONTEXT, block)
    x, image = block.args
    kernel = b.constant(RNG.standard_normal((3, 2, 3, 3)), dtypes.float32)
    results: list[Value] = [
        b("dot_general", x, b.constant(w), batch=((), ()), contract=((1,), (0,)), dtype=dtypes.float32) for w in weights
    ]
    pad = ((1, 1), (1, 1))
    results.append(b("convolution", image, kernel, strides=(1, 1), padding=pad, dilation=(1, 1), groups=1))
    Builder(CONTEXT, block).create("builtin.return", results)
    return Operation(CONTEXT.definition("builtin.function"), (), {"name": "f"}, (), [Region([block])])


def count(function: Operation, name: str) -> int:
    return sum(op.name == f"array.{name}" for op in function.walk())


@pytest.fixture
def case() -> tuple[Operation, list[np.ndarray], list[np.ndarray]]:
    function = projections([RNG.standard_normal((16, n)).astype(np.float32) for n in (3, 8, 1)])
    operands = [RNG.standard_normal(s).astype(np.float32) for s in ((5, 16), (1, 2, 6, 6))]
    return function, operands, list(interpret(function, operands))


@pytest.mark.parametrize(("dtype", "unit"), [(dtypes.float16, 2.0**-11), (dtypes.bfloat16, 2.0**-8)], ids=str)
def test_mixed_precision_rounds_operands_once(dtype: DType, unit: float, case) -> None:  # type: ignore[no-untyped-def]
    function, operands, expected = case
    changed = PassManager(CONTEXT, choose_passes(f"+mixed_{dtype}"), level=3).run_on_copy(function)
    found = interpret(changed, operands)
    assert [value.dtype for value in found] == [value.dtype for value in expected]
    largest = 0.0
    for actual, wanted, products in zip(found, expected, (16, 16, 16, 18), strict=True):
        bound = (2 * unit + unit**2) * products * 12 + unit * np.abs(wanted)  # every product is below 12
        assert (np.abs(actual - wanted) <= bound).all()
        largest = max(largest, float(np.abs(actual - wanted).max()))
    assert largest > 0, "nothing was rounded"


def test_mixed_precision_applies_where_the_dtype_can_be_stored() -> None:
    half = MixedPrecision(dtypes.float16)
    assert half.applies(Target("c99", storage=(("float16", "uint16"),)))
    assert not half.applies(Target("c99"))
    with pytest.raises(DTypeError, match="mixed precision in int8; use float16 or bfloat16"):
        MixedPrecision(dtypes.int8)


def test_siblings_are_joined_to_one_product(case) -> None:  # type: ignore[no-untyped-def]
    function, operands, expected = case
    changed = PassManager(CONTEXT, choose_passes("+horizontal"), level=3).run_on_copy(function)
    assert (count(function, "dot_general"), count(changed, "dot_general")) == (3, 1)
    assert count(changed, "concat") == 0
    for actual, wanted in zip(interpret(changed, operands), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-6, atol=1e-6)
