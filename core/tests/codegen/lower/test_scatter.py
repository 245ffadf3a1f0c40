"""Scatter moves rows: in order where indices repeat, whatever lies around the axis, and however it is cut."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.codegen.lower import scatter
from oarlock.codegen.lower.call import KernelCall
from oarlock.dtypes import DType
from oarlock.ir import Value
from oarlock.ops import ArrayBuilder

from .conftest import FUNCTIONS, program, run_lowered, t

Check = Callable[..., list[KernelCall]]
KINDS = ("set", "add", "multiply", "minimum", "maximum")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "axis", "chosen"),
    [
        ((40, 19), 0, (30,)),  # rows of two vectors and a rest
        ((3, 40, 2, 4), 1, (5, 6)),  # rows of one vector, of two dimensions, at a table of indices
        ((400,), 0, (500,)),  # no rows
        ((5, 130), 1, (70,)),  # an axis that is last
        ((70, 3), 0, (9,)),  # rows shorter than a vector
        ((1, 9), 0, (4,)),  # an axis of one
        ((6, 9), 0, ()),  # one index
    ],
    ids=str,
)
def test_rows_are_updated_in_order(
    check: Check, kind: str, shape: tuple[int, ...], axis: int, chosen: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(5)
    around = (*shape[:axis], *chosen, *shape[axis + 1 :])
    # half of the indices fall on three places, some outside
    found = rng.integers(-2, shape[axis] + 2, chosen)
    indices = np.where(rng.integers(0, 2, chosen) == 1, found, found % 3).astype(np.int32)
    x, updates = (rng.integers(-3, 4, s).astype(np.float32) for s in (shape, around))
    check(
        [t(*shape), t(*chosen, dtype=dtypes.int32), t(*around)],
        lambda b, x, i, u: b("scatter", x, i, u, axis=axis, kind=kind),
        [x, indices, updates],
        rtol=0,
        atol=0,
    )


@pytest.mark.parametrize("dtype", [dtypes.bool_, dtypes.int8, dtypes.int64, dtypes.float16, dtypes.float64], ids=str)
def test_rows_of_every_width_of_element(check: Check, dtype: DType) -> None:
    rng = np.random.default_rng(6)
    x, updates = (rng.integers(0, 2, s).astype(dtype.numpy) for s in ((9, 17), (12, 17)))
    indices = rng.integers(0, 9, 12).astype(np.uint8)
    kind = "set" if dtype.kind == "bool" else "add"
    check(
        [t(9, 17, dtype=dtype), t(12, dtype=dtypes.uint8), t(12, 17, dtype=dtype)],
        lambda b, x, i, u: b("scatter", x, i, u, axis=0, kind=kind),
        [x, indices, updates],
    )


def test_operands_that_are_views_are_read_where_they_lie(check: Check) -> None:
    def body(b: ArrayBuilder, x: Value, i: Value, u: Value) -> Value:
        turned = b("transpose", u, permutation=(1, 0))
        return b("scatter", b("reverse", x, axes=(0,)), i, turned, axis=0, kind="add")

    check([t(30, 12), t(8, dtype=dtypes.int32), t(12, 8)], body)


def test_vectors_walk_the_rows() -> None:
    types = [t(64, 32), t(50, dtype=dtypes.int32), t(50, 32)]
    function = program(types, lambda b, x, i, u: b("scatter", x, i, u, axis=0, kind="add"))
    given = [np.zeros((64, 32), np.float32), np.arange(50).astype(np.int32) % 7, np.ones((50, 32), np.float32)]
    (got,), (call,) = run_lowered(function, given, FUNCTIONS)
    assert got[:8, 0].tolist() == [8, 7, 7, 7, 7, 7, 7, 0]
    lanes = [op.operands[2].type.lanes for op in call.function.walk() if op.name == "kernel.store"]  # type: ignore[union-attr]
    assert lanes.count(8) == 2  # the copy and the sum; the others are what vectors leave over


def test_cuts_are_as_many_as_repay_reading_the_indices() -> None:
    cut = scatter._stretches
    assert cut(1, 65536, 256, 65536) == 16
    assert cut(1, 65536, 256, 4) == 64
    assert cut(1, 1 << 22, 1, 1 << 22) == 4
    assert cut(1, 10, 1, 1000) == 1
    assert cut(64, 65536, 256, 4) == 1
    for outer, size, inner, count in itertools.product((1, 3), (5, 300), (1, 64), (0, 7)):
        assert cut(outer, size, inner, count) <= size
