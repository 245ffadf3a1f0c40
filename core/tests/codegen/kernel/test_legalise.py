"""Legalisation: which dtypes remain, exact 16-bit floats, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oarlock import dtypes
from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.kernel.interpret import run_kernel
from oarlock.codegen.legalise import legalise
from oarlock.dtypes import DType
from oarlock.errors import UnsupportedError
from oarlock.ir import BufferType, Operation, ScalarType, Value
from oarlock.target import Target

HELD = (("bool", "int32"), ("int8", "int8"), ("uint16", "uint16"), ("float16", "uint16"), ("bfloat16", "uint16"))
SMALL = Target("c99", "small", storage=HELD)
"""Computes bool, int32, uint32, float32."""
LARGE = Target(
    "c99", "large", compute=frozenset(d.name for d in dtypes.ALL) - {"float16", "bfloat16"}, storage=HELD[3:]
)


def one_operation(
    sources: list[DType], result: DType, emit: Callable[[KernelBuilder, list[Value]], Value], lanes: int = 256
) -> Operation:
    """out[i] = emit(in0[i], in1[i], ...)."""
    buffers = [(f"in{k}", BufferType(d, "global", "read")) for k, d in enumerate(sources)]
    b = KernelBuilder("k", [*buffers, ("out", BufferType(result, "global", "write"))], [("n", dtypes.int32)])

    def body(i: Value, _: list[Value]) -> list[Value]:
        b.store(b.arguments["out"], i, emit(b, [b.load(b.arguments[n], i, lanes) for n, _ in buffers]))
        return []

    b.loop(b.i(0), b.arguments["n"], body, (), b.i(lanes))
    return b.function


def run(function: Operation, inputs: list[np.ndarray], out: np.ndarray) -> np.ndarray:
    run_kernel(function, (1, 1, 1), [*inputs, out], {"n": len(out)})
    return out


def patterns(dtype: DType) -> np.ndarray:
    return np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)


def same(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal values, bit for bit but for NaN."""
    unsigned = f"u{expected.dtype.itemsize}"
    got = got.view(expected.dtype)
    with np.errstate(invalid="ignore"):
        bad = (got.view(unsigned) != expected.view(unsigned)) & ~(np.isnan(got) & np.isnan(expected))
    assert not bad.any(), (int(bad.sum()), got[bad][:3], expected[bad][:3])


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_every_pattern_is_read_and_written_back(dtype: DType) -> None:
    widen = one_operation([dtype], dtypes.float32, lambda b, x: b.raw_convert(x[0], dtypes.float32), 4096)
    values = patterns(dtype)
    got = run(legalise(widen, SMALL), [values.view(np.uint16)], np.zeros(1 << 16, np.float32))
    with np.errstate(invalid="ignore"):
        expected = values.astype(np.float32)
    same(got, expected)
    narrow = one_operation([dtypes.float32], dtype, lambda b, x: b.raw_convert(x[0], dtype), 4096)
    same(run(legalise(narrow, SMALL), [expected], np.zeros(1 << 16, np.uint16)), values)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_float32_is_rounded_to_nearest_even_everywhere(dtype: DType) -> None:
    """Around every tie between two neighbours, and random patterns."""
    with np.errstate(invalid="ignore", over="ignore"):
        ties = patterns(dtype).astype(np.float32).view(np.uint32).astype(np.int64)
    half = 1 << (12 if dtype == dtypes.float16 else 15)
    near = np.concatenate([ties + half + k for k in (-1, 0, 1)] + [ties + 1, ties - 1])
    near = (near & 0xFFFFFFFF).astype(np.uint32)
    small = (np.arange(2048, dtype=np.float64) * 2.0**-25).astype(np.float32)  # ties of float16's subnormals
    small = np.concatenate([small, np.nextafter(small, np.float32(0)), np.nextafter(small, np.float32(1))])
    noise = np.random.default_rng(0).integers(0, 1 << 32, 100_000, np.uint64).astype(np.uint32)
    x = np.concatenate([near.view(np.float32), small, -small, noise.view(np.float32)])
    x = x[: len(x) // 4096 * 4096]
    with np.errstate(invalid="ignore", over="ignore"):
        expected = x.astype(dtype.numpy)
    function = legalise(one_operation([dtypes.float32], dtype, lambda b, v: b.raw_convert(v[0], dtype), 4096), SMALL)
    same(run(function, [x], np.zeros(len(x), np.uint16)), expected)


def nearest(exact: Fraction, dtype: DType) -> float:
    """The value of ``dtype`` nearest to ``exact``, ties to even: by search over all finite patterns."""
    magnitudes = np.arange(0x7C00 if dtype == dtypes.float16 else 0x7F80, dtype=np.uint16).view(dtype.numpy)
    table = magnitudes.astype(np.float64)
    at = int(np.searchsorted(table, float(abs(exact))))
    options = range(max(at - 2, 0), min(at + 2, len(table)))
    best = min(options, key=lambda k: (abs(Fraction(table[k]) - abs(exact)), k % 2))
    return float(np.copysign(table[best], 1 if exact >= 0 else -1))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_conversions_from_wider_types_round_once(dtype: DType) -> None:
    tie = 1 + float(ml_dtypes.finfo(dtype.numpy).eps) / 2
    doubles = np.array([tie, tie + 2.0**-40, tie - 2.0**-40, -tie - 2.0**-40, 3 * tie, 1e300, -1e-300, 0.0], np.float64)
    integers = np.array([257, 16777217, 2**30 + 2**22 + 1, 2**31 - 1, -(2**30) - 2**22 - 1, -(2**31), 0, -7], np.int64)
    longs = np.concatenate([integers, integers * 2**29 + 1, integers * 2**14 - 1, [2**62 + 2**54 + 1] * 8])
    for source, values in ((dtypes.float64, doubles), (dtypes.int32, integers), (dtypes.int64, longs)):
        x = values.astype(source.numpy)
        function = one_operation([source], dtype, lambda b, v: b.raw_convert(v[0], dtype), 8)
        direct = run(function, [x], np.zeros(len(x), dtype.numpy))
        same(run(legalise(function, LARGE), [x], np.zeros(len(x), np.uint16)), direct)
        limit = float(ml_dtypes.finfo(dtype.numpy).max)
        for value, got in zip(values, direct, strict=True):
            if abs(value) <= limit:
                assert float(got) == nearest(Fraction(value.item()), dtype), (source, value)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(0, 0xFFFF)] * 3), min_size=8, max_size=8), st.sampled_from(["float16", "bfloat16"])
)
def test_fma_of_16_bits_rounds_once(rows: list[tuple[int, int, int]], name: str) -> None:
    dtype = dtypes.by_name(name)
    x = [np.array([row[k] for row in rows], np.uint16).view(dtype.numpy) for k in range(3)]
    function = one_operation([dtype] * 3, dtype, lambda b, v: b.fma(*v), 8)
    expected = run(function, x, np.zeros(8, dtype.numpy))
    target = SMALL if name == "float16" else LARGE
    same(run(legalise(function, target), [v.view(np.uint16) for v in x], np.zeros(8, np.uint16)), expected)
    for a, b, c, got in zip(*x, expected, strict=True):
        numbers = [float(v) for v in (a, b, c)]
        if all(map(np.isfinite, (*numbers, float(got)))):
            exact = Fraction(numbers[0]) * Fraction(numbers[1]) + Fraction(numbers[2])
            assert abs(float(got)) == abs(nearest(exact, dtype))


