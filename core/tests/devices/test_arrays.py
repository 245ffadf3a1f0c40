"""Array programs give the same numbers on every device in the tree as NumPy does."""

from __future__ import annotations

import numpy as np
import pytest

import oarlock as ol
from oarlock.errors import ShapeError, UnsupportedError

DEVICES = ["cpu", "sim:0", "sim:1", "opencl:0"]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {
        "x": rng.standard_normal((17, 33)).astype(np.float32),
        "y": rng.standard_normal((33, 9)).astype(np.float32),
        "i": rng.integers(-50, 50, (17, 33)).astype(np.int32),
        "m": rng.integers(0, 2, (17, 33)).astype(bool),
    }


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_float_programs_equal_numpy(device, data):
    x, y = ol.asarray(data["x"], device=device), ol.asarray(data["y"], device=device)
    np.testing.assert_allclose(np.asarray(ol.softmax(x * 2.0 + 1.0, axis=-1)), softmax(data["x"] * 2 + 1), rtol=2e-5)
    np.testing.assert_allclose(np.asarray(x @ y), data["x"] @ data["y"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.asarray(ol.mean(x, axis=0)), data["x"].mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(ol.std(x)), data["x"].std(), rtol=1e-5)
    waves = np.tanh(data["x"]) + np.sin(data["x"])
    np.testing.assert_allclose(np.asarray(ol.tanh(x) + ol.sin(x)), waves, rtol=1e-5, atol=1e-6)


def test_integer_programs_equal_numpy(device, data):
    i = ol.asarray(data["i"], device=device)
    a = data["i"]
    np.testing.assert_array_equal(np.asarray(i // 7), a // 7)
    np.testing.assert_array_equal(np.asarray(i % -7), a % -7)
    np.testing.assert_array_equal(np.asarray((i << 3) ^ (i >> 1)), (a << 3) ^ (a >> 1))
    np.testing.assert_array_equal(np.asarray(ol.max(i, axis=1)), a.max(1))
    np.testing.assert_array_equal(np.asarray(ol.sort(i, axis=1)), np.sort(a, axis=1))
    np.testing.assert_array_equal(np.asarray(ol.argsort(i, axis=0, stable=True)), np.argsort(a, axis=0, kind="stable"))


def test_bool_programs_equal_numpy(device, data):
    m, a = ol.asarray(data["m"], device=device), data["m"]
    np.testing.assert_array_equal(np.asarray(~m | m[:, ::-1]), ~a | a[:, ::-1])
    np.testing.assert_array_equal(np.asarray(ol.any(m, axis=0)), a.any(0))
    np.testing.assert_array_equal(np.asarray(ol.all(m, axis=1)), a.all(1))
    assert int(ol.count_nonzero(m)) == np.count_nonzero(a)


def test_indexing_and_assignment_equal_numpy(device, data):
    x, a = ol.asarray(data["x"], device=device), data["x"].copy()
    np.testing.assert_array_equal(np.asarray(x[3:15:4, ::-3]), a[3:15:4, ::-3])
    np.testing.assert_array_equal(np.asarray(ol.take(x, ol.asarray([5, 0, 5], device=device), axis=1)), a[:, [5, 0, 5]])
    before = x + 0.0
    x[2:5, 1] = 9.0
    a[2:5, 1] = 9.0
    np.testing.assert_array_equal(np.asarray(x), a)
    assert float(before[2, 1]) == data["x"][2, 1]


def test_empty_and_scalar_arrays(device):
    empty = ol.zeros((0, 3), device=device)
    assert np.asarray(ol.sum(empty, axis=0)).tolist() == [0.0, 0.0, 0.0]
    assert np.asarray(ol.concat([empty, ol.ones((2, 3), device=device)])).shape == (2, 3)
    assert not bool(ol.any(empty))
    assert float(ol.asarray(2.5, device=device) * 4) == 10.0


def test_small_dtypes_round_trip_and_wrap(device):
    for dtype in (ol.int8, ol.uint8, ol.int16, ol.uint16):
        x = ol.asarray([100, 120, 7], dtype=dtype, device=device)
        expected = np.array([100, 120, 7], dtype=str(dtype))
        np.testing.assert_array_equal(np.asarray(x + x), expected + expected)
        np.testing.assert_array_equal(np.asarray(x * x), expected * expected)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64", "int64", "uint64"])
def test_wide_and_half_dtypes_compute_or_raise(device, name):
    dtype = getattr(ol, name)
    if device == "sim:1":
        with pytest.raises(UnsupportedError, match=name):
            ol.asarray([1, 2], dtype=dtype, device=device)
        return
    x = ol.asarray([1, 2, 3], dtype=dtype, device=device)
    assert np.asarray((x * x + x).astype(ol.float32)).tolist() == [2.0, 6.0, 12.0]
    assert float(ol.sum(x)) == 6.0


@pytest.mark.parametrize("other", DEVICES)
def test_to_moves_between_any_two_devices(device, other, data):
    x = ol.asarray(data["x"], device=device)
    moved = (x + 1.0).to(other)
    np.testing.assert_array_equal(np.asarray(moved), data["x"] + np.float32(1))
    np.testing.assert_array_equal(np.asarray(moved * 2.0), (data["x"] + np.float32(1)) * np.float32(2))


def test_mixing_devices_is_refused(data):
    x, y = ol.asarray(data["x"], device="cpu"), ol.asarray(data["x"], device="sim:0")
    with pytest.raises(Exception, match="cpu:0.*sim:0|sim:0.*cpu:0"):
        x + y


def test_wrong_shapes_are_refused(device, data):
    x = ol.asarray(data["x"], device=device)
    with pytest.raises(ShapeError):
        x @ x


def test_compiled_functions_equal_recorded_ones(device, data):
    weights = ol.asarray(data["y"], device=device)

    def block(x, scale):
        hidden = ol.softmax(x @ weights, axis=-1) * scale
        return {"hidden": hidden, "sum": ol.sum(x, axis=0), "same": x}

    compiled = ol.jit(block)
    for shift in (0.0, 1.5):
        x = ol.asarray(data["x"] + np.float32(shift), device=device)
        scale = ol.asarray(shift, device=device)
        expected, found = block(x, scale), compiled(x, scale)
        assert found.keys() == expected.keys()
        for name in expected:
            np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(expected[name]))
    assert compiled.traces == compiled.compiles == 1
