"""Matrix products in every precision: narrow operands, sums in float32 or int32, on every kind of target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.codegen import packing
from oarlock.dtypes import DType
from oarlock.ir import TensorType
from oarlock.ir.interpret import interpret
from oarlock.target import Target

from .conftest import TARGETS, assert_close, program, run_lowered

PAIRS = [
    (dtypes.float16, dtypes.float32),
    (dtypes.bfloat16, dtypes.float32),
    (dtypes.float16, dtypes.float16),
    (dtypes.bfloat16, dtypes.bfloat16),
    (dtypes.int8, dtypes.int32),
    (dtypes.uint8, dtypes.int32),
]
"""Of the operands, and of the result."""
SHAPES = {"packed": (8, 11, 9), "row": (1, 11, 9), "small": (3, 5, 2)}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize(("dtype", "result"), PAIRS, ids=lambda d: str(d))
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_are_as_wide_as_the_result_or_wider(
    shape: str, dtype: DType, result: DType, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operands that a narrow sum would get wrong: up to 11 products of about 127 x 127, or 2048 and then ones."""
    monkeypatch.setattr(packing, "LEAST", 8)
    rows, steps, columns = SHAPES[shape]
    random = np.random.default_rng(1)
    if dtype.is_float:
        x, y = np.ones((rows, steps)), random.integers(0, 2, (steps, columns)).astype(float)
        x[:, 0], y[0] = 2048, 1
    else:
        x, y = (random.integers(100, 128, size) for size in ((rows, steps), (steps, columns)))
    types = [TensorType(dtype, (rows, steps)), TensorType(dtype, (steps, columns))]
    given: list[Any] = [array.astype(dtype.numpy) for array in (x, y)]
    function = program(
        types, lambda b, x, y: b("dot_general", x, y, batch=((), ()), contract=((1,), (0,)), dtype=result)
    )
    got, calls = run_lowered(function, given, target)
    exact = (x.astype(np.float64) @ y.astype(np.float64)).astype(result.numpy)
    np.testing.assert_array_equal(got[0].astype(np.float64), exact.astype(np.float64))
    assert_close(got, interpret(function, given), 0, 0)
    packed = any(call.label.startswith("packed_product") for call in calls)
    assert packed == (shape == "packed" and not target.has_threads and target.limits.vector_width >= 4)