def test_fma_of_bfloat16_finds_ties_that_float64_hides() -> None:
    """9 x 29 / 256 is halfway between 260 / 256 and 262 / 256; what c adds is 133 binary digits away."""
    x = [np.array([v] * 8, ml_dtypes.bfloat16) for v in (9.0, 29 / 256, 0.0)]
    x[2][:3] = 2.0**-133, -(2.0**-133), 0.0
    function = one_operation([dtypes.bfloat16] * 3, dtypes.bfloat16, lambda b, v: b.fma(*v), 8)
    exact = run(function, x, np.zeros(8, ml_dtypes.bfloat16))
    np.testing.assert_array_equal(exact[:3].astype(float) * 256, [262, 260, 260])
    same(run(legalise(function, LARGE), [v.view(np.uint16) for v in x], np.zeros(8, np.uint16)), exact)


def dtypes_outside(function: Operation, names: frozenset[str], operations: tuple[str, ...]) -> set[str]:
    """dtypes of results not in ``names``, except by ``operations``."""
    found = set()
    for op in function.walk():
        for value in (*op.results, *op.operands):
            if isinstance(value.type, ScalarType) and value.type.dtype.name not in names and op.name not in operations:
                found.add(f"{op.name}: {value.type.dtype}")
    return found


@pytest.mark.parametrize("dtype", [dtypes.bool_, dtypes.int8, dtypes.uint16, dtypes.float16, dtypes.bfloat16], ids=str)
def test_only_memory_has_what_is_not_computed(dtype: DType) -> None:
    def emit(b: KernelBuilder, x: list[Value]) -> Value:
        if dtype.kind == "bool":
            return b.not_(b.emit("xor", (x[0], x[1])))
        return b.select(b.lt(x[0], x[1]), b.add(x[0], x[1]), b.emit("neg", (x[0],)))

    function = legalise(one_operation([dtype, dtype], dtype, emit, 4), SMALL)
    allowed = ("kernel.load", "kernel.store", "kernel.convert")
    assert dtypes_outside(function, SMALL.compute, allowed) == set()
    arguments = function.regions[0].block.args
    assert {a.type.dtype for a in arguments[:3]} == {SMALL.storage_of(dtype)}  # type: ignore[attr-defined]


