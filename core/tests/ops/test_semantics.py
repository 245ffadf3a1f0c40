"""What the operators mean where implementations disagree: special values, integer extremes, rounding, empty axes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from oarlock import dtypes
from oarlock.ops import RECORDS
from oarlock.ops.inference import FLOATS, INTEGERS

SIGNED = [d for d in INTEGERS if d.kind == "int"]
NAN, INF = float("nan"), float("inf")


def same(actual: Any, expected: Any) -> None:
    """Equal values, NaN to NaN, and zeros of the same sign."""
    found, wanted = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found[~np.isnan(found)]), np.signbit(wanted[~np.isnan(wanted)]))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_special_values(call: Any, dtype: dtypes.DType) -> None:
    def f(*items: float) -> Any:
        return np.array(items, np.float64).astype(dtype.numpy)

    same(call("maximum", f(NAN, 1, 2), f(1, NAN, 3)), [NAN, NAN, 3])
    same(call("minimum", f(NAN, 1, 2), f(1, NAN, 3)), [NAN, NAN, 2])
    same(call("divide", f(1, -1, 0), f(0, 0, 0)), [INF, -INF, NAN])
    same(call("remainder", f(5, -5, 5, -5, 1, -1), f(3, 3, -3, -3, INF, INF)), [2, 1, -1, -2, 1, INF])
    same(call("trunc_remainder", f(5, -5, 5, -5, 1, 0), f(3, 3, -3, -3, INF, 0)), [2, -2, 2, -2, 1, NAN])
    same(call("floor_divide", f(5, -5, 5, 1), f(3, 3, -3, 0)), [1, -2, -2, INF])
    same(call("round", f(0.5, 1.5, 2.5, -0.5, -2.5)), [0, 2, 2, -0.0, -2])
    same(call("trunc", f(-0.5, 1.9, -1.9)), [-0.0, 1, -1])
    same(call("sign", f(-3, 2, NAN)), [-1, 1, NAN])
    same(call("sqrt", f(-1, -0.0, INF)), [NAN, -0.0, INF])
    same(call("log", f(0, -1, 1)), [-INF, NAN, 0])
    same(call("exp", f(-INF, INF, NAN, 0)), [0, INF, NAN, 1])
    same(call("power", f(0, 1, NAN, -8, -1), f(0, NAN, 0, 1 / 3, INF)), [1, 1, 1, NAN, 1])
    same(call("atan2", f(0, -0.0), f(-1, 1)), [np.asarray(np.pi).astype(dtype.numpy).astype(np.float64), -0.0])
    same(call("copysign", f(1, -2), f(-0.0, 3)), [-1, 2])
    same(call("hypot", f(INF, NAN, 3), f(NAN, -INF, 4)), [INF, INF, 5])
    same(call("relu", f(NAN, -1, 2)), [NAN, 0, 2])
    same(call("logaddexp", f(-INF, INF), f(-INF, -INF)), [-INF, INF])
    assert call("isnan", f(NAN, 1)).tolist() == [True, False]
    assert call("is_finite", f(NAN, INF, 1)).tolist() == [False, False, True]
    assert call("is_inf", f(NAN, -INF, 1)).tolist() == [False, True, False]
    assert call("signbit", f(-0.0, 0.0, -INF)).tolist() == [True, False, True]
    assert call("equal", f(NAN, -0.0), f(NAN, 0.0)).tolist() == [False, True]
    assert call("not_equal", f(NAN), f(NAN)).tolist() == [True]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sigmoid_and_softplus_do_not_overflow(call: Any, dtype: dtypes.DType) -> None:
    big = np.array([60000, -60000, INF, -INF], np.float64).astype(dtype.numpy)
    same(call("sigmoid", big), [1, 0, 1, 0])
    same(call("softplus", big), [big[0], 0, INF, 0])
    same(call("softmax", big[:2], axis=0), [1, 0])


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_division_by_zero_gives_zero(call: Any, dtype: dtypes.DType) -> None:
    x, zero = np.array([7, 0], dtype.numpy), np.zeros(2, dtype.numpy)
    for name in ("floor_divide", "remainder", "trunc_remainder"):
        assert call(name, x, zero).tolist() == [0, 0], name


@pytest.mark.parametrize("dtype", SIGNED, ids=str)
def test_signed_extremes_wrap(call: Any, dtype: dtypes.DType) -> None:
    limits = np.iinfo(dtype.numpy)
    least, most = (np.array([v], dtype.numpy) for v in (limits.min, limits.max))
    one = np.array([1], dtype.numpy)
    assert call("add", most, one) == least
    assert call("negative", least) == least
    assert call("abs", least) == least
    assert call("floor_divide", least, -one) == least
    assert call("remainder", least, -one) == 0
    assert call("multiply", least, -one) == least
    assert call("reduce_sum", np.concatenate([most, one]), axes=(0,)) == limits.min
    assert call("floor_divide", np.array([-7], dtype.numpy), np.array([2], dtype.numpy)) == -4
    assert call("remainder", np.array([-7], dtype.numpy), np.array([2], dtype.numpy)) == 1
    assert call("trunc_remainder", np.array([-7], dtype.numpy), np.array([2], dtype.numpy)) == -1


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts_past_the_width(call: Any, dtype: dtypes.DType) -> None:
    limits = np.iinfo(dtype.numpy)
    x = np.array([limits.max, limits.min, 1, limits.max], dtype.numpy)
    far = np.array([dtype.bits, dtype.bits, dtype.bits - 1, 100], dtype.numpy)
    sign = -1 if limits.min < 0 else 0
    assert call("left_shift", x, far).tolist()[:2] == [0, 0]
    assert call("left_shift", x, far)[3] == 0
    assert call("right_shift", x, far).tolist() == [0, sign, 0, 0]
    if limits.min < 0:
        count = np.array([-1], dtype.numpy)
        assert call("left_shift", x[:1], count) == 0
        assert call("right_shift", x[1:2], count) == -1


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_power(call: Any, dtype: dtypes.DType) -> None:
    base = np.array([2, 3, 0, 1], dtype.numpy)
    assert call("power", base, np.array([3, 2, 0, 9], dtype.numpy)).tolist() == [8, 9, 1, 1]
    exponent = np.array([dtype.bits], dtype.numpy)
    assert call("power", base[:1], exponent) == 0
    if dtype.kind == "int":
        negative = np.array([-1, -2, -3, -4, -3, -1], dtype.numpy)
        bases = np.array([1, 1, -1, -1, 2, 0], dtype.numpy)
        assert call("power", bases, negative).tolist() == [1, 1, -1, 1, 0, 0]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_rounding_leaves_integers_alone(call: Any, dtype: dtypes.DType) -> None:
    limits = np.iinfo(dtype.numpy)
    x = np.array([limits.min, limits.max, limits.max - 1, 3], dtype.numpy)
    for name in ("floor", "ceil", "trunc", "round"):
        assert call(name, x).tolist() == x.tolist(), name


def test_reductions_of_nothing_give_the_identity(call: Any) -> None:
    for dtype in dtypes.ALL:
        empty = np.zeros((0, 2), dtype.numpy)
        if dtype.kind == "bool":
            wanted = {"max": False, "min": True}
        elif dtype.is_float:
            wanted = {"sum": 0, "prod": 1, "max": -INF, "min": INF}
        else:
            limits = np.iinfo(dtype.numpy)
            wanted = {"sum": 0, "prod": 1, "max": limits.min, "min": limits.max}
        for kind, value in wanted.items():
            found = call("reduce_" + kind, empty, axes=(0,))
            assert found.dtype == dtype.numpy and (found == np.asarray(value).astype(dtype.numpy)).all(), (dtype, kind)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_extremes_propagate_nan_and_its_position(call: Any, dtype: dtypes.DType) -> None:
    x = np.array([1, NAN, 3, NAN], np.float64).astype(dtype.numpy)
    assert np.isnan(call("reduce_max", x, axes=(0,)).astype(np.float64))
    assert np.isnan(call("reduce_min", x, axes=(0,)).astype(np.float64))
    assert call("argmax", x, axis=0, dtype=dtypes.int32) == 1
    assert call("argmin", x, axis=0, dtype=dtypes.int32) == 1
    assert call("argmax", np.array([2, 5, 5], dtype.numpy), axis=0, dtype=dtypes.int64) == 1


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_small_floats_accumulate_wide_and_round_once(call: Any, dtype: dtypes.DType) -> None:
    x = np.full(4096, 1.0).astype(dtype.numpy)
    assert call("reduce_sum", x, axes=(0,)) == np.asarray(4096.0).astype(dtype.numpy)
    assert call("mean", np.full(4096, 60000.0).astype(dtype.numpy), axes=(0,)) == np.asarray(60000.0).astype(
        dtype.numpy
    )
    product = call("dot_general", x, x, batch=((), ()), contract=((0,), (0,)), dtype=dtypes.float32)
    assert product.dtype == np.float32 and product == 4096


def test_convert_floats_to_integers_saturates(call: Any) -> None:
    for source in FLOATS:
        x = np.array([NAN, INF, -INF, -1.9, 2.9, -0.5], np.float64).astype(source.numpy)
        for target in INTEGERS:
            limits = np.iinfo(target.numpy)
            low = max(-1, limits.min)
            assert call("convert", x, dtype=target).tolist() == [0, limits.max, limits.min, low, 2, 0], (source, target)
    edge = np.array([127.9, 128.0, -128.9, -129.0, 2.0**63, 2.0**63 - 1024])
    assert call("convert", edge[:4], dtype=dtypes.int8).tolist() == [127, 127, -128, -128]
    assert call("convert", edge[4:], dtype=dtypes.int64).tolist() == [2**63 - 1, 2**63 - 1024]
    assert call("convert", np.array([2.0**64, 1.0]), dtype=dtypes.uint64).tolist() == [2**64 - 1, 1]


def test_convert_integers_wrap_and_bool_is_nonzero(call: Any) -> None:
    assert call("convert", np.array([300, -1], np.int32), dtype=dtypes.uint8).tolist() == [44, 255]
    assert call("convert", np.array([2**63 + 5], np.uint64), dtype=dtypes.int64).tolist() == [-(2**63) + 5]
    assert call("convert", np.array([NAN, 0.0, -0.0, 0.1]), dtype=dtypes.bool_).tolist() == [True, False, False, True]
    assert call("convert", np.array([True, False]), dtype=dtypes.bfloat16).astype(float).tolist() == [1, 0]


def test_convert_to_bfloat16_rounds_once(call: Any) -> None:
    just_above_tie = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, 1 + 3 * 2.0**-8 - 2.0**-40, 3.4e38, -3.5e38])
    found = call("convert", just_above_tie, dtype=dtypes.bfloat16).astype(np.float64)
    assert found.tolist() == [1 + 2.0**-7, 1.0, 1 + 2.0**-7, INF, -INF]
    integers = np.array([2**62 + 2**54 + 1, 2**62 + 2**54, -(2**62) - 2**54 - 1, 2**31 + 2**23 + 1], np.int64)
    wanted = [2.0**62 + 2.0**55, 2.0**62, -(2.0**62) - 2.0**55, 2.0**31 + 2.0**24]
    assert call("convert", integers, dtype=dtypes.bfloat16).astype(np.float64).tolist() == wanted
    top = np.array([2**63 + 2**55 + 1], np.uint64)
    assert call("convert", top, dtype=dtypes.bfloat16).astype(np.float64).tolist() == [2.0**63 + 2.0**56]


@pytest.mark.parametrize("name", ["add", "multiply", "divide"])
def test_small_float_arithmetic_is_correctly_rounded(call: Any, name: str) -> None:
    rng = np.random.default_rng(3)
    function = {"add": np.add, "multiply": np.multiply, "divide": np.divide}[name]
    for dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        x, y = (rng.standard_normal(2000).astype(dtype) for _ in range(2))
        exact = function(x.astype(np.float64), y.astype(np.float64))
        found = call(name, x, y).astype(np.float64)
        ends = (call("nextafter", found.astype(dtype), np.full(2000, end, dtype)) for end in (np.inf, -np.inf))
        step = np.max([np.abs(end.astype(np.float64) - found) for end in ends], axis=0)
        assert (np.abs(found - exact) <= step / 2).all()


def test_sort_is_stable_with_nan_last(call: Any, run: Any) -> None:
    x = np.array([2, NAN, 1, 2, -0.0, 0.0, NAN], np.float32)
    record = RECORDS["sort"]
    values, places = record.reference([x], {"axis": 0, "descending": False})
    assert places.tolist() == [4, 5, 2, 0, 3, 1, 6] and places.dtype == np.int32
    values, places = record.reference([x], {"axis": 0, "descending": True, "dtype": dtypes.int64})
    assert places.tolist() == [0, 3, 2, 4, 5, 1, 6] and places.dtype == np.int64
    same(values, [2, 2, 1, -0.0, 0.0, NAN, NAN])


def test_scatter_applies_in_order_and_drops_what_is_outside(call: Any) -> None:
    x = np.zeros(3, np.int32)
    indices, updates = np.array([1, 5, 1, -1, 2], np.int32), np.array([10, 20, 30, 40, 50], np.int32)
    assert call("scatter", x, indices, updates, axis=0, kind="set").tolist() == [0, 30, 50]
    assert call("scatter", x, indices, updates, axis=0, kind="add").tolist() == [0, 40, 50]
    assert call("scatter", x + 1, indices, updates, axis=0, kind="multiply").tolist() == [1, 300, 50]
    assert call("scatter", x + 20, indices, updates, axis=0, kind="minimum").tolist() == [20, 10, 20]


def test_gather_clamps(call: Any) -> None:
    x = np.array([10, 20, 30])
    assert call("gather", x, np.array([-5, 0, 2, 99], np.int8), axis=0).tolist() == [10, 10, 30, 30]
    assert call("gather", x, np.array([2**64 - 1], np.uint64), axis=0).tolist() == [30]


def test_matmul_follows_numpy(call: Any) -> None:
    rng = np.random.default_rng(5)
    for left, right in (
        ((5,), (5,)),
        ((3, 5), (5,)),
        ((5,), (2, 5, 4)),
        ((2, 1, 3, 5), (4, 5, 2)),
        ((2, 3, 5), (5, 4)),
    ):
        x, y = rng.standard_normal(left), rng.standard_normal(right)
        np.testing.assert_allclose(call("matmul", x, y), x @ y, rtol=1e-12, atol=1e-13)
