"""Every kernel operator x dtype x lanes, through the interpreter and every renderer, compared bit by bit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from oarlock import dtypes
from oarlock.codegen.kernel import KERNEL, KernelBuilder
from oarlock.codegen.kernel.interpret import run_kernel
from oarlock.codegen.legalise import legalise
from oarlock.dtypes import DType
from oarlock.errors import DTypeError
from oarlock.ir import BufferType, Operation, Value
from oarlock.target import Target

BINARY = ("add", "sub", "mul", "div", "min", "max", "and", "or", "xor", "eq", "ne", "lt", "le")
UNARY = ("neg", "not", "fabs", "sqrt", "floor", "ceil", "trunc", "rint")
LANES = (1, 4)
WIDE = 256
"""Elements: all pairs of special values, then random ones."""


@dataclass
class Case:
    """All operators on one dtype, as one kernel: operator k's results are elements k * WIDE ... of its buffer."""

    dtype: DType
    lanes: int
    function: Operation
    labels: dict[DType, list[str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.function.attributes["name"])


def results_of(
    b: KernelBuilder, x: dict[str, Value], dtype: DType, skip: frozenset[DType], fused: bool
) -> Iterator[tuple[str, Value]]:
    """Every operation that takes ``dtype``: (label, result). ``fused``: float32 has fma."""
    a, c, e = x["x"], x["y"], x["z"]
    for kind, operands in (*((k, (a, c)) for k in BINARY), *((k, (a,)) for k in UNARY), ("fma", (a, c, e))):
        if kind == "fma" and dtype == dtypes.bfloat16 and dtypes.float64 in skip:
            continue  # refused: test_legalise.py
        if kind == "fma" and dtype == dtypes.float32 and not fused:
            continue
        try:
            yield kind, b.emit(kind, operands)
        except DTypeError:
            assert not _takes(kind, dtype), f"{kind} refuses {dtype}"
    yield "select", b.select(x["flag"], a, c)
    if dtype.is_integer:
        for kind in ("quot", "rem"):
            yield kind, b.emit(kind, (a, x["divisor"]))
        for kind in ("shl", "shr"):
            yield kind, b.emit(kind, (a, x["count"]))
            yield f"total_{kind}", b.total_shift(kind, a, c)
        yield from zip(("total_quot", "total_rem"), b.total_quot_rem(a, c), strict=True)
    if dtype.is_float:
        yield "is_nan", b.is_nan(a)
    for other in dtypes.ALL:
        if other not in skip:
            yield f"convert to {other}", b.convert(a, other)
            same_width = other.bits == dtype.bits and dtypes.bool_ not in (other, dtype)
            if same_width and other != dtype:
                yield f"bitcast to {other}", b.bitcast(a, other)


def _takes(kind: str, dtype: DType) -> bool:
    if kind in ("fma", "div", *UNARY[2:]):
        return dtype.is_float
    if kind in ("min", "max"):
        return dtype.is_integer
    if kind in ("and", "or", "xor", "not"):
        return not dtype.is_float
    return dtype.kind != "bool" or kind in ("eq", "ne", "lt", "le")


def build(dtype: DType, lanes: int, skip: frozenset[DType] = frozenset(), fused: bool = True) -> Case:
    inputs = {"x": dtype, "y": dtype, "z": dtype, "flag": dtypes.bool_}
    if dtype.is_integer:
        inputs |= {"divisor": dtype, "count": dtype}
    outputs = {f"out_{d}": d for d in dtypes.ALL if d not in skip}
    buffers = [(n, BufferType(d, "global", "read")) for n, d in inputs.items()]
    buffers += [(n, BufferType(d, "global", "write")) for n, d in outputs.items()]
    b = KernelBuilder(f"all_{dtype}_x{lanes}", buffers, [("n", dtypes.int32)])
    case = Case(dtype, lanes, b.function)

    def body(index: Value, carried: list[Value]) -> list[Value]:
        loaded = {n: b.load(b.arguments[n], index, lanes) for n in inputs}
        b.prefetch(b.arguments["x"], b.add(index, b.i(WIDE)))  # far past the end, which is no error
        operations = list(results_of(b, loaded, dtype, skip, fused))
        scalar = b.load(b.arguments["y"], index)
        if lanes > 1:
            operations.append(("splat", b.splat(scalar, lanes)))
            operations.append(("ramp", b.ramp(index, lanes)))
            operations.append(("extract", b.splat(b.emit("extract", (loaded["x"],), {"index": lanes - 1}), lanes)))
        for label, value in operations:
            result = value.type.dtype  # type: ignore[attr-defined]
            labels = case.labels.setdefault(result, [])
            place = b.add(index, b.i(len(labels) * WIDE))
            b.store(b.arguments[f"out_{result}"], place, value)
            labels.append(label)
        return []

    b.loop(b.i(0), b.arguments["n"], body, (), b.i(lanes))
    return case


def specials(dtype: DType) -> np.ndarray:
    """Values where things go wrong: zeros, ends of the range, subnormals, ties, infinities, NaN."""
    if dtype == dtypes.bool_:
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        values = {0, 1, 2, 3, 5, info.max, info.max - 1, info.min, info.min + 1, info.max // 2 + 1, dtype.bits, 7}
        return np.array(sorted(values | ({-1, -2, -5} if dtype.kind == "int" else set())), dtype.numpy)
    info = ml_dtypes.finfo(dtype.numpy)
    values = [0.0, 1.0, -1.0, 0.5, 1.5, -2.5, float(info.max), float(info.tiny), float(info.smallest_subnormal)]
    values += [-float(info.smallest_subnormal) * 3, 1 + float(info.eps), np.inf, -np.inf, np.nan, -0.0, 300.75]
    return np.array(values, np.float64).astype(dtype.numpy)


def inputs_of(dtype: DType) -> dict[str, np.ndarray]:
    """Operands: pairs of special values, then random bits; divisors and counts that the preconditions allow."""
    random = np.random.default_rng(dtypes.ALL.index(dtype))

    def noise(count: int) -> np.ndarray:
        if dtype == dtypes.bool_:
            return random.integers(0, 2, count).astype(bool)
        bits = random.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype.numpy)
        near = np.clip(random.standard_normal(count) * 40, -120, 120).astype(dtype.numpy) if dtype.is_signed else bits
        return np.where(random.integers(0, 2, count) == 0, bits, near)

    pairs = random.permutation(list(itertools.product(specials(dtype), repeat=2)))[: WIDE * 3 // 4]
    pairs = np.array(list(map(tuple, pairs)), dtype.numpy).reshape(-1, 2)
    x, y, z = (np.concatenate([p, noise(WIDE - len(p))]) for p in (pairs[:, 0], pairs[:, 1], pairs[::-1, 0]))
    found = {"x": x, "y": y, "z": z, "flag": random.integers(0, 2, WIDE).astype(bool)}
    if dtype.is_integer:
        excluded = (y == 0) | ((y == np.array(-1).astype(dtype.numpy)) & (dtype.kind == "int"))
        found["divisor"] = np.where(excluded, np.array(3, dtype.numpy), y)
        found["count"] = (y.astype(np.uint64) % np.uint64(dtype.bits)).astype(dtype.numpy)
    return found


def outputs_of(case: Case, skip: frozenset[DType] = frozenset()) -> dict[DType, np.ndarray]:
    return {d: np.zeros(len(case.labels.get(d, [0])) * WIDE, d.numpy) for d in dtypes.ALL if d not in skip}


def stored(array: np.ndarray, physical: DType) -> np.ndarray:
    """What the host hands to a target that holds the values as ``physical``."""
    dtype = dtypes.from_numpy(array.dtype)
    if dtype == physical:
        return array.copy()
    if dtype.is_float and not physical.is_float:
        return array.view(physical.numpy).copy()
    return array.astype(physical.numpy)


def restored(array: np.ndarray, dtype: DType) -> np.ndarray:
    physical = dtypes.from_numpy(array.dtype)
    if dtype.is_float and not physical.is_float:
        return array.view(dtype.numpy)
    with np.errstate(invalid="ignore", over="ignore"):
        return array.astype(dtype.numpy)


def assert_same(case: Case, got: dict[DType, np.ndarray], expected: dict[DType, np.ndarray]) -> None:
    """Bits are equal; any NaN equals any other."""
    wrong: list[str] = []
    for dtype, labels in case.labels.items():
        a, b = got[dtype], expected[dtype][: len(got[dtype])]
        assert a.dtype == b.dtype, f"{case.name}: {dtype}"
        equal = a.view(f"u{dtype.itemsize}") == b.view(f"u{dtype.itemsize}")
        if dtype.is_float:
            with np.errstate(invalid="ignore"):
                equal |= np.isnan(a) & np.isnan(b)
        for k, label in enumerate(labels):
            right = equal[k * WIDE : (k + 1) * WIDE]
            if label.startswith("bitcast") and case.dtype.is_float and case.dtype.bits == 16:
                right |= np.isnan(inputs_of(case.dtype)["x"])  # emulation keeps no payload
            bad = np.flatnonzero(~right)
            if len(bad):
                i = int(bad[0])
                x = {n: v[i] for n, v in inputs_of(case.dtype).items()}
                wrong.append(f"{label}: {len(bad)} wrong, first {a[k * WIDE + i]!r} not {b[k * WIDE + i]!r} for {x}")
    assert not wrong, f"{case.name}:\n" + "\n".join(wrong)


def oracle(
    dtype: DType, skip: frozenset[DType] = frozenset(), lanes: int = max(LANES), fused: bool = True
) -> dict[DType, np.ndarray]:
    """The interpreter's results; those of lanes = 1 are the same, less the operations that only vectors have."""
    case = build(dtype, lanes, skip, fused)
    outputs = outputs_of(case, skip)
    run_kernel(case.function, (1, 1, 1), [*inputs_of(dtype).values(), *outputs.values()], {"n": WIDE})
    return outputs


def check(
    case: Case, launch: Any, target: Target, expected: dict[DType, np.ndarray], skip: frozenset[DType] = frozenset()
) -> None:
    arrays = [*inputs_of(case.dtype).values(), *outputs_of(case, skip).values()]
    physical = [_physical(target, dtypes.from_numpy(a.dtype)) for a in arrays]
    buffers = [stored(a, p) for a, p in zip(arrays, physical, strict=True)]
    launch(case.name, (1, 1, 1), buffers, [np.int32(WIDE)])
    count = len(inputs_of(case.dtype))
    got = {d: restored(b, d) for d, b in zip(outputs_of(case, skip), buffers[count:], strict=True)}
    assert_same(case, got, {d: v for d, v in expected.items() if d in case.labels})


def _physical(target: Target, dtype: DType) -> DType:
    held = target.storage_of(dtype)
    return dtypes.uint8 if held == dtypes.bool_ else held


def test_every_operator_is_covered() -> None:
    tried = {
        "constant",
        "select",
        "splat",
        "ramp",
        "extract",
        "load",
        "store",
        "prefetch",
        "for",
        "yield",
        "convert",
        "bitcast",
        "function",
    }
    tried |= {*BINARY, *UNARY, "fma", "quot", "rem", "shl", "shr"}
    control = {"if", "barrier", "local", "private", "block_id", "thread_id", "block_count"}  # test_control.py
    together = {"shuffle", "matrix_fma", "matrix_store"}  # ../kernel/test_together.py, and the adapters that have them
    assert {f"kernel.{name}" for name in tried | control | together} == set(KERNEL.operations)


@pytest.fixture(scope="module")
def expected() -> dict[DType, dict[DType, np.ndarray]]:
    return {dtype: oracle(dtype) for dtype in dtypes.ALL}


def test_every_operator_gives_the_interpreters_bits(toolchain: Any, expected: Any) -> None:
    cases = [build(dtype, lanes) for dtype in dtypes.ALL for lanes in LANES]
    launch = toolchain.compile([legalise(case.function, toolchain.target) for case in cases])
    for case in cases:
        check(case, launch, toolchain.target, expected[case.dtype])


TIGHT = Target(
    "c99",
    "tight",
    storage=(
        ("bool", "int32"), ("int8", "int32"), ("int16", "int32"), ("uint8", "uint32"), ("uint16", "uint32"),
        ("float16", "float32"), ("bfloat16", "float32"),
    ),
)  # fmt: skip
"""Nothing but 32 bits."""
WIDER = frozenset({dtypes.int64, dtypes.uint64, dtypes.float64})
NARROW = [dtype for dtype in dtypes.ALL if dtype not in WIDER]


def test_a_target_of_32_bits_gives_the_same_bits(c99: Any) -> None:
    cases = [build(dtype, 1, WIDER) for dtype in NARROW]
    launch = c99.compile([legalise(case.function, TIGHT) for case in cases], TIGHT)
    for case in cases:
        check(case, launch, TIGHT, oracle(case.dtype, WIDER), WIDER)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_wgsl_gives_the_interpreters_bits(wgsl: Any, dtype: DType) -> None:
    case = build(dtype, 1, WIDER, fused=False)  # WGSL's fma may round twice
    launch = wgsl.compile([legalise(case.function, wgsl.target)])
    check(case, launch, wgsl.target, oracle(dtype, WIDER, fused=False), WIDER)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_a_legalised_kernel_is_interpreted_to_the_same_bits(dtype: DType) -> None:
    case = build(dtype, WIDE // 2, WIDER)
    function = legalise(case.function, TIGHT)

    def launch(name: str, grid: tuple[int, int, int], buffers: list[np.ndarray], scalars: list[np.generic]) -> None:
        run_kernel(function, grid, buffers, scalars)

    check(case, launch, TIGHT, oracle(dtype, WIDER, WIDE // 2), WIDER)


def test_lanes_do_not_change_what_the_interpreter_gives() -> None:
    case = build(dtypes.bfloat16, 1)
    outputs = outputs_of(case)
    run_kernel(case.function, (1, 1, 1), [*inputs_of(case.dtype).values(), *outputs.values()], [WIDE])
    assert_same(case, outputs, oracle(case.dtype))