def test_what_the_target_computes_is_left_alone() -> None:
    def emit(b: KernelBuilder, x: list[Value]) -> Value:
        return b.add(b.mul(x[0], x[1]), b.const(1.5, dtypes.float16, 4))

    target = Target("opencl", compute=frozenset({"bool", "int32", "uint32", "float32", "float16"}))
    function = one_operation([dtypes.float16] * 2, dtypes.float16, emit, 4)
    names = [op.name for op in function.walk()]
    assert [op.name for op in legalise(function, target).walk()] == names


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.int64, dtypes.uint64], ids=str)
def test_a_wider_dtype_is_refused_by_name(dtype: DType) -> None:
    def emit(b: KernelBuilder, x: list[Value]) -> Value:
        return b.raw_convert(b.add(*[b.raw_convert(x[0], dtype)] * 2), dtypes.float32)

    function = one_operation([dtypes.float32], dtypes.float32, emit, 4)
    message = rf"c99/small does not compute {dtype} \(kernel k, kernel.convert\). Nearest it does: {dtype.name[:-2]}32"
    with pytest.raises(UnsupportedError, match=message):
        legalise(function, SMALL)
    with pytest.raises(UnsupportedError, match=f"does not store {dtype}"):
        legalise(one_operation([dtype], dtype, lambda b, x: x[0], 4), SMALL)


def test_fma_of_bfloat16_needs_float64() -> None:
    function = one_operation([dtypes.bfloat16] * 3, dtypes.bfloat16, lambda b, v: b.fma(*v), 4)
    with pytest.raises(UnsupportedError, match="fma of bfloat16, which goes through float64"):
        legalise(function, SMALL)


def test_copies_of_16_bit_floats_are_not_rounded() -> None:
    """A select between two loads stays a move of patterns: nothing is converted, and NaN payloads survive."""

    def emit(b: KernelBuilder, x: list[Value]) -> Value:
        return b.select(x[2], x[0], b.emit("neg", (x[1],)))

    function = legalise(one_operation([dtypes.float16, dtypes.float16, dtypes.bool_], dtypes.float16, emit, 4), SMALL)
    assert "kernel.mul" not in {op.name for op in function.walk()}
    x = np.array([0x7E55, 0xFC00, 0x0001, 0x7D01], np.uint16)
    y = np.array([1, 2, 0x7E66, 0x8000], np.uint16)
    flag = np.array([1, 1, 0, 0], np.int32)
    np.testing.assert_array_equal(run(function, [x, y, flag], np.zeros(4, np.uint16)), [0x7E55, 0xFC00, 0xFE66, 0])
