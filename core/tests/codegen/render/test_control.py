"""Control flow, memory, grids and barriers: every renderer against the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from oarlock import dtypes as dt
from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.kernel.interpret import run_kernel
from oarlock.codegen.legalise import legalise
from oarlock.codegen.render import register, renderer
from oarlock.codegen.render.c99 import C99
from oarlock.codegen.render.cstyle import CRenderer
from oarlock.errors import UnsupportedError
from oarlock.ir import BufferType, Operation, Value
from oarlock.target import Target

READ = "read"


@dataclass
class Kernel:
    """A kernel and what to launch it on."""

    function: Operation
    buffers: list[np.ndarray]
    scalars: list[Any]
    grid: tuple[int, int, int] = (1, 1, 1)

    @property
    def name(self) -> str:
        return str(self.function.attributes["name"])


KERNELS: list[Callable[[], Kernel]] = []


def kernel(make: Callable[[], Kernel]) -> Callable[[], Kernel]:
    KERNELS.append(make)
    return make


def builder(name: str, buffers: dict[str, tuple[Any, str]], scalars: dict[str, Any], **rest: Any) -> KernelBuilder:
    types = [(n, BufferType(d, "global", access)) for n, (d, access) in buffers.items()]  # type: ignore[arg-type]
    return KernelBuilder(name, types, list(scalars.items()), **rest)


@kernel
def matrix_product() -> Kernel:
    """Three nested loops; the innermost carries a sum."""
    b = builder("matmul", {"x": (dt.float32, READ), "y": (dt.float32, READ), "o": (dt.float32, "write")},
                {"m": dt.int32, "n": dt.int32, "k": dt.int32})  # fmt: skip
    x, y, o, m, n, k = b.arguments.values()

    def element(i: Value, j: Value) -> None:
        def step(p: Value, carried: list[Value]) -> list[Value]:
            left, right = b.load(x, b.add(b.mul(i, k), p)), b.load(y, b.add(b.mul(p, n), j))
            return [b.fma(left, right, carried[0])]

        (total,) = b.loop(b.i(0), k, step, [b.const(0.0, dt.float32)])
        b.store(o, b.add(b.mul(i, n), j), total)

    def row(i: Value, carried: list[Value]) -> list[Value]:
        b.loop(b.i(0), n, lambda j, _: (element(i, j), [])[1])
        return []

    b.loop(b.i(0), m, row)
    random = np.random.default_rng(0)
    x, y = (random.standard_normal(s).astype(np.float32) for s in (5 * 7, 7 * 6))
    return Kernel(b.function, [x, y, np.zeros(30, np.float32)], [5, 6, 7])


@kernel
def swapping_loop() -> Kernel:
    """Carried values that exchange places: (a, b, c) -> (b, a + b, a)."""
    b = builder("fibonacci", {"o": (dt.int32, "write")}, {"n": dt.int32})

    def step(i: Value, carried: list[Value]) -> list[Value]:
        first, second, _ = carried
        b.store(b.arguments["o"], i, first)
        return [second, b.add(first, second), first]

    last = b.loop(b.i(0), b.arguments["n"], step, [b.i(0), b.i(1), b.i(-1)], unroll=True)
    for place, value in enumerate(last):
        b.store(b.arguments["o"], b.add(b.arguments["n"], b.i(place)), value)
    return Kernel(b.function, [np.zeros(53, np.int32)], [50])


@kernel
def branches() -> Kernel:
    """if with and without results, without an else, nested, inside a loop; a bool is carried."""
    b = builder(
        "branches", {"x": (dt.int32, READ), "o": (dt.int32, "both"), "flag": (dt.bool_, "write")}, {"n": dt.int32}
    )
    x, o, flag, n = b.arguments.values()

    def step(i: Value, carried: list[Value]) -> list[Value]:
        value = b.load(x, i)
        odd = b.eq(b.emit("and", (value, b.i(1))), b.i(1))
        positive = b.lt(b.i(0), value)

        def when_odd() -> list[Value]:
            inner = b.branch(positive, lambda: [b.mul(value, b.i(3))], lambda: [b.sub(b.i(0), value)])
            return [inner[0], b.not_(carried[1])]

        result, seen = b.branch(odd, when_odd, lambda: [b.add(value, carried[0]), carried[1]])
        b.branch(b.le(b.i(20), result), lambda: (b.store(o, i, b.i(-7)), [])[1])
        b.branch(b.lt(result, b.i(20)), lambda: (b.store(o, i, result), [])[1])
        b.store(flag, i, seen)
        return [result, seen]

    b.loop(b.i(0), n, step, [b.i(1), b.const(False, dt.bool_)])
    values = np.array([3, 4, -5, 8, 0, -2, 7, 1000, -999, 12], np.int32)
    return Kernel(b.function, [values, np.zeros(10, np.int32), np.zeros(10, bool)], [10])


@kernel
def private_memory() -> Kernel:
    """A histogram and a bool table in private memory, once in each block; local memory where blocks have one thread."""
    b = builder("histogram", {"x": (dt.uint8, READ), "o": (dt.int32, "write"), "hit": (dt.bool_, "write")}, {})
    x, o, hit = b.arguments.values()
    counts, seen, shared = b.private(dt.int32, 8), b.private(dt.bool_, 8), b.local(dt.float16, 8)

    def clear(i: Value, _: list[Value]) -> list[Value]:
        b.store(counts, i, b.i(0))
        b.store(seen, i, b.const(False, dt.bool_))
        b.store(shared, i, b.const(0.0, dt.float16))
        return []

    def count(i: Value, _: list[Value]) -> list[Value]:
        place = b.raw_convert(b.load(x, b.add(b.mul(b.position("block_id", 0), b.i(16)), i)), dt.int32)
        b.store(counts, place, b.add(b.load(counts, place), b.i(1)))
        b.store(seen, place, b.const(True, dt.bool_))
        b.store(shared, place, b.add(b.load(shared, place), b.const(0.1, dt.float16)))
        return []

    def report(i: Value, _: list[Value]) -> list[Value]:
        at = b.add(b.mul(b.position("block_id", 0), b.i(8)), i)
        scaled = b.mul(b.raw_convert(b.load(shared, i), dt.float32), b.const(1024.0, dt.float32))
        b.store(o, at, b.add(b.mul(b.load(counts, i), b.i(100000)), b.raw_convert(scaled, dt.int32)))
        b.store(hit, at, b.load(seen, i))
        return []

    b.loop(b.i(0), b.i(8), clear, unroll=True)
    b.barrier()
    b.loop(b.i(0), b.i(16), count)
    b.loop(b.i(0), b.i(8), report)
    values = np.random.default_rng(1).integers(0, 8, 48).astype(np.uint8)
    return Kernel(b.function, [values, np.zeros(24, np.int32), np.zeros(24, bool)], [], (3, 1, 1))


@kernel
def grid_of_blocks() -> Kernel:
    """Every block writes where it stands; element offsets travel as scalars."""
    b = builder("grid", {"o": (dt.int32, "write")}, {"offset_o": dt.int32})
    x, y, z = (b.position("block_id", axis) for axis in range(3))
    place = b.add(b.add(b.mul(z, b.i(20)), b.mul(y, b.i(5))), x)
    code = b.add(b.add(b.mul(z, b.i(10000)), b.mul(y, b.i(100))), x)
    threads = b.add(b.position("thread_id", 0), b.add(b.position("thread_id", 1), b.position("thread_id", 2)))
    b.store(b.arguments["o"], b.add(place, b.arguments["offset_o"]), b.add(code, threads))
    return Kernel(b.function, [np.full(70, -1, np.int32)], [3], (5, 4, 3))


@kernel
def strides_to_the_end_of_the_range() -> Kernel:
    """Counters whose next value would pass the dtype's greatest; every kind of counter."""
    b = builder("strides", {"o": (dt.int32, "write")}, {"low": dt.int32, "high": dt.int32, "step": dt.int32,
                "ulow": dt.uint32, "long": dt.int64})  # fmt: skip
    o, low, high, step, ulow, long = b.arguments.values()

    def count(low: Value, high: Value, step: Value, place: int) -> None:
        (total,) = b.loop(low, high, lambda i, c: [b.add(c[0], b.i(1))], [b.i(0)], step)
        b.store(o, b.i(place), total)

    count(low, high, step, 0)
    count(b.sub(b.i(0), low), low, b.i(1 << 30), 1)
    count(high, low, step, 2)
    count(ulow, b.const(0xFFFFFFFF, dt.uint32), b.const(3, dt.uint32), 3)
    count(b.const(-5, dt.int64), long, b.const(2, dt.int64), 4)
    count(b.const(120, dt.int8), b.const(127, dt.int8), b.const(5, dt.int8), 5)
    count(b.const(250, dt.uint8), b.const(255, dt.uint8), b.const(4, dt.uint8), 6)
    count(b.i(3), b.i(-3), b.i(1), 7)
    count(b.const(2**63 - 2, dt.uint64), b.const(2**63 + 2, dt.uint64), b.const(1, dt.uint64), 8)
    count(b.const(2**63 - 9, dt.int64), b.const(2**63 - 1, dt.int64), b.const(3, dt.int64), 9)
    count(b.const(-(2**63), dt.int64), b.const(2**63 - 1, dt.int64), b.const(2**62, dt.int64), 10)
    scalars = [2**31 - 20, 2**31 - 1, 7, 0xFFFFFFF0, 6]
    return Kernel(b.function, [np.full(11, -1, np.int32)], scalars)


