"""The front ends' helpers and einsum against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.errors import ShapeError
from oarlock.ops import build
from oarlock.ops.einsum import einsum

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def test_shape_helpers_equal_numpy(run: Any) -> None:
    cases: list[tuple[Any, Any]] = [
        (lambda b, x: build.broadcast_to(b, x, (5, 2, 3, 4)), np.broadcast_to(X, (5, 2, 3, 4))),
        (lambda b, x: build.expand_dims(b, x, (0, -1)), X[None, ..., None]),
        (lambda b, x: build.squeeze(b, build.expand_dims(b, x, 1)), X),
        (lambda b, x: build.flatten(b, x), X.reshape(-1)),
        (lambda b, x: build.flatten(b, x, 2), X.reshape(6, 4)),
        (lambda b, x: build.moveaxis(b, x, 0, -1), np.moveaxis(X, 0, -1)),
        (lambda b, x: build.stack(b, [x, x], -1), np.stack([X, X], -1)),
        (lambda b, x: build.full(b, (2, 3), dtypes.int32, 7), np.full((2, 3), 7, np.int32)),
        (lambda b, x: build.eye(b, 3, 5, dtypes.float32, -1), np.eye(3, 5, -1, np.float32)),
        (lambda b, x: build.linspace(b, 2.0, 7.0, 11, dtypes.float64), np.linspace(2.0, 7.0, 11)),
        (lambda b, x: build.linspace(b, 2.0, 7.0, 5, dtypes.float64, endpoint=False), np.linspace(2, 7, 5, False)),
        (lambda b, x: build.linspace(b, 2.0, 7.0, 1, dtypes.float32), np.array([2], np.float32)),
    ]  # fmt: skip
    for emit, wanted in cases:
        (found,) = run(emit, X)
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-14, atol=0)


def test_split_and_promotion(run: Any) -> None:
    parts = run(lambda b, x: build.split(b, x, [1, 0, 3], -1), X)
    for found, wanted in zip(parts, np.split(X, [1, 1], 2), strict=True):
        np.testing.assert_array_equal(found, wanted)
    left, right = run(lambda b, x, y: build.promote_together(b, x, y), np.ones(2, np.int8), np.ones(2, np.uint8))
    assert left.dtype == right.dtype == np.int16
    pair = run(lambda b, x, y: build.broadcast_together(b, x, y), np.ones((2, 1), np.int8), np.ones(3, np.uint8))
    assert [x.shape for x in pair] == [(2, 3), (2, 3)]


def test_helpers_refuse_what_does_not_fit(run: Any) -> None:
    for emit in (
        lambda b, x: build.squeeze(b, x, 0),
        lambda b, x: build.split(b, x, [1, 1], 2),
        lambda b, x: build.stack(b, []),
        lambda b, x: build.expand_dims(b, x, 7),
        lambda b, x: build.flatten(b, x, 4),
        lambda b, x: einsum(b, "ij->i", x),
        lambda b, x: einsum(b, "ijk->im", x),
        lambda b, x: einsum(b, "ijk,jk->i", x),
        lambda b, x: einsum(b, "iij->i", x),
    ):
        with pytest.raises(ShapeError):
            run(emit, X)
    assert build.normalize_axes((-1, 0), 3) == (0, 2)
    with pytest.raises(ShapeError, match="twice"):
        build.normalize_axes((0, -3), 3)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("ba", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("ijji->j", [(2, 3, 3, 2)]),
        ("ijk->", [(2, 3, 4)]),
        ("i,j->ij", [(2,), (3,)]),
        ("i,i->", [(4,), (4,)]),
        ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)]),
        ("...ij,...jk->...ik", [(5, 2, 3), (1, 3, 4)]),
        ("...ij,jk->...ik", [(6, 5, 2, 3), (3, 4)]),
        ("i...->...", [(2, 3, 4)]),
        ("...i", [(2, 3)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("ab,cb,db->acd", [(2, 3), (4, 3), (5, 3)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("ij,ij->ij", [(2, 3), (2, 3)]),
        ("ij,i->j", [(2, 3), (1,)]),
        ("i,ij->", [(2,), (2, 3)]),
    ],
)
def test_einsum_equals_numpy(run: Any, equation: str, shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    (found,) = run(lambda b, *v: einsum(b, equation, *v), *arrays)
    wanted = np.einsum(equation, *arrays)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
