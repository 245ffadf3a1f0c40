"""Reading and writing elements, compared with NumPy: chosen cases and random ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import oarlock as ol

SETTINGS = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture
def x() -> np.ndarray[Any, Any]:
    return np.arange(60, dtype=np.float32).reshape(3, 4, 5)


def to_tensor(part: Any) -> Any:
    if isinstance(part, tuple):
        return tuple(to_tensor(p) for p in part)
    return ol.asarray(part) if isinstance(part, np.ndarray) else part


I = np.asarray  # noqa: E741
BASIC: list[Any] = [
    0, -1, slice(None), slice(1, None), slice(None, None, -1), slice(3, 0, -2), slice(5, 9), slice(-2, None), ..., None,
    (1, 2), (1, 2, 3), (..., 2), (slice(None), 1), (slice(None, None, 2), slice(1, 3), slice(4, None, -2)),
    (None, 1, None, ..., None), (slice(None), None, slice(2)), (..., slice(0, 0)), (), (0, ...), (..., None, -1),
]  # fmt: skip
ADVANCED: list[Any] = [
    I([0, 2, 1, 1]),
    I([[0, -1], [2, 0]]),
    (I([0, 2]), I([1, 3])),
    (slice(None), I([3, 0, -2])),
    (..., I([[0, 4]])),
    (I([0, 2]), slice(None), I([1, 3])),
    (I([[0], [2]]), I([1, 3])),
    (0, I([1, 2]), slice(1, 3)),
    (I([1, 2]), 0),
    (I([0, 1]), None, I([1, 2])),
    (None, I([0, 1]), I([1, 2])),
    (slice(1), I([1, 2]), I([0, 4])),
    I(1),
    (I(2), I([0, 1])),
    (slice(None, None, -1), I([0, 3])),
    (1, slice(None), I([0, 2])),
    np.zeros((0,), np.int64),
]
MASKS: list[Any] = [
    np.array([True, False, True]),
    (np.arange(60).reshape(3, 4, 5) % 7 == 0),
    (slice(None), np.array([True, False, True, True])),
    (np.arange(12).reshape(3, 4) > 6),
    np.zeros(3, bool),
    (0, np.array([True, False, False, True])),
    np.array(True),
    (np.array([True, False, True]), slice(1, 3)),
    (I([0, 1]), np.array([True, False, True, False])),
]


@pytest.mark.parametrize("key", [*BASIC, *ADVANCED, *MASKS], ids=repr)
def test_reading_is_numpys(key: Any, x: np.ndarray[Any, Any], same: Callable[..., None]) -> None:
    same(ol.asarray(x)[to_tensor(key)], x[key])


@pytest.mark.parametrize("key", [*BASIC, *ADVANCED, *MASKS], ids=repr)
def test_writing_is_numpys(key: Any, x: np.ndarray[Any, Any], same: Callable[..., None]) -> None:
    shape = x[key].shape
    rng = np.random.default_rng(1)
    for wanted in {shape, (1,) * len(shape), shape[1:], ()}:
        value = rng.integers(100, 200, wanted).astype(np.float32)
        expected = x.copy()
        expected[key] = value
        t = ol.asarray(x)
        t[to_tensor(key)] = ol.asarray(value)
        same(t, expected)
    expected[key] = 7
    t[to_tensor(key)] = 7
    same(t, expected)


def test_host_lists_and_arrays_are_indices(x: np.ndarray[Any, Any], same: Callable[..., None]) -> None:
    t = ol.asarray(x)
    same(t[[0, 2]], x[[0, 2]])
    same(t[np.array([0, -1]), 1], x[np.array([0, -1]), 1])
    same(t[[True, False, True]], x[[True, False, True]])
    with pytest.raises(ol.errors.BoundsError, match="3"):
        t[[0, 3]]


def test_index_tensors_of_every_integer_dtype(x: np.ndarray[Any, Any], same: Callable[..., None]) -> None:
    big = ol.asarray(np.arange(300, dtype=np.float32))
    for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        index = np.array([0, 2, 100], dtype)
        same(big[ol.asarray(index)], np.arange(300, dtype=np.float32)[index])
        same(big.reshape(300, 1)[ol.asarray(index), ol.asarray(index * 0)], np.arange(300, dtype=np.float32)[index])
    same(big[ol.asarray(np.array([-1, -100], np.int8))], np.array([299, 200], np.float32))


@SETTINGS
@given(data=st.data())
def test_random_basic_keys(data: st.DataObject) -> None:
    shape = data.draw(npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    key = data.draw(npst.basic_indices(shape, allow_newaxis=True))
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    t = ol.asarray(x)
    np.testing.assert_array_equal(np.asarray(t[key]), x[key])
    value = np.arange(1000, 1000 + x[key].size).reshape(x[key].shape)
    x[key] = value
    t[key] = value
    np.testing.assert_array_equal(np.asarray(t), x)


@SETTINGS
@given(data=st.data())
def test_random_index_arrays(data: st.DataObject) -> None:
    shape = data.draw(npst.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=5))
    key = data.draw(npst.integer_array_indices(shape, result_shape=npst.array_shapes(max_dims=2, max_side=4)))
    x = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    t = ol.asarray(x)
    np.testing.assert_array_equal(np.asarray(t[to_tensor(key)]), x[key])
    value = np.arange(1000, 1000 + x[key].size, dtype=np.int32).reshape(x[key].shape)
    x[key] = value
    t[to_tensor(key)] = ol.asarray(value)
    np.testing.assert_array_equal(np.asarray(t), x)


def test_arrays_are_values(x: np.ndarray[Any, Any], same: Callable[..., None]) -> None:
    source = x.copy()
    t = ol.asarray(source)
    source[:] = -1
    view, copy, alias = t[0], ol.asarray(t, copy=True), t
    t[0] = 100
    assert alias is t
    same(view, x[0])
    same(copy, x)
    same(t[0], np.full((4, 5), 100, np.float32))
    exported = np.asarray(t)
    exported[:] = 5
    same(t[1], x[1])


def test_value_written_twice_at_one_place_is_the_last(same: Callable[..., None]) -> None:
    t = ol.zeros((3,))
    t[ol.asarray([1, 1, 1])] = ol.asarray([1.0, 2.0, 3.0])
    same(t, np.array([0, 3, 0], np.float32))


def test_masks_are_counted_on_the_host() -> None:
    before = ol.host_operations().get("mask", 0)
    t = ol.arange(6)
    t[t > 3] = 0  # a choice, on the device
    assert ol.host_operations().get("mask", 0) == before
    assert t[t > 1].tolist() == [2, 3]
    assert ol.host_operations()["mask"] == before + 1


def test_take_and_take_along_axis(x: np.ndarray[Any, Any], same: Callable[..., None]) -> None:
    t = ol.asarray(x)
    same(ol.take(t, ol.asarray([[0, -1]]), axis=1), x.take([[0, -1]], axis=1))
    same(ol.take(t[0, 0], ol.asarray([1, 1])), x[0, 0].take([1, 1]))
    for axis in (0, 1, -1):
        order = np.argsort(-x, axis=axis)
        same(ol.take_along_axis(t, ol.asarray(order), axis=axis), np.take_along_axis(x, order, axis))
    first = np.zeros((1, 4, 2), np.int64)
    same(ol.take_along_axis(t, ol.asarray(first)), np.take_along_axis(x, np.broadcast_to(first, (3, 4, 2)), -1))


def test_refusals(x: np.ndarray[Any, Any]) -> None:
    t = ol.asarray(x)
    for key, text in [
        (3, "index 3 is outside"), ((0, 0, 0, 0), "too many"), ((..., ...), "one ellipsis"), (slice(0, 2, 0), "step 0"),
        (np.ones(4, bool), "mask"),
    ]:  # fmt: skip
        with pytest.raises(ol.errors.BoundsError, match=text):
            t[to_tensor(key)]
    for bad in (1.5, "a", ol.ones((2,))):
        with pytest.raises(ol.errors.DTypeError, match="index"):
            t[bad]
    with pytest.raises(ol.errors.ShapeError, match="cannot be put"):
        t[0] = ol.ones((3,))
    integers = ol.arange(3)
    with pytest.raises(ol.errors.DTypeError, match="cannot put"):
        integers[0] = 0.5
    with pytest.raises(ol.errors.DTypeError, match="cannot put"):
        integers[0] = ol.ones(())
