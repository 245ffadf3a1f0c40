"""The kernel interpreter: it computes exactly, and refuses whatever breaks a precondition."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oarlock import dtypes as dt
from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.kernel.analysis import index_arithmetic
from oarlock.codegen.kernel.interpret import run_kernel
from oarlock.codegen.kernel.values import fma
from oarlock.dtypes import DType
from oarlock.errors import BoundsError, DTypeError, IRError
from oarlock.ir import BufferType, Value


def build(dtype: DType = dt.int32, block: tuple[int, int, int] = (1, 1, 1)) -> KernelBuilder:
    return KernelBuilder("k", [("x", BufferType(dtype)), ("o", BufferType(dtype))], [("n", dt.int32)], block)


def run(b: KernelBuilder, x: list[float], n: int = 0, grid: tuple[int, int, int] = (1, 1, 1)) -> np.ndarray:
    dtype = b.arguments["x"].type.dtype.numpy  # type: ignore[attr-defined]
    out = np.zeros(8, dtype)
    run_kernel(b.function, grid, [np.array(x, dtype), out], {"n": n})
    return out


Emit = Callable[[KernelBuilder, Value, Value], Value]


@pytest.mark.parametrize(
    ("dtype", "emit", "operands", "message"),
    [
        (dt.int32, lambda b, x, y: b.emit("quot", (x, y)), (7, 0), "kernel.quot: division by 0"),
        (dt.uint8, lambda b, x, y: b.emit("rem", (x, y)), (7, 0), "kernel.rem: division by 0"),
        (dt.int32, lambda b, x, y: b.emit("rem", (x, y)), (-(2**31), -1), "least value divided by -1"),
        (dt.int16, lambda b, x, y: b.emit("shl", (x, y)), (1, 16), "shift by .16., of 16 bits"),
        (dt.int16, lambda b, x, y: b.emit("shr", (x, y)), (1, -1), "shift by .-1."),
        (dt.float32, lambda b, x, y: b.raw_convert(x, dt.int8), (128.0, 0), "outside int8"),
        (dt.float32, lambda b, x, y: b.raw_convert(x, dt.uint32), (-1.0, 0), "outside uint32"),
        (dt.float32, lambda b, x, y: b.raw_convert(x, dt.int64), (np.nan, 0), "outside int64"),
    ],
)
def test_a_broken_precondition_is_refused(
    dtype: DType, emit: Emit, operands: tuple[float, float], message: str
) -> None:
    b = build(dtype)
    result = emit(b, b.load(b.arguments["x"], b.i(0)), b.load(b.arguments["x"], b.i(1)))
    b.store(b.arguments["o"], b.i(0), b.convert(result, dtype))
    with pytest.raises(IRError, match=rf"kernel k, block \(0, 0, 0\), thread \(0, 0, 0\).*{message}"):
        run(b, list(operands))


@pytest.mark.parametrize("index", [-1, 8])
@pytest.mark.parametrize("access", ["load", "store"])
def test_an_index_outside_its_buffer_is_refused(access: str, index: int) -> None:
    b = build()
    place = b.arguments["n"]
    if access == "load":
        b.store(b.arguments["o"], b.i(0), b.load(b.arguments["x"], place))
    else:
        b.store(b.arguments["o"], place, b.i(0))
    with pytest.raises(BoundsError, match=rf"index {index} .* outside [xo] of 8 elements"):
        run(b, [0] * 8, index)


def test_the_last_lane_must_be_inside_too() -> None:
    b = build()
    b.store(b.arguments["o"], b.i(0), b.load(b.arguments["x"], b.arguments["n"], 4))
    np.testing.assert_array_equal(run(b, list(range(8)), 4), [4, 5, 6, 7, 0, 0, 0, 0])
    with pytest.raises(BoundsError, match="lanes: 4"):
        run(b, list(range(8)), 5)


def test_index_arithmetic_must_not_wrap() -> None:
    b = build()
    n = b.arguments["n"]
    back = b.sub(b.add(n, b.i(5)), b.i(5))  # in range in the end, but only by wrapping around
    b.store(b.arguments["o"], b.emit("and", (n, b.i(7))), b.mul(n, n))  # data and other operations may
    b.store(b.arguments["o"], b.sub(back, b.i(2**31 - 8)), b.i(1))
    assert {op.name for op in index_arithmetic(b.function)} == {"kernel.add", "kernel.sub"}
    with pytest.raises(IRError, match="index arithmetic wraps: add of 2147483647 and 5"):
        run(b, [0], 2**31 - 1)


@pytest.mark.parametrize("space", ["private", "local"])
def test_memory_is_not_read_before_it_is_written(space: str) -> None:
    b = build()
    memory = b.local(dt.int32, 4) if space == "local" else b.private(dt.int32, 4)
    b.store(memory, b.i(0), b.i(3))
    b.store(b.arguments["o"], b.i(0), b.load(memory, b.arguments["n"]))
    assert run(b, [0], 0)[0] == 3
    with pytest.raises(IRError, match=f"element 1 of {space} memory is read before it is written"):
        run(b, [0], 1)


def test_local_memory_is_the_blocks_and_private_memory_the_threads() -> None:
    b = build(block=(2, 1, 1))
    thread, other = b.position("thread_id", 0), b.sub(b.i(1), b.position("thread_id", 0))
    shared, own = b.local(dt.int32, 2), b.private(dt.int32, 1)
    b.store(shared, thread, b.add(thread, b.i(10)))
    b.store(own, b.i(0), thread)
    b.barrier()
    value = b.add(b.mul(b.load(shared, other), b.i(10)), b.load(own, b.i(0)))
    b.store(b.arguments["o"], b.add(b.mul(b.position("block_id", 0), b.i(2)), thread), value)
    np.testing.assert_array_equal(run(b, [0], grid=(2, 1, 1))[:4], [110, 101, 110, 101])


def test_a_barrier_that_some_threads_miss_is_refused() -> None:
    b = build(block=(4, 1, 1))
    b.branch(b.lt(b.position("thread_id", 0), b.i(2)), lambda: (b.barrier(), [])[1])
    with pytest.raises(IRError, match=r"only some threads of block \(0, 0, 0\) reach a barrier"):
        run(b, [0])


def test_arguments_are_checked() -> None:
    b = build()
    with pytest.raises(DTypeError, match="buffer o is 1-d of int32, not 1-d of float32"):
        run_kernel(b.function, (1, 1, 1), [np.zeros(1, np.int32), np.zeros(1, np.float32)], [0])
    with pytest.raises(IRError, match="takes 2 buffers and 1 scalars"):
        run_kernel(b.function, (1, 1, 1), [np.zeros(1, np.int32)], [0])


def test_a_loop_needs_a_positive_step() -> None:
    b = build()
    b.loop(b.i(0), b.i(4), lambda i, _: [], (), b.arguments["n"])
    with pytest.raises(IRError, match="step is 0"):
        run(b, [0], 0)


FLOATS = st.floats(width=32) | st.floats(-4, 4, width=32) | st.sampled_from([0.0, -0.0, 1e-45, 3.4e38, np.inf, np.nan])


@settings(max_examples=150, deadline=None)
@given(FLOATS, FLOATS, FLOATS)
def test_fma_is_rounded_once(a: float, b: float, c: float) -> None:
    """float32 against rational arithmetic; the neighbours of the result are no nearer."""
    a, b, c = (float(np.float32(v)) for v in (a, b, c))
    got = fma(*(np.array([v], np.float32) for v in (a, b, c)))[0]
    if not np.isfinite([a, b, c]).all():
        with np.errstate(all="ignore"):
            expected = np.float32(np.float64(a) * np.float64(b) + np.float64(c))
        assert got == expected or (np.isnan(got) and np.isnan(expected))
        return
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if np.isinf(got):
        assert abs(exact) >= Fraction(float(np.finfo(np.float32).max)) + Fraction(2) ** 103
        return
    for side in (-np.inf, np.inf):
        with np.errstate(all="ignore"):
            neighbour = np.nextafter(got, np.float32(side))
        if np.isfinite(neighbour):
            assert abs(Fraction(float(got)) - exact) <= abs(Fraction(float(neighbour)) - exact)


def test_fma_of_float64_differs_from_two_roundings() -> None:
    x = np.array([1 + 2.0**-52, 2.0**-600, np.inf], np.float64)
    y = np.array([1 - 2.0**-52, 2.0**-600, 0.0], np.float64)
    z = np.array([-1.0, 1.0, 1.0], np.float64)
    got = fma(x, y, z)
    np.testing.assert_array_equal(got[:2], [-(2.0**-104), 1.0])
    assert np.isnan(got[2])


def test_arithmetic_on_16_bits_rounds_after_each_operation() -> None:
    b = build(dt.bfloat16)
    x, y = b.load(b.arguments["x"], b.i(0)), b.load(b.arguments["x"], b.i(1))
    b.store(b.arguments["o"], b.i(0), b.sub(b.add(x, y), x))
    assert run(b, [256.0, 1.0])[0] == ml_dtypes.bfloat16(0.0)  # 257 is a tie, and 256 is even
