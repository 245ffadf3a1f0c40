"""Properties of the movement and indexing operators against plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oarlock.ops.build import strided_slice

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def arrays(draw: Any, least: int = 0, rank: int = 3, smallest: int = 0) -> np.ndarray:
    shape = tuple(draw(st.lists(st.integers(smallest, 5), min_size=least, max_size=rank)))
    return np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)


@QUICK
@given(st.data(), arrays())
def test_slice_equals_numpy(call: Any, data: Any, x: np.ndarray) -> None:
    starts = tuple(data.draw(st.integers(0, n)) for n in x.shape)
    limits = tuple(data.draw(st.integers(s, n)) for s, n in zip(starts, x.shape, strict=True))
    steps = tuple(data.draw(st.integers(1, 3)) for _ in x.shape)
    found = call("slice", x, starts=starts, limits=limits, steps=steps)
    key = tuple(slice(*bound) for bound in zip(starts, limits, steps, strict=True))
    np.testing.assert_array_equal(found, x[key])


@QUICK
@given(st.data(), arrays())
def test_strided_slice_equals_python_indexing(run: Any, data: Any, x: np.ndarray) -> None:
    bound, step = st.none() | st.integers(-7, 7), st.none() | st.integers(-3, 3).filter(bool)
    count = data.draw(st.integers(0, x.ndim))
    key = tuple(slice(data.draw(bound), data.draw(bound), data.draw(step)) for _ in range(count))
    (found,) = run(lambda b, v: strided_slice(b, v, key), x)
    np.testing.assert_array_equal(found, x[key])


@QUICK
@given(st.data(), arrays())
def test_pad_places_every_value(call: Any, data: Any, x: np.ndarray) -> None:
    low, high, interior = (tuple(data.draw(st.integers(0, 3)) for _ in x.shape) for _ in range(3))
    found = call("pad", x, np.int32(-1), low=low, high=high, interior=interior)
    key = tuple(slice(lo, n - hi, g + 1) for lo, hi, g, n in zip(low, high, interior, found.shape, strict=True))
    np.testing.assert_array_equal(found[key], x)
    assert (found == -1).sum() == found.size - x.size


@QUICK
@given(st.data(), arrays(least=1, smallest=1))
def test_gather_equals_take(call: Any, data: Any, x: np.ndarray) -> None:
    axis = data.draw(st.integers(0, x.ndim - 1))
    shape = tuple(data.draw(st.lists(st.integers(0, 4), max_size=2)))
    size = int(np.prod(shape))
    flat = data.draw(st.lists(st.integers(-3, 8), min_size=size, max_size=size))
    indices = np.array(flat, np.int64).reshape(shape)
    np.testing.assert_array_equal(call("gather", x, indices, axis=axis), np.take(x, indices, axis, mode="clip"))


@QUICK
@given(st.data(), arrays(least=1, smallest=1), st.sampled_from(["set", "add", "multiply", "minimum", "maximum"]))
def test_scatter_equals_a_loop(call: Any, data: Any, x: np.ndarray, kind: str) -> None:
    axis = data.draw(st.integers(0, x.ndim - 1))
    indices = np.array(data.draw(st.lists(st.integers(-2, 6), max_size=6)), np.int32)
    updates = np.arange(x.size // x.shape[axis] * len(indices), dtype=np.int32)
    updates = updates.reshape(*x.shape[:axis], len(indices), *x.shape[axis + 1 :]) - 3
    apply = {
        "set": lambda a, b: b,
        "add": np.add,
        "multiply": np.multiply,
        "minimum": np.minimum,
        "maximum": np.maximum,
    }
    wanted = np.moveaxis(x.copy(), axis, 0)
    for index, update in zip(indices, np.moveaxis(updates, axis, 0), strict=True):
        if 0 <= index < len(wanted):
            wanted[index] = apply[kind](wanted[index], update)
    np.testing.assert_array_equal(
        call("scatter", x, indices, updates, axis=axis, kind=kind), np.moveaxis(wanted, 0, axis)
    )


@QUICK
@given(st.data(), arrays())
def test_broadcast_equals_numpy(call: Any, data: Any, x: np.ndarray) -> None:
    rank = data.draw(st.integers(x.ndim, 4))
    dims = tuple(sorted(data.draw(st.permutations(range(rank)))[: x.ndim]))
    shape = [data.draw(st.integers(0, 3)) for _ in range(rank)]
    for i, d in enumerate(dims):
        if x.shape[i] != 1:
            shape[d] = x.shape[i]
    aligned = [1] * rank
    for i, d in enumerate(dims):
        aligned[d] = x.shape[i]
    found = call("broadcast", x, shape=tuple(shape), dims=dims)
    np.testing.assert_array_equal(found, np.broadcast_to(x.reshape(aligned), shape))


@QUICK
@given(st.data(), arrays(least=1, smallest=1))
def test_take_and_scatter_along_axis_equal_numpy(call: Any, run: Any, data: Any, x: np.ndarray) -> None:
    axis = data.draw(st.integers(0, x.ndim - 1))
    order = np.argsort(np.random.default_rng(data.draw(st.integers(0, 99))).random(x.shape), axis)
    np.testing.assert_array_equal(call("take_along_axis", x, order, axis=axis), np.take_along_axis(x, order, axis))
    wanted = x.copy()
    np.put_along_axis(wanted, order, x + 100, axis)
    (found,) = run(lambda b, *v: b("scatter_along_axis", *v, axis=axis, kind="set"), x, order, x + 100)
    np.testing.assert_array_equal(found, wanted)


@QUICK
@given(st.data(), arrays(least=1, smallest=1))
def test_gather_nd_equals_fancy_indexing(call: Any, data: Any, x: np.ndarray) -> None:
    count = data.draw(st.integers(1, x.ndim))
    rows = data.draw(st.integers(0, 4))
    indices = np.array(
        [[data.draw(st.integers(0, n - 1)) for n in x.shape[:count]] for _ in range(rows)], np.int64
    ).reshape(rows, count)
    found = call("gather_nd", x, indices, batch_dims=0)
    np.testing.assert_array_equal(found, x[tuple(indices.T)])
    written = call("scatter_nd", np.zeros_like(x), indices, found, kind="set")
    wanted = np.zeros_like(x)
    wanted[tuple(indices.T)] = found
    np.testing.assert_array_equal(written, wanted)


@QUICK
@given(st.data(), arrays(least=1))
def test_scan_equals_accumulate(call: Any, data: Any, x: np.ndarray) -> None:
    axis = data.draw(st.integers(0, x.ndim - 1))
    kind, function = data.draw(
        st.sampled_from([("sum", np.add), ("prod", np.multiply), ("max", np.maximum), ("min", np.minimum)])
    )
    reverse, exclusive = data.draw(st.booleans()), data.draw(st.booleans())
    found = call("scan", x, kind=kind, axis=axis, reverse=reverse, exclusive=exclusive)
    wanted = function.accumulate(np.flip(x, axis) if reverse else x, axis, dtype=x.dtype)  # NumPy would widen sums
    if exclusive and x.shape[axis]:
        limits = np.iinfo(np.int32)
        first = {"sum": 0, "prod": 1, "max": limits.min, "min": limits.max}[kind]
        wanted = np.concatenate(
            [np.full_like(np.take(x, [0], axis), first), np.take(wanted, range(x.shape[axis] - 1), axis)], axis
        )
    np.testing.assert_array_equal(found, np.flip(wanted, axis) if reverse else wanted)


@QUICK
@given(st.data(), arrays(least=1, rank=2, smallest=1))
def test_window_reduce_equals_loops(call: Any, data: Any, x: np.ndarray) -> None:
    window = tuple(data.draw(st.integers(1, 3)) for _ in x.shape)
    strides = tuple(data.draw(st.integers(1, 3)) for _ in x.shape)
    dilation = tuple(data.draw(st.integers(1, 2)) for _ in x.shape)
    reach = [(w - 1) * d for w, d in zip(window, dilation, strict=True)]
    padding = tuple((r, data.draw(st.integers(0, 2))) for r in reach)
    attributes = {"window": window, "strides": strides, "padding": padding, "dilation": dilation}
    found = call("window_reduce", x, kind="max", **attributes)
    low = np.iinfo(np.int32).min
    padded = np.pad(x, padding, constant_values=low)
    for at in np.ndindex(found.shape):
        view = tuple(slice(a * s, a * s + r + 1, d) for a, s, r, d in zip(at, strides, reach, dilation, strict=True))
        assert found[at] == padded[view].max(initial=low)