@kernel
def scalars_of_every_kind() -> Kernel:
    """The block's layout: 4- and 8-byte fields that need padding; parameters called as the language's own words."""
    names = {"v1": dt.int32, "float": dt.float64, "if": dt.uint32, "half": dt.int64, "fma": dt.float32, "s": dt.uint64}
    b = builder("scalars", {"global": (dt.float64, "write"), "int": (dt.int64, "write")}, names)
    floats, integers = b.arguments["global"], b.arguments["int"]
    for place, (name, dtype) in enumerate(names.items()):
        value = b.arguments[name]
        if dtype.is_float:
            b.store(floats, b.i(place), b.raw_convert(value, dt.float64))
        else:
            b.store(integers, b.i(place), b.raw_convert(value, dt.int64))
    return Kernel(b.function, [np.zeros(6), np.zeros(6, np.int64)], [-5, 0.1, 2**32 - 1, -(2**63) + 1, 1.5, 2**64 - 2])


@kernel
def vectors_anywhere() -> Kernel:
    """Vector loads and stores at addresses that are aligned to elements only; sums by lanes; a vector is carried."""
    b = builder("vectors", {"x": (dt.float32, READ), "o": (dt.float32, "write")}, {"n": dt.int32, "offset_x": dt.int32})
    x, o, n, offset = b.arguments.values()
    zero = b.const(0.0, dt.float32, 8)

    def step(i: Value, carried: list[Value]) -> list[Value]:
        value = b.load(x, b.add(i, offset), 8)
        double = b.fma(value, b.const(2.0, dt.float32, 8), b.splat(b.load(x, i), 8))
        b.store(o, b.add(i, b.i(1)), double)
        small = b.lt(double, zero)
        return [b.add(carried[0], b.select(small, zero, double))]

    (total,) = b.loop(b.i(0), n, step, [zero], b.i(8))
    lanes = [b.emit("extract", (total,), {"index": lane}) for lane in range(8)]
    while len(lanes) > 1:
        lanes = [b.add(lanes[k], lanes[k + len(lanes) // 2]) for k in range(len(lanes) // 2)]
    b.store(o, b.i(0), lanes[0])
    values = np.random.default_rng(2).standard_normal(40).astype(np.float32)
    return Kernel(b.function, [values, np.zeros(40, np.float32)], [32, 3])


@kernel
def literals() -> Kernel:
    """Constants that are hard to spell."""
    floats = [
        0.1,
        -0.0,
        1e-45,
        3.4028235e38,
        float("inf"),
        float("-inf"),
        float("nan"),
        1 / 3,
        16777217.0,
        1e6,
        2.0**-126,
    ]
    doubles = [*floats, 5e-324, 1.7976931348623157e308, 0.1 + 0.2]
    integers = [-(2**31), 2**31 - 1, -1, 0]
    longs = [-(2**63), 2**63 - 1, -1]
    buffers = {"f": dt.float32, "d": dt.float64, "i": dt.int32, "l": dt.int64, "b": dt.uint8, "h": dt.float16}
    b = builder("literals", {n: (d, "write") for n, d in buffers.items()}, {})
    tables: dict[str, list[Any]] = {"f": floats, "d": doubles, "i": integers, "l": longs, "b": [0, 255], "h": floats}
    for name, values in tables.items():
        for place, value in enumerate(values):
            b.store(b.arguments[name], b.i(place), b.const(value, buffers[name]))
    return Kernel(b.function, [np.zeros(16, d.numpy) for d in buffers.values()], [])


def expected_of(case: Kernel) -> list[np.ndarray]:
    buffers = [b.copy() for b in case.buffers]
    run_kernel(case.function, case.grid, buffers, case.scalars)
    return buffers


def held(array: np.ndarray) -> np.ndarray:
    """As the targets of conftest.py store it."""
    if array.dtype == bool:
        return array.astype(np.uint8)
    return array.view(np.uint16).copy() if array.dtype == np.float16 else array.copy()


def test_control_flow_and_memory_give_the_interpreters_bits(toolchain: Any) -> None:
    cases = [make() for make in KERNELS]
    launch = toolchain.compile([legalise(case.function, toolchain.target) for case in cases])
    for case in cases:
        buffers = [held(b) for b in case.buffers]
        types = [a.type.dtype.numpy for a in case.function.regions[0].block.args[len(buffers) :]]  # type: ignore[attr-defined]
        scalars = [
            np.array([s]).astype(t)[0] if t != np.uint64 else np.uint64(s)
            for s, t in zip(case.scalars, types, strict=True)
        ]
        launch(case.name, case.grid, buffers, scalars)
        for number, (got, expected) in enumerate(zip(buffers, expected_of(case), strict=True)):
            np.testing.assert_array_equal(got, held(expected), err_msg=f"{case.name}, buffer {number}")


def _converted(array: np.ndarray, target: Target) -> np.ndarray:
    return array.astype(target.storage_of(dt.from_numpy(array.dtype)).numpy)


@pytest.mark.parametrize(
    "make", [swapping_loop, branches, private_memory, grid_of_blocks], ids=lambda make: make.__name__
)
def test_wgsl_gives_the_interpreters_bits(wgsl: Any, make: Callable[[], Kernel]) -> None:
    case = make()
    buffers = [_converted(b, wgsl.target) for b in case.buffers]
    launch = wgsl.compile([legalise(case.function, wgsl.target)])
    launch(case.name, case.grid, buffers, [np.int32(s) for s in case.scalars])
    for number, (got, expected) in enumerate(zip(buffers, expected_of(case), strict=True)):
        np.testing.assert_array_equal(got, _converted(expected, wgsl.target), err_msg=f"{case.name}, buffer {number}")


def test_wgsl_gives_the_bits_of_literals_loops_and_names(wgsl: Any) -> None:
    """Constants that are hard to spell, counters near the end of the range, parameters called as reserved words."""
    floats = [0.1, -0.0, 1e-45, 3.4028235e38, np.inf, -np.inf, np.nan, 1 / 3, 16777217.0, 1e6, 2.0**-126]
    names = {"float": dt.float32, "if": dt.int32, "override": dt.uint32, "v1": dt.int32}
    b = builder("spelled", {"f": (dt.float32, "write"), "i": (dt.int32, "write")}, names)
    f, i, given, high, low, step = b.arguments.values()
    for place, value in enumerate(floats):
        b.store(f, b.i(place), b.const(value, dt.float32))
    b.store(f, b.i(len(floats)), given)
    for place, value in enumerate([-(2**31), 2**31 - 1, -1]):
        b.store(i, b.i(place), b.const(value, dt.int32))
    # constants alone: what overflows when it is computed wraps, or is infinite
    b.store(f, b.i(12), b.mul(b.const(3e38, dt.float32), b.const(10.0, dt.float32)))
    b.store(i, b.i(3), b.emit("add", (b.i(2**31 - 1), b.i(1))))
    b.store(i, b.i(4), b.emit("shl", (b.i(3), b.i(31))))
    for place, (first, last, stride) in enumerate(
        [(b.i(2**31 - 20), high, step), (low, b.const(0xFFFFFFFF, dt.uint32), b.const(3, dt.uint32))], 5
    ):
        (count,) = b.loop(first, last, lambda _, c: [b.add(c[0], b.i(1))], [b.i(0)], stride)
        b.store(i, b.i(place), count)
    scalars = [np.float32(1.5), np.int32(2**31 - 1), np.uint32(0xFFFFFFF0), np.int32(7)]
    got = [np.zeros(13, np.float32), np.zeros(7, np.int32)]
    expected = [x.copy() for x in got]
    run_kernel(b.function, (1, 1, 1), expected, scalars)
    wgsl.compile([b.function])("spelled", (1, 1, 1), got, scalars)
    np.testing.assert_array_equal(got[0].view(np.uint32), expected[0].view(np.uint32))
    np.testing.assert_array_equal(got[1], expected[1])


def test_wgsl_keeps_rounding_from_being_optimised_away(wgsl: Any) -> None:
    """(x + c) - c rounds x, x - x is NaN for infinities, 0 * x is -0 or NaN, x + 0 is 0 for -0."""
    b = builder("rounded", {"x": (dt.float32, READ), "o": (dt.float32, "write")}, {})
    x, o = b.arguments.values()
    magic, zero = b.const(12582912.0, dt.float32), b.const(0.0, dt.float32)

    def body(place: Value, _: list[Value]) -> list[Value]:
        value = b.load(x, place)
        results = [
            b.sub(b.add(value, magic), magic), b.sub(value, value), b.emit("mul", (zero, value)),
            b.emit("add", (value, zero)), b.sub(b.mul(value, value), b.mul(value, b.add(value, zero))),
        ]  # fmt: skip
        for number, result in enumerate(results):
            b.store(o, b.add(b.mul(place, b.i(5)), b.i(number)), result)
        return []

    b.loop(b.i(0), b.i(6), body)
    values = np.array([1.4, -0.0, np.inf, np.nan, -3.7, 1e-40], np.float32)
    got, expected = np.zeros(30, np.float32), np.zeros(30, np.float32)
    run_kernel(b.function, (1, 1, 1), [values, expected], [])
    wgsl.compile([b.function])("rounded", (1, 1, 1), [values, got], [])
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got)[:6], np.signbit(expected)[:6])


def test_a_language_without_vector_operators_works_lane_by_lane(c99: Any) -> None:
    """What a dialect's table may leave empty: vector loads, stores and operators."""
    plain = replace(C99, language="c99_plain", load="", store="", vector_operators=False, unroll="")
    register(plain.language, lambda: CRenderer(plain))
    case = vectors_anywhere()
    buffers = [held(b) for b in case.buffers]
    launch = c99.compile([case.function], replace(c99.target, language=plain.language))
    launch(case.name, case.grid, buffers, [np.int32(s) for s in case.scalars])
    np.testing.assert_array_equal(buffers[1], expected_of(case)[1])


def tree_reduction(threads: tuple[int, int, int]) -> Operation:
    """Sums of squares by block: threads load, then halve the number of partial sums between barriers."""
    size = threads[0] * threads[1]
    b = builder("tree", {"x": (dt.float32, READ), "o": (dt.float32, "write")}, {"n": dt.int32}, block=threads)
    x, o, n = b.arguments.values()
    thread = b.add(b.mul(b.position("thread_id", 1), b.i(threads[0])), b.position("thread_id", 0))
    place = b.add(b.mul(b.position("block_id", 0), b.i(size)), thread)
    partial = b.local(dt.float32, size)
    value = b.branch(b.lt(place, n), lambda: [b.load(x, place)], lambda: [b.const(0.0, dt.float32)])[0]
    b.store(partial, thread, b.mul(value, value))

    def halve(level: Value, _: list[Value]) -> list[Value]:
        width = b.emit("shr", (b.i(size // 2), level))
        b.barrier()

        def fold() -> list[Value]:
            b.store(partial, thread, b.add(b.load(partial, thread), b.load(partial, b.add(thread, width))))
            return []

        b.branch(b.lt(thread, width), fold)
        return []

    b.loop(b.i(0), b.i(size.bit_length() - 1), halve)

    def write() -> list[Value]:
        count = b.raw_convert(b.position("block_count", 0), dt.float32)
        b.store(o, b.position("block_id", 0), b.add(b.load(partial, b.i(0)), count))
        return []

    b.branch(b.eq(thread, b.i(0)), write)
    return b.function


@pytest.mark.parametrize("language", ["opencl", "wgsl"])
def test_barriers_in_a_tree_reduction(request: pytest.FixtureRequest, language: str) -> None:
    toolchain = request.getfixturevalue(language)
    function = tree_reduction((8, 4, 1))
    x = np.random.default_rng(3).standard_normal(90).astype(np.float32)
    expected = np.zeros(3, np.float32)
    run_kernel(function, (3, 1, 1), [x, expected], {"n": 90})
    squares = np.append(x * x, np.zeros(6, np.float32)).reshape(3, 32)
    while squares.shape[1] > 1:
        squares = squares[:, : squares.shape[1] // 2] + squares[:, squares.shape[1] // 2 :]
    np.testing.assert_array_equal(expected, squares[:, 0] + 3)
    got = np.zeros(3, np.float32)
    toolchain.compile([legalise(function, toolchain.target)])("tree", (3, 1, 1), [x, got], [np.int32(90)])
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("language", ["c99", "llvm"])
def test_threads_are_refused_where_blocks_are_functions(language: str) -> None:
    function = tree_reduction((8, 1, 1))
    with pytest.raises(UnsupportedError, match=r"one thread a block, not \(8, 1, 1\)"):
        renderer(language).render([function], Target(language))


@pytest.mark.parametrize("language", ["c99", "llvm"])
def test_block_count_is_refused_where_the_grid_is_unknown(language: str) -> None:
    b = builder("count", {"o": (dt.int32, "write")}, {})
    b.store(b.arguments["o"], b.i(0), b.position("block_count", 0))
    with pytest.raises(UnsupportedError, match="pass it as a scalar"):
        renderer(language).render([b.function], Target(language))


def test_a_buffer_may_be_bound_twice_for_reading(toolchain: Any) -> None:
    b = builder("twice", {"x": (dt.float32, READ), "y": (dt.float32, READ), "o": (dt.float32, "write")}, {})
    x, y, o = b.arguments.values()
    b.loop(b.i(0), b.i(64), lambda i, _: (b.store(o, i, b.add(b.load(x, i), b.load(y, b.sub(b.i(63), i)))), [])[1])
    values, got = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    toolchain.compile([b.function])("twice", (1, 1, 1), [values, values, got], [])
    np.testing.assert_array_equal(got, 63)
