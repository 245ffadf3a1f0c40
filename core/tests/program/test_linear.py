"""Products of matrices and vectors, compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import oarlock as ol

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4)),
    ((6, 1, 2, 3), (5, 3, 4)), ((3,), (5, 3, 4)), ((5, 2, 3), (3,)), ((0, 3), (3,)), ((2, 0), (0, 4)), ((0, 0), (0, 2)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8], ids=lambda d: np.dtype(d).name)
def test_matmul_is_numpys(shapes: Any, dtype: Any, same: Callable[..., None]) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 9, shape).astype(dtype) for shape in shapes)
    same(ol.matmul(ol.asarray(x), ol.asarray(y)), np.asarray(np.matmul(x, y)))
    same(ol.asarray(x) @ y, np.asarray(x @ y))
    same(x @ ol.asarray(y), np.asarray(x @ y))


def test_tensordot_vecdot_outer(same: Callable[..., None]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 9, (2, 3, 4)), rng.integers(0, 9, (4, 3, 5))
    a, b = ol.asarray(x), ol.asarray(y)
    same(ol.tensordot(a, b, axes=1), np.tensordot(x, y, 1))
    same(ol.tensordot(a, b, axes=0), np.tensordot(x, y, 0))
    same(ol.tensordot(a, b, axes=((1, 2), (1, 0))), np.tensordot(x, y, ((1, 2), (1, 0))))
    same(ol.vecdot(a, a), (x * x).sum(-1))
    same(ol.vecdot(a, ol.asarray(x[:1]), axis=-2), (x * x[:1]).sum(-2))
    same(ol.outer(a[0, 0], b[0, 0]), np.outer(x[0, 0], y[0, 0]))
    assert a.mT.shape == (2, 4, 3) and a[0].T.shape == (4, 3)


def test_refusals() -> None:
    a = ol.ones((2, 3))
    for call in (
        lambda: a @ ol.ones((2, 3)), lambda: ol.matmul(a, ol.ones(())), lambda: a.to("host:0")[0].T,
        lambda: ol.tensordot(a, a, axes=1), lambda: ol.vecdot(a, ol.ones((2, 4))),
    ):  # fmt: skip
        with pytest.raises(ol.errors.ShapeError):
            call()
    with pytest.raises(ol.errors.DTypeError, match="bool"):
        (a > 0) @ (a > 0)
