"""Rows that are gathered from far away are brought closer ahead of their turn, and what lies in order is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.codegen.lower import vectors, views
from oarlock.codegen.lower.call import KernelCall
from oarlock.dtypes import DType

from .conftest import FUNCTIONS, program, run_lowered, t

Check = Callable[..., list[KernelCall]]


@pytest.mark.parametrize(
    ("shape", "axis", "chosen"),
    [((9, 24), 0, (5,)), ((9, 24), 0, (2, 3)), ((9, 24), 0, ()), ((2, 9, 3, 8), 1, (7,)), ((9, 24), 0, (1,))],
    ids=str,
)
def test_rows_are_right_whatever_is_brought_closer(
    check: Check, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], axis: int, chosen: tuple[int, ...]
) -> None:
    monkeypatch.setattr(views, "FAR_BYTES", 0)
    rng = np.random.default_rng(2)
    x = rng.standard_normal(shape).astype(np.float32)
    indices = np.asarray(rng.integers(-2, 11, chosen)).astype(np.int32)
    check(
        [t(*shape), t(*chosen, dtype=dtypes.int32)],
        lambda b, x, i: b("add", b("gather", x, i, axis=axis), b("gather", x, i, axis=axis)),
        [x, indices],
    )


def test_only_far_rows_are_brought_closer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "STREAM_BYTES", 0)  # results are streamed: arrays in order would be brought closer
    assert gathered(dtypes.float32) == 0
    monkeypatch.setattr(views, "FAR_BYTES", 0)
    assert gathered(dtypes.uint32) == 2  # streamed or not; of another dtype, since what is lowered is kept


def gathered(dtype: DType) -> int:
    """How often a kernel that gathers rows says what it reads soon."""
    function = program([t(16, 24, dtype=dtype), t(16, dtype=dtypes.int32)], lambda b, x, i: b("gather", x, i, axis=0))
    _, (call,) = run_lowered(function, [np.zeros((16, 24), dtype.numpy), np.zeros(16, np.int32)], FUNCTIONS)
    return sum(op.name == "kernel.prefetch" for op in call.function.walk())
