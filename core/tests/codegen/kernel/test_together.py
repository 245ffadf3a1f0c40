"""Operations that threads carry out together: shuffles and matrix units, as the interpreter has them."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest

from oarlock import dtypes as dt
from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.kernel.interpret import run_kernel
from oarlock.codegen.render import renderer
from oarlock.dtypes import DType
from oarlock.errors import BoundsError, DTypeError, IRError, UnsupportedError
from oarlock.ir import BufferType, Value
from oarlock.target import Target


def shuffled(mask: int, width: int, threads: int) -> KernelBuilder:
    """Each thread stores what it takes from its partner."""
    b = KernelBuilder("k", [("x", BufferType(dt.int32)), ("o", BufferType(dt.int32))], [], (threads, 1, 1))
    thread = b.position("thread_id", 0)
    b.store(b.arguments["o"], thread, b.shuffle(b.load(b.arguments["x"], thread), mask, width))
    return b


@pytest.mark.parametrize("mask", [1, 2, 3, 4, 7])
def test_shuffle_takes_from_the_partner(mask: int) -> None:
    x, out = np.arange(16, dtype=np.int32) * 10, np.zeros(16, np.int32)
    run_kernel(shuffled(mask, 8, 16).function, (1, 1, 1), [x, out])
    assert out.tolist() == [10 * (thread ^ mask) for thread in range(16)]


def test_shuffle_in_a_loop_takes_what_belongs_to_the_turn() -> None:
    b = KernelBuilder("k", [("o", BufferType(dt.int32))], [], (8, 1, 1))
    thread = b.position("thread_id", 0)
    (total,) = b.loop(b.i(0), b.i(3), lambda i, c: [b.add(c[0], b.shuffle(c[0], 1, 8))], [b.add(thread, b.i(1))])
    b.store(b.arguments["o"], thread, total)
    out = np.zeros(8, np.int32)
    run_kernel(b.function, (1, 1, 1), [out])
    pairs = [2 * (thread // 2 * 2) + 3 for thread in range(8)]
    assert out.tolist() == [4 * pair for pair in pairs]


def test_wrong_warp_size_is_refused() -> None:
    with pytest.raises(IRError, match=r"kernel.shuffle: 24 threads are no multiple of 16"):
        run_kernel(shuffled(1, 16, 24).function, (1, 1, 1), [np.zeros(24, np.int32), np.zeros(24, np.int32)])
    with pytest.raises(DTypeError, match="0 < mask < width, a power of two, not mask 8 and width 8"):
        shuffled(8, 8, 8)
    with pytest.raises(DTypeError, match="not mask 1 and width 12"):
        shuffled(1, 12, 12)


def test_divergent_shuffle_is_refused() -> None:
    b = KernelBuilder("k", [("o", BufferType(dt.int32))], [], (8, 1, 1))
    thread = b.position("thread_id", 0)

    def some() -> Sequence[Value]:
        b.store(b.arguments["o"], thread, b.shuffle(thread, 1, 8))
        return []

    b.branch(b.lt(thread, b.i(4)), some)
    with pytest.raises(IRError, match="only some threads of block .* reach a shuffle"):
        run_kernel(b.function, (1, 1, 1), [np.zeros(8, np.int32)])


def product(kind: str, dtype: DType, first: int = 0, stride: int = 16) -> KernelBuilder:
    """o = 3 + x y', 16 x 16 of each, through local memory of ``stride`` elements a row."""
    names = [("x", dtype), ("y", dtype), ("o", dt.float32)]
    b = KernelBuilder("k", [(name, BufferType(d)) for name, d in names], [], (32, 1, 1))
    left, right, result = b.local(dtype, 16 * stride), b.local(dtype, 16 * stride), b.local(dt.float32, 256)
    thread = b.position("thread_id", 0)

    def fill(i: Value, _: list[Value]) -> list[Value]:
        at = b.add(b.mul(i, b.i(32)), thread)
        place = b.add(b.mul(b.quot(at, b.i(16)), b.i(stride)), b.rem(at, b.i(16)))
        for memory, name in ((left, "x"), (right, "y")):
            b.store(memory, place, b.load(b.arguments[name], at))
        return []

    b.loop(b.i(0), b.i(8), fill)
    b.barrier()
    total = b.matrix_fma(left, b.i(first), right, b.i(0), b.const(3, dt.float32, 8), stride, kind, 32)
    b.matrix_store(result, b.i(0), total, 16, 32)
    b.barrier()
    b.loop(b.i(0), b.i(8), lambda i, _: _take(b, result, i, thread))
    return b


def _take(b: KernelBuilder, result: Value, i: Value, thread: Value) -> list[Value]:
    at = b.add(b.mul(i, b.i(32)), thread)
    b.store(b.arguments["o"], at, b.load(result, at))
    return []


@pytest.mark.parametrize(
    ("kind", "dtype", "stride"),
    [("float16", dt.float16, 16), ("bfloat16", dt.bfloat16, 24), ("tf32", dt.float32, 16), ("float16", dt.uint16, 24)],
    ids=str,
)
def test_matrix_unit_multiplies_with_float32_sums(kind: str, dtype: DType, stride: int) -> None:
    random = np.random.default_rng(5)
    held = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "tf32": np.float32}[kind]
    x, y = (random.standard_normal((16, 16)).astype(held) for _ in range(2))
    out = np.zeros(256, np.float32)
    operands = [matrix.view(dtype.numpy).reshape(-1) for matrix in (x, y)]
    run_kernel(product(kind, dtype, stride=stride).function, (1, 1, 1), [*operands, out])
    wanted = 3 + x.astype(np.float64) @ y.astype(np.float64).T
    bound = 2e-6 if kind != "tf32" else 2 * 2**-11
    scale = 3 + np.abs(x.astype(np.float64)) @ np.abs(y.astype(np.float64)).T
    assert (np.abs(out.reshape(16, 16) - wanted) <= bound * scale).all()
    assert kind != "tf32" or np.abs(out.reshape(16, 16) - wanted).max() > 1e-5  # it did round to 10 bits


def test_matrix_unit_stays_inside_its_memory() -> None:
    arrays = [np.zeros(256, np.float16), np.zeros(256, np.float16), np.zeros(256, np.float32)]
    with pytest.raises(BoundsError, match=r"kernel.matrix_fma: index 256 \(lanes: 16\) is outside local memory"):
        run_kernel(product("float16", dt.float16, first=16).function, (1, 1, 1), arrays)
    with pytest.raises(IRError, match="stride 17 is odd"):
        run_kernel(product("float16", dt.float16, stride=17).function, (1, 1, 1), arrays)


def test_matrix_unit_is_typed() -> None:
    with pytest.raises(DTypeError, match="matrix_fma of float16 reads local memory of 16 bits, not"):
        product("float16", dt.float32)
    with pytest.raises(DTypeError, match="kind 'float8' is none of float16, bfloat16, tf32"):
        product("float8", dt.float16)


def test_renderers_without_these_refuse_them() -> None:
    for language in ("opencl", "cuda"):
        with pytest.raises(UnsupportedError, match=r"a shuffle among 8 threads; .*subgroup_8"):
            renderer(language).render([shuffled(1, 8, 16).function], Target(language))
