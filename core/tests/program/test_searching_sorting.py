"""Sorting, searching and sets, compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import oarlock as ol


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint16, np.float64], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sort_and_argsort(dtype: Any, axis: int, same: Callable[..., None]) -> None:
    x = np.random.default_rng(0).integers(0, 20, (3, 17)).astype(dtype)
    t = ol.asarray(x)
    same(ol.sort(t, axis=axis), np.sort(x, axis=axis))
    same(ol.argsort(t, axis=axis), np.argsort(x, axis=axis, kind="stable"))
    same(ol.sort(t, axis=axis, descending=True), np.flip(np.sort(x, axis=axis), axis))
    down = ol.argsort(t, axis=axis, descending=True)
    expected = np.argsort(x.max() - x, axis=axis, kind="stable")
    same(down, expected)


def test_nan_sorts_last(same: Callable[..., None]) -> None:
    x = np.array([np.nan, 2, -np.inf, np.inf, np.nan, 1], np.float32)
    same(ol.sort(ol.asarray(x)), np.sort(x))
    assert ol.argsort(ol.asarray(x)).tolist() == [2, 5, 1, 3, 0, 4]
    assert ol.sort(ol.asarray(3.0)).item() == 3.0 and ol.argsort(ol.asarray(3.0)).item() == 0


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 64, 100])
def test_searchsorted(side: Any, count: int, same: Callable[..., None]) -> None:
    rng = np.random.default_rng(count)
    for dtype in (np.float32, np.int64):
        x = np.sort(rng.integers(0, 30, count)).astype(dtype)
        wanted = rng.integers(-2, 33, (4, 9)).astype(dtype)
        same(ol.searchsorted(ol.asarray(x), ol.asarray(wanted), side=side), np.searchsorted(x, wanted, side=side))


def test_searchsorted_with_sorter_and_nan(same: Callable[..., None]) -> None:
    x = np.array([3, np.nan, 1, 2, np.nan], np.float32)
    order = np.argsort(x)
    wanted = np.array([2, np.nan, np.inf], np.float32)
    for side in ("left", "right"):
        result = ol.searchsorted(ol.asarray(x), ol.asarray(wanted), side=side, sorter=ol.asarray(order))  # type: ignore[arg-type]
        same(result, np.searchsorted(x, wanted, side=side, sorter=order))  # type: ignore[arg-type]


def test_nonzero_and_uniques_run_on_the_host_and_are_counted(same: Callable[..., None]) -> None:
    x = np.array([[3, 0, 3], [1, 0, 2]])
    t = ol.asarray(x)
    before = ol.host_operations()
    for result, expected in zip(ol.nonzero(t), np.nonzero(x), strict=True):
        same(result, expected)
    values, indices, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    for result, expected in zip(ol.unique_all(t), (values, indices, inverse.reshape(x.shape), counts), strict=True):
        same(result, expected)
    same(ol.unique_values(t), values)
    same(ol.unique_counts(t).counts, counts)
    same(ol.unique_inverse(t).inverse_indices, inverse.reshape(x.shape))
    grown = {k: v - before.get(k, 0) for k, v in ol.host_operations().items() if v > before.get(k, 0)}
    assert grown == dict.fromkeys(("nonzero", "unique_all", "unique_values", "unique_counts", "unique_inverse"), 1)
    with pytest.raises(ol.errors.ShapeError, match="0-d"):
        ol.nonzero(ol.asarray(1))
