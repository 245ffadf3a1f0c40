"""The kernel builder: folding, sharing of expressions, and the forms that are total."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oarlock import dtypes as dt
from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.kernel.interpret import run_kernel
from oarlock.dtypes import DType
from oarlock.ir import BufferType, Value

INTEGERS = [d for d in dt.ALL if d.is_integer]


def apply(dtype: DType, result: DType, lanes: int, emit: object, *operands: np.ndarray) -> np.ndarray:
    """emit(builder, operands...) on whole vectors."""
    buffers = [(f"x{k}", BufferType(dtype, "global", "read")) for k in range(len(operands))]
    b = KernelBuilder("k", [*buffers, ("o", BufferType(result, "global", "write"))], [])
    b.store(b.arguments["o"], b.i(0), emit(b, *[b.load(b.arguments[n], b.i(0), lanes) for n, _ in buffers]))  # type: ignore[operator]
    out = np.zeros(lanes, result.numpy)
    run_kernel(b.function, (1, 1, 1), [*operands, out])
    return out


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_total_division_and_shifts(dtype: DType, lanes: int, data: st.DataObject) -> None:
    info = np.iinfo(dtype.numpy)
    element = st.integers(info.min, info.max) | st.sampled_from([0, 1, info.min, info.max, dtype.bits, dtype.bits - 1])
    if dtype.kind == "int":
        element = element | st.just(-1)
    x, y = (np.array(data.draw(st.lists(element, min_size=lanes, max_size=lanes)), dtype.numpy) for _ in range(2))
    quot = apply(dtype, dtype, lanes, lambda b, p, q: b.total_quot_rem(p, q)[0], x, y)
    rem = apply(dtype, dtype, lanes, lambda b, p, q: b.total_quot_rem(p, q)[1], x, y)
    left = apply(dtype, dtype, lanes, lambda b, p, q: b.total_shift("shl", p, q), x, y)
    right = apply(dtype, dtype, lanes, lambda b, p, q: b.total_shift("shr", p, q), x, y)
    for a, c, q, r, s, t in zip(*(v.tolist() for v in (x, y, quot, rem, left, right)), strict=True):
        exact = 0 if c == 0 else abs(a) // abs(c) * (1 if (a < 0) == (c < 0) else -1)
        wrapped = int(np.array(exact & ((1 << dtype.bits) - 1), np.uint64).astype(dtype.numpy))
        assert (q, r) == (wrapped, 0 if c == 0 else a - exact * c)
        inside = 0 <= c < dtype.bits
        shifted = ((a << c) & ((1 << dtype.bits) - 1)) if inside else 0
        assert s == int(np.array(shifted, np.uint64).astype(dtype.numpy))
        assert t == (a >> c if inside else -1 if a < 0 else 0)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("target", [d for d in dt.ALL if not d.is_float], ids=str)
def test_conversion_of_floats_saturates_and_nan_gives_zero(target: DType, lanes: int) -> None:
    numbers = [
        np.nan,
        np.inf,
        -np.inf,
        3e38,
        -3e38,
        127.5,
        -128.5,
        255.9,
        -0.9,
        2.0**31,
        -(2.0**63),
        1.5,
        0.0,
        2.0**64,
        7.0,
        -0.0,
    ]
    x = np.array(numbers, np.float32)
    got = np.concatenate(
        [
            apply(dt.float32, target, lanes, lambda b, v: b.convert(v, target), x[k : k + lanes])
            for k in range(0, 16, lanes)
        ]
    )
    if target == dt.bool_:
        np.testing.assert_array_equal(got, [value != 0 for value in numbers])
        return
    info = np.iinfo(target.numpy)
    expected = [
        0 if np.isnan(v) else int(min(max(v, info.min), info.max)) if np.isinf(v) else int(v) for v in x.tolist()
    ]
    assert got.tolist() == [min(max(v, int(info.min)), int(info.max)) for v in expected]


@pytest.mark.parametrize("dtype", [d for d in dt.ALL if d.is_float], ids=str)
@pytest.mark.parametrize("lanes", [1, 4])
def test_is_nan_looks_at_bits(dtype: DType, lanes: int) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0], np.float32).astype(dtype.numpy)[:lanes]
    got = apply(dtype, dt.bool_, lanes, lambda b, v: b.is_nan(v), x)
    np.testing.assert_array_equal(got, [True, False, False, False][:lanes])


def test_equal_expressions_are_emitted_once_in_reach() -> None:
    b = KernelBuilder("k", [("o", BufferType(dt.int32))], [("n", dt.int32)])
    n = b.arguments["n"]
    outer = b.add(n, b.i(1))
    inside: list[Value] = []
    b.branch(b.lt(n, b.i(3)), lambda: (inside.extend([b.add(n, b.i(1)), b.add(n, b.i(2))]), [])[1])
    assert inside[0] is outer
    assert b.add(n, b.i(2)) is not inside[1]  # that one is out of reach


def test_known_values_are_folded() -> None:
    b = KernelBuilder("k", [], [("n", dt.int32)])
    n, true = b.arguments["n"], b.const(True, dt.bool_)
    assert b.mul(n, b.i(1)) is n and b.add(b.i(0), n) is n
    assert b.constant_value(b.quot(b.i(-7), b.i(2))) == -3 and b.constant_value(b.rem(b.i(-7), b.i(2))) == -1
    assert b.constant_value(b.add(b.i(2**31 - 1), b.i(1))) == -(2**31)
    flag = b.lt(n, b.i(1))
    assert b.and_(flag, true) is flag and b.constant_value(b.or_(true, flag)) is True
    wide = b.emit("lt", (b.splat(n, 4), b.const(1, dt.int32, 4)))
    assert b.or_(wide, b.const(True, dt.bool_, 4)).type == wide.type
    assert b.not_(b.const(True, dt.bool_, 4)).type == wide.type
