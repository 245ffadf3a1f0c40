"""Reductions, cumulative functions and differences, compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import oarlock as ol

AXES: list[Any] = [None, 0, 1, -1, (0, 2), ()]


@pytest.fixture(params=[np.float32, np.int32, np.uint8, np.float16], ids=lambda d: np.dtype(d).name)
def x(request: pytest.FixtureRequest) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).integers(1, 5, (2, 3, 4)).astype(request.param)


def widened(x: np.ndarray[Any, Any]) -> Any:
    return {"u": np.uint64, "i": np.int64}.get(x.dtype.kind, x.dtype)


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
def test_sum_and_prod(x: np.ndarray[Any, Any], axis: Any, keepdims: bool, same: Callable[..., None]) -> None:
    t, dtype = ol.asarray(x), widened(x)
    wide = np.float64 if x.dtype.kind == "f" else dtype
    same(ol.sum(t, axis=axis, keepdims=keepdims), x.sum(axis=axis, keepdims=keepdims, dtype=wide).astype(dtype), ulp=2)
    with np.errstate(over="ignore"):
        expected = x.prod(axis=axis, keepdims=keepdims, dtype=wide).astype(dtype)
    same(ol.prod(t, axis=axis, keepdims=keepdims), expected, ulp=2)


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", ["max", "min", "any", "all", "count_nonzero"])
def test_selecting_reductions(name: str, x: np.ndarray[Any, Any], axis: Any, same: Callable[..., None]) -> None:
    if name in ("any", "all", "count_nonzero"):
        x = x % 2
    if name == "count_nonzero":
        same(ol.count_nonzero(ol.asarray(x), axis=axis), np.asarray((x != 0).sum(axis=axis)))
        return
    same(getattr(ol, name)(ol.asarray(x), axis=axis, keepdims=True), getattr(np, name)(x, axis=axis, keepdims=True))


@pytest.mark.parametrize("axis", AXES[:-1], ids=str)
def test_moments(x: np.ndarray[Any, Any], axis: Any) -> None:
    dtype = x.dtype if x.dtype.kind == "f" else np.float32
    t, wide = ol.asarray(x), x.astype(np.float64)
    tolerance = 2e-3 if dtype == np.float16 else 1e-6
    for result, expected in [
        (ol.mean(t, axis=axis), wide.mean(axis=axis)),
        (ol.var(t, axis=axis), wide.var(axis=axis)),
        (ol.std(t, axis=axis, correction=1, keepdims=True), wide.std(axis=axis, ddof=1, keepdims=True)),
    ]:
        assert np.asarray(result).dtype == dtype
        np.testing.assert_allclose(np.asarray(result).astype(np.float64), expected, rtol=tolerance)


def test_sixteen_bit_floats_accumulate_wide() -> None:
    assert ol.mean(ol.ones((100_000,), dtype=ol.float16)).item() == 1.0
    assert ol.sum(ol.asarray(np.array([32000] * 4 + [-32000] * 4, np.float16))).item() == 0.0
    assert ol.sum(ol.ones((70_000,), dtype=ol.bfloat16)).item() == float(np.asarray(70_000).astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("values", [[3, np.nan, 1, 5], [1, 2, np.nan], [np.inf, np.nan, -np.inf], [np.nan, np.nan]])
def test_nan_wins_extremes_and_their_positions(values: list[float]) -> None:
    t = ol.asarray(values)
    first = int(np.isnan(values).argmax())
    assert np.isnan(ol.max(t).item()) and np.isnan(ol.min(t).item())
    assert ol.argmax(t).item() == ol.argmin(t).item() == first


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_of_extremes(name: str, x: np.ndarray[Any, Any], axis: int | None, same: Callable[..., None]) -> None:
    for keepdims in (False, True):
        expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
        same(getattr(ol, name)(ol.asarray(x), axis=axis, keepdims=keepdims), np.asarray(expected))


def test_empty_reductions() -> None:
    t = ol.zeros((0, 3))
    assert ol.sum(t, axis=0).tolist() == [0, 0, 0] and ol.prod(t, axis=0).tolist() == [1, 1, 1]
    assert ol.sum(t, axis=1).shape == (0,)
    assert not ol.any(t).item() and ol.all(t).item()
    assert np.isnan(ol.mean(t).item())
    assert ol.count_nonzero(ol.zeros((0, 2, 2))).item() == 0
    with pytest.raises(ol.errors.ShapeError, match="no elements"):
        ol.max(t, axis=0)


def test_accumulator_may_be_chosen() -> None:
    t = ol.full((300,), 1, dtype=ol.uint8)
    assert ol.sum(t).dtype == ol.uint64
    assert ol.sum(t, dtype=ol.uint8).item() == 300 % 256
    assert ol.sum(t, dtype=ol.float32).dtype == ol.float32
    assert ol.sum(ol.ones((3,), dtype=ol.bool)).item() == 3


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cumulative_functions(x: np.ndarray[Any, Any], axis: int, same: Callable[..., None]) -> None:
    t, dtype = ol.asarray(x), widened(x)
    same(ol.cumulative_sum(t, axis=axis), x.cumsum(axis=axis, dtype=dtype), ulp=2)
    same(ol.cumulative_prod(t, axis=axis), x.cumprod(axis=axis, dtype=dtype), ulp=2)
    start = np.zeros(tuple(1 if i == axis % 3 else d for i, d in enumerate(x.shape)), dtype)
    expected = np.concatenate([start, x.cumsum(axis=axis, dtype=dtype)], axis=axis)
    same(ol.cumulative_sum(t, axis=axis, include_initial=True), expected, ulp=2)


def test_diff(same: Callable[..., None]) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (3, 6))
    t = ol.asarray(x)
    same(ol.diff(t), np.diff(x))
    same(ol.diff(t, axis=0, n=2), np.diff(x, axis=0, n=2))
    same(ol.diff(t, prepend=t[:, :1], append=t[:, :2]), np.diff(x, prepend=x[:, :1], append=x[:, :2]))
    same(ol.diff(t > 0), np.diff(x > 0))


def test_refusals() -> None:
    t = ol.ones((2, 3))
    with pytest.raises(ol.errors.BoundsError, match=r"axis 2 is outside"):
        ol.sum(t, axis=2)
    with pytest.raises(ol.errors.ShapeError, match="twice"):
        ol.sum(t, axis=(0, -2))
    with pytest.raises(ol.errors.ShapeError, match="axis"):
        ol.cumulative_sum(t)
