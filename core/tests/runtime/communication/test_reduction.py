"""Reductions on the host: order, rounding, wrap, NaN, and what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from oarlock import dtypes
from oarlock.errors import DTypeError, UnsupportedError
from oarlock.runtime.communication.reduction import check_kind, combine


def test_narrow_floats_round_once():
    ones = [np.array([256.0, 1.0], ml_dtypes.bfloat16), *[np.array([1.0, 1.0], ml_dtypes.bfloat16)] * 3]
    assert combine(ones, dtypes.bfloat16, "sum").tolist() == [260.0, 4.0]  # rounding each step would stay at 256
    halves = [np.array([60000.0], np.float16)] * 2 + [np.array([-60000.0], np.float16)]
    assert combine(halves, dtypes.float16, "sum").tolist() == [60000.0]  # float16 alone would pass its range


def test_float32_combines_in_order_of_ranks():
    values = [np.array([v], np.float32) for v in (1e8, 1.0, -1e8)]
    assert combine(values, dtypes.float32, "sum")[0] == 0.0
    assert combine([values[0], values[2], values[1]], dtypes.float32, "sum")[0] == 1.0


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8, dtypes.int64, dtypes.uint32])
def test_integers_wrap(dtype):
    top = np.iinfo(dtype.numpy).max
    found = combine([np.array([top, 3], dtype.numpy)] * 2, dtype, "sum")
    assert found.dtype == dtype.numpy
    assert int(found[0]) == (2 * top if dtype.kind == "uint" else -2) % (1 << dtype.bits) - (
        0 if dtype.kind == "uint" else 1 << dtype.bits
    )
    assert int(combine([np.array([top], dtype.numpy)] * 2, dtype, "prod")[0]) == 1


def test_nan_wins():
    values = [np.array([np.nan, 1.0, 2.0]), np.array([1.0, np.nan, 3.0])]
    for kind, rest in (("max", 3.0), ("min", 2.0)):
        found = combine(values, dtypes.float64, kind)
        assert np.isnan(found[:2]).all() and found[2] == rest


def test_operands_are_left_alone():
    values = [np.ones(3, np.float32), np.ones(3, np.float32)]
    combine(values, dtypes.float32, "avg")
    assert values[0].tolist() == [1.0] * 3


def test_kinds_are_refused_by_name():
    with pytest.raises(UnsupportedError, match="no reduce kind 'mean'; there are sum, prod"):
        check_kind("mean", dtypes.float32)
    for kind in ("sum", "prod", "avg"):
        with pytest.raises(DTypeError, match=f"bool has no {kind}"):
            check_kind(kind, dtypes.bool_)
    with pytest.raises(DTypeError, match="int32 has no avg"):
        check_kind("avg", dtypes.int32)
    check_kind("max", dtypes.bool_)
    check_kind("avg", dtypes.bfloat16)
