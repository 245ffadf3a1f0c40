"""Making tensors, compared with NumPy; what asarray takes and refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import oarlock as ol


@pytest.mark.parametrize("dtype", [d.name for d in ol.dtypes.ALL])
def test_numpy_round_trip_keeps_every_dtype(dtype: str, same: Callable[..., None]) -> None:
    numpy = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    for shape in [(), (0, 3), (5,), (2, 3, 4)]:
        x = np.random.default_rng(0).integers(0, 2, shape).astype(numpy)
        t = ol.asarray(x)
        assert (t.dtype.name, t.shape, t.ndim, t.size) == (dtype, shape, len(shape), x.size)
        same(t, x)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, "bool"),
        (3, "int64"),
        (2.5, "float32"),
        ([1, 2], "int64"),
        ([[1, 2.5]], "float32"),
        ([True, False], "bool"),
        ([], "float32"),
        ([np.float64(1)], "float64"),
        (np.float64(2), "float64"),
        (np.int8(2), "int8"),
        ((1, 2), "int64"),
        (range(3), "int64"),
    ],
)
def test_python_values_get_default_dtypes(value: Any, dtype: str) -> None:
    t = ol.asarray(value)
    assert t.dtype.name == dtype
    np.testing.assert_array_equal(np.asarray(t), np.asarray(value))


def test_odd_host_arrays_are_copied_right(same: Callable[..., None]) -> None:
    x = np.arange(24, dtype=np.int32).reshape(4, 6)
    same(ol.asarray(x[:, ::2].T), x[:, ::2].T.copy())
    same(ol.asarray(x[::-1]), x[::-1].copy())
    same(ol.asarray(x.astype(">i4")), x)
    same(ol.asarray([ol.asarray([1.0, 2.0]), ol.asarray([3.0, 4.0])]), np.array([[1, 2], [3, 4]], np.float32))


def test_asarray_converts_moves_and_copies() -> None:
    t = ol.asarray([1.7, -2.7])
    assert ol.asarray(t) is t
    assert ol.asarray(t, copy=True) is not t
    assert ol.asarray(t, dtype=ol.int8).tolist() == [1, -2]
    assert ol.asarray([1, 2], dtype="float16").dtype == ol.float16
    assert ol.asarray(3.0, dtype=int).dtype == ol.int64
    assert ol.asarray(t, device="host:1").device.name == "host:1"
    with pytest.raises(ValueError, match="copy"):
        ol.asarray(t, dtype=ol.int8, copy=False)
    with pytest.raises(ValueError, match="copied"):
        ol.asarray(np.ones(2), copy=False)


def test_asarray_refuses_with_a_reason() -> None:
    with pytest.raises(ol.errors.UnsupportedError, match="complex"):
        ol.asarray(np.ones(2, np.complex64))
    with pytest.raises(ol.errors.UnsupportedError, match="complex"):
        ol.zeros((2,), dtype="complex64")
    with pytest.raises(ol.errors.ShapeError, match="length"):
        ol.asarray([[1], [1, 2]])
    with pytest.raises(ol.errors.DTypeError):
        ol.asarray(["a"])
    with pytest.raises(ol.errors.DTypeError, match="fit"):
        ol.asarray([2**40], device="small:0")
    with pytest.raises(ol.errors.DTypeError, match="no data type"):
        ol.zeros((2,), dtype="int7")
    with pytest.raises(ol.errors.DeviceNotFoundError, match="host:0"):
        ol.zeros((2,), device="elsewhere")


def test_filled_tensors(same: Callable[..., None]) -> None:
    for dtype in ("bool", "int8", "float16", "float64"):
        for name in ("zeros", "ones"):
            same(getattr(ol, name)((2, 3), dtype=dtype), getattr(np, name)((2, 3), dtype))
    assert ol.zeros(3).dtype == ol.ones(()).dtype == ol.empty((2,)).dtype == ol.float32
    assert [ol.full((2,), v).dtype for v in (True, 3, 2.5)] == [ol.bool, ol.int64, ol.float32]
    same(ol.full((2, 2), ol.asarray(7)), np.full((2, 2), 7))
    like = ol.ones((2, 3), dtype=ol.int16, device="host:1")
    for made in (ol.zeros_like(like), ol.ones_like(like), ol.empty_like(like), ol.full_like(like, 4)):
        assert (made.shape, made.dtype, made.device.name) == ((2, 3), ol.int16, "host:1")


@pytest.mark.parametrize(
    "arguments",
    [
        (5,),
        (2, 7),
        (2, 10, 3),
        (10, 2, -3),
        (0,),
        (5, 2),
        (0.0, 1.0, 0.25),
        (1.5,),
        (-3, 3),
        (3.0, -1.0, -0.5),
        (2**40, 2**40 + 3),
    ],
)
def test_arange_is_numpys(arguments: Any) -> None:
    expected = np.arange(*arguments)
    t = ol.arange(*arguments)
    assert t.dtype == (ol.int64 if expected.dtype == np.int64 else ol.float32)
    np.testing.assert_allclose(np.asarray(t), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "float16", "float64", "bfloat16"])
def test_arange_in_a_dtype(dtype: str) -> None:
    t = ol.arange(3, 100, 7, dtype=dtype)
    assert t.dtype.name == dtype
    np.testing.assert_array_equal(np.asarray(t).astype(np.float64), np.arange(3, 100, 7))


def test_arange_of_many_counts_exactly() -> None:
    np.testing.assert_array_equal(ol.arange(0, 70_000, 3, dtype="uint16"), np.arange(0, 70_000, 3).astype(np.uint16))
    np.testing.assert_array_equal(ol.arange(100_000, dtype=ol.float32), np.arange(100_000, dtype=np.float32))


@pytest.mark.parametrize("endpoint", [True, False])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000])
def test_linspace_is_numpys(count: int, endpoint: bool) -> None:
    t = ol.linspace(-2.0, 5.0, count, endpoint=endpoint)
    np.testing.assert_allclose(t, np.linspace(-2, 5, count, endpoint=endpoint), rtol=1e-6, atol=1e-6)
    if count > 1:
        assert t[0].item() == -2.0 and (t[-1].item() == 5.0) == endpoint


def test_eye_and_triangles(same: Callable[..., None]) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for k in (-2, 0, 1, 5):
        same(ol.eye(3, 4, k=k), np.eye(3, 4, k, np.float32))
        same(ol.tril(ol.asarray(x), k=k), np.tril(x, k))
        same(ol.triu(ol.asarray(x), k=k), np.triu(x, k))
    same(ol.eye(2, dtype=ol.int8), np.eye(2, dtype=np.int8))
