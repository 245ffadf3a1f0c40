"""Named cases of numerics: NaN, subnormals, long sums of narrow floats, and the edges of integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ir import TensorType, Value
from oarlock.ops import RECORDS, ArrayBuilder
from oarlock.runtime import Device, from_numpy
from oarlock.runtime.execute import plan_for
from oarlock_conformance.case import Failure, Options
from oarlock_conformance.cases.operators.build import build_function
from oarlock_conformance.cases.operators.named import compute, expect, named

__all__: list[str] = []

Array = npt.NDArray[Any]
_FLOATS = (dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.float64)
_INTEGERS = tuple(dtype for dtype in dtypes.ALL if dtype.is_integer)
_LENGTHS = {True: (3, 8, 1000), False: (3, 4, 8, 33, 1000, 5000)}
_NAN, _INF = float("nan"), float("inf")
_PATTERNS = ((3, _NAN, 1, 5), (1, 2, _NAN), (_INF, _NAN, -_INF), (_NAN,), (2, 1, 3), (-_INF, _INF), (_NAN, 1, _NAN))


def _rows(length: int, dtype: DType) -> Array:
    """A row of ``length`` per pattern, repeated; and rows whose only NaN is the first, the middle or the last."""
    rows = [np.resize(np.array(pattern, np.float64), length) for pattern in _PATTERNS]
    for place in (0, length // 2, length - 1):
        row = np.arange(length) % 61 - 30.0
        row[place] = _NAN
        rows.append(row)
    return np.array(rows).astype(dtype.numpy)


def _extreme(device: Device, options: Options, dtype: DType, name: str) -> None:
    """Whole, by rows and by columns, for every length; values and positions agree with NumPy's, which count NaN."""
    index = name.startswith("arg")
    function = getattr(np, name.removeprefix("reduce_"))
    data = [_rows(length, dtype) for length in _LENGTHS[options.quick]]
    flat = [x.reshape(-1) for x in data]

    def one(b: ArrayBuilder, x: Value, axis: int) -> Value:
        return b(name, x, axis=axis, dtype=dtypes.int32) if index else b(name, x, axes=(axis,))

    def body(b: ArrayBuilder, *values: Value) -> list[Value]:
        matrices, rows = values[: len(data)], values[len(data) :]
        by_axis = [one(b, x, axis) for x in matrices for axis in (0, 1)]
        return by_axis + [one(b, x, 0) for x in rows]

    found = iter(compute(device, [*data, *flat], body))
    for x in data:
        for axis in (0, 1):
            wide = x.astype(np.float64)
            expect(f"{name} of {dtype} {x.shape} along axis {axis}", next(found), function(wide, axis=axis))
    for x in flat:
        expect(f"{name} of {dtype} {x.shape}", next(found), function(x.astype(np.float64)))


def _register_extremes() -> None:
    for name in ("reduce_max", "reduce_min", "argmax", "argmin"):
        text = "NaN wins, wherever it stands; its position is the first one's; values and positions agree"
        mark = named(f"nan.{name}", text, over=_FLOATS, quick=_FLOATS[:2])
        mark(lambda device, options, dtype, name=name: _extreme(device, options, dtype, name))


_register_extremes()


@named("nan.sort", "NaN is sorted last, in whatever place it stood", over=_FLOATS, quick=_FLOATS[:1])
def nan_sort(device: Device, options: Options, dtype: DType) -> None:
    data = [_rows(length, dtype) for length in _LENGTHS[options.quick]]
    found = compute(device, data, lambda b, *xs: [b.many("sort", x, axis=1, descending=False)[0] for x in xs])
    for x, got in zip(data, found, strict=True):
        expect(f"sort of {dtype} {x.shape}", got, np.sort(x.astype(np.float64), axis=1))


@named("draws.long", "random bits do not repeat: every word of a long draw is that of its own counter")
def draws_long(device: Device, options: Options) -> None:
    given = (np.array([1, 2], np.uint32), np.array([0xFFFFFFFE, 7], np.uint32))
    shape = (4099,)
    (found,) = compute(device, list(given), lambda b, key, counter: [b("random_bits", key, counter, shape=shape)])
    (wanted,) = RECORDS["random_bits"].reference(given, {"shape": shape})
    expect("4,099 words, past the end of the counter's lower half", found, wanted)


@named("nan.pairs", "maximum and minimum give NaN where either operand is NaN", over=_FLOATS, quick=_FLOATS[:2])
def nan_pairs(device: Device, options: Options, dtype: DType) -> None:
    x = np.concatenate([_rows(length, dtype).reshape(-1) for length in _LENGTHS[options.quick]])
    y = np.roll(x, 1)
    high, low = compute(device, [x, y], lambda b, x, y: [b("maximum", x, y), b("minimum", x, y)])
    expect(f"maximum of {dtype}", high, np.maximum(x.astype(np.float64), y.astype(np.float64)))
    expect(f"minimum of {dtype}", low, np.minimum(x.astype(np.float64), y.astype(np.float64)))


@named(
    "sum.float16_beyond_its_range",
    "float16 sums accumulate in float32: 4 x 32000 - 4 x 32000 is 0",
    stores=(dtypes.float16,),
)
def sum_overflow(device: Device, options: Options) -> None:
    x = np.array([32000.0] * 4 + [-32000.0] * 4, np.float16)
    rows = np.tile(x, (3, 1))
    results = compute(
        device,
        [x, rows, np.ascontiguousarray(rows.T)],
        lambda b, x, r, c: [
            b("reduce_sum", x, axes=(0,)),
            b("reduce_sum", r, axes=(1,)),
            b("reduce_sum", c, axes=(0,)),
            b("mean", x, axes=(0,)),
        ],
    )
    for got, want in zip(results, (np.zeros(()), np.zeros(3), np.zeros(3), np.zeros(())), strict=True):
        expect("the sum of 4 x 32000 and 4 x -32000 in float16", got, want)


@named(
    "sum.integers",
    "sums and products of integers wrap at the width of their dtype, and nowhere before",
    over=_INTEGERS,
    quick=(dtypes.int8, dtypes.int32, dtypes.uint32, dtypes.int64),
)
def integer_sums(device: Device, options: Options, dtype: DType) -> None:
    span = np.iinfo(dtype.numpy)
    x = np.random.default_rng(options.seed).integers(span.min, span.max, (7, 300), dtype.numpy, endpoint=True)
    x[0] = span.max // 300  # nearly as much as the dtype holds, without wrapping
    directions = ((1,), (0,), (0, 1))

    def body(b: ArrayBuilder, x: Value) -> list[Value]:
        return [b(name, x, axes=axes) for axes in directions for name in ("reduce_sum", "reduce_prod")]

    found = iter(compute(device, [x], body))
    for axes in directions:
        expect(f"sums of {dtype} along {axes}", next(found), np.add.reduce(x, axes, dtype.numpy))
        expect(f"products of {dtype} along {axes}", next(found), np.multiply.reduce(x, axes, dtype.numpy))


@named("sum.float16_ones", "the mean of 100,000 ones in float16 is 1", stores=(dtypes.float16,))
def mean_of_ones(device: Device, options: Options) -> None:
    (got,) = compute(device, [np.ones(100_000, np.float16)], lambda b, x: [b("mean", x, axes=(0,))])
    expect("the mean of 100,000 float16 ones", got, np.ones(()))


@named("sum.bfloat16_ones", "70,000 ones in bfloat16 sum to 70,000 rounded once", stores=(dtypes.bfloat16,))
def sum_of_ones(device: Device, options: Options) -> None:
    x = np.ones(70_000, dtypes.bfloat16.numpy)
    (got,) = compute(device, [x], lambda b, x: [b("reduce_sum", x, axes=(0,))])
    expect("the sum of 70,000 bfloat16 ones", got, np.asarray(70_000.0).astype(dtypes.bfloat16.numpy))


@named(
    "subnormal.sum",
    "subnormals are kept, or flushed to zero where the device declares it, between operators too: 8 x 1.174e-38 is "
    "a normal number",
    over=(dtypes.float32,),
)
def subnormal_sum(device: Device, options: Options, dtype: DType) -> None:
    x = np.full(8, 1.174e-38, np.float32)
    total, chain = compute(
        device,
        [x],
        lambda b, x: [
            b("reduce_sum", x, axes=(0,)),
            b("multiply", b("multiply", x, b.full(0.25, x)), b.full(64.0, x)),
        ],
    )
    may_flush = dtype.name in device.target.flush_to_zero
    for what, got, want in (("8 x 1.174e-38 summed", total, 8.0), ("1.174e-38 / 4 * 64", chain[0], 16.0)):
        exact = float(np.float32(1.174e-38)) * want
        if abs(float(got) - exact) > 1e-5 * exact and not (may_flush and float(got) == 0.0):
            declared = "declares" if may_flush else "does not declare"
            raise Failure(f"{what}: {got}, expected {exact:.4g}; the device {declared} flush_to_zero for {dtype}")


@named(
    "rounding.product_sum",
    "a product and the sum or difference after it are rounded one by one, fused or not: x * y - round(x * y) is 0",
    over=_FLOATS,
    quick=_FLOATS[:2],
)
def product_sum(device: Device, options: Options, dtype: DType) -> None:
    random = np.random.default_rng(options.seed)
    x, y, other = (random.uniform(1, 2, 515).astype(dtype.numpy) for _ in range(3))
    for what, z in (("round(x * y)", x * y), ("a number", other)):
        found = compute(
            device,
            [x, y, z],
            lambda b, x, y, z: [
                b("subtract", b("multiply", x, y), z),
                b("subtract", z, b("multiply", x, y)),
                b("add", b("multiply", x, y), b("negative", z)),
            ],
        )
        for form, got, want in zip(
            ("x * y - z", "z - x * y", "x * y + -z"), found, (x * y - z, z - x * y, x * y + -z), strict=True
        ):
            expect(f"{form} of {dtype}, z being {what}", got, want)


@named("bool.bytes", "true is 1 in memory and false is 0, whatever operator stored it: other readers see the bytes")
def bool_bytes(device: Device, options: Options) -> None:
    x, y = np.resize(np.arange(5, dtype=np.float32) - 2, 195).reshape(39, 5), np.zeros((39, 5), np.float32)
    types = [TensorType(dtypes.float32, x.shape)] * 2
    wanted = {
        "less": x < y, "not_equal": x != y, "convert": x != 0, "logical_not": x >= y, "reduce_max": (x < y).any(1),
        "transpose": (x < y).T,
    }  # fmt: skip

    def body(b: ArrayBuilder, x: Value, y: Value) -> list[Value]:
        less = b("less", x, y)
        return [
            less, b("not_equal", x, y), b("convert", x, dtype=dtypes.bool_), b("logical_not", less),
            b("reduce_max", less, axes=(1,)), b("transpose", less, permutation=(1, 0)),
        ]  # fmt: skip

    results = plan_for(build_function(types, body, "bools"), device).run([from_numpy(v, device) for v in (x, y)])
    for (name, want), result in zip(wanted.items(), results, strict=True):
        raw = np.empty(result.nbytes, np.uint8)
        device.copy_out(raw, result.buffer, result.offset_bytes)
        device.synchronize()
        kind = dtypes.uint8 if result.storage == dtypes.bool_ else result.storage
        expect(f"what {name} stored", raw.view(kind.numpy).reshape(want.shape), want.astype(kind.numpy))


# --- integers: against Python's whole numbers, which know no width ---


def _edges(dtype: DType) -> list[int]:
    low, high = (int(limit) for limit in (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max))
    wanted = {low, low + 1, -129, -7, -2, -1, 0, 1, 2, 3, 7, 31, 32, 63, 64, 255, high // 2, high - 1, high}
    return sorted(v for v in wanted | {dtype.bits - 1, dtype.bits} if low <= v <= high)


def _wrapped(value: int, dtype: DType) -> int:
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.is_signed and value >> (dtype.bits - 1) else value


def _power(x: int, y: int) -> int:
    if y < 0:
        return {1: 1, -1: 1 if y % 2 == 0 else -1}.get(x, 0)
    return pow(x, y, 1 << 64)


def _shift(x: int, y: int, dtype: DType, left: bool) -> int:
    if not 0 <= y < dtype.bits:
        return 0 if left or x >= 0 else -1
    return x << y if left else x >> y


def _integer_rules(dtype: DType) -> dict[str, Any]:
    return {
        "add": lambda x, y: x + y,
        "subtract": lambda x, y: x - y,
        "multiply": lambda x, y: x * y,
        "floor_divide": lambda x, y: x // y if y else 0,
        "remainder": lambda x, y: x % y if y else 0,
        "power": _power,
        "left_shift": lambda x, y: _shift(x, y, dtype, left=True),
        "right_shift": lambda x, y: _shift(x, y, dtype, left=False),
        "maximum": max,
        "minimum": min,
        "less": lambda x, y: x < y,
    }


@named(
    "edges.integer",
    "integers wrap; division by zero gives 0; shifts past the width give 0, or the sign; negative powers give 0",
    over=_INTEGERS,
    quick=(dtypes.uint8, dtypes.int32, dtypes.int64),
)
def integer_edges(device: Device, options: Options, dtype: DType) -> None:
    pairs = [(x, y) for x in _edges(dtype) for y in _edges(dtype)]
    columns = [np.array(column, object).astype(dtype.numpy) for column in zip(*pairs, strict=True)]
    rules = _integer_rules(dtype)
    unary = {"negative": lambda x: -x, "abs": abs, "bitwise_invert": lambda x: ~x}

    def body(b: ArrayBuilder, x: Value, y: Value) -> list[Value]:
        return [b(name, x, y) for name in rules] + [b(name, x) for name in unary]

    found = compute(device, columns, body)
    for name, got in zip((*rules, *unary), found, strict=True):
        for (x, y), value in zip(pairs, got.tolist(), strict=True):
            exact = rules[name](x, y) if name in rules else unary[name](x)
            want = exact if isinstance(exact, bool) else _wrapped(exact, dtype)
            if value != want:
                given = f"{x}, {y}" if name in rules else f"{x}"
                raise Failure(f"{name}({given}) of {dtype} is {value}, expected {want}")


def _float_edges(dtype: DType) -> Array:
    """Numbers beside every power of two at which an integer type ends."""
    ends = [0.0, 0.5, 1.0, *(2.0**k for k in (7, 8, 15, 16, 24, 31, 32, 53, 63, 64, 100))]
    exact = np.array([s * (e + d) for e in ends for d in (-1, -0.5, 0, 0.5, 1) for s in (1, -1)])
    near = exact.astype(dtype.numpy)
    beside = [np.nextafter(near, np.array(to, dtype.numpy)) for to in (-_INF, _INF)]
    return np.unique(np.concatenate([near, *beside, np.array([_NAN, _INF, -_INF], dtype.numpy)]))


def _converted(value: float, target: DType) -> int:
    if value != value:
        return 0
    low, high = int(np.iinfo(target.numpy).min), int(np.iinfo(target.numpy).max)
    return low if value <= low else high if value >= high else int(value)


@named(
    "edges.convert",
    "floats become integers by truncation and saturation, NaN becomes 0, anything but zero becomes True",
    over=_FLOATS,
    quick=(dtypes.float32, dtypes.float16),
)
def convert_edges(device: Device, options: Options, dtype: DType) -> None:
    x = _float_edges(dtype)
    targets = [target for target in (*_INTEGERS, dtypes.bool_) if device.target.stores(target)]
    found = compute(device, [x], lambda b, x: [b("convert", x, dtype=target) for target in targets])
    values: Sequence[float] = x.astype(np.float64).tolist()
    for target, got in zip(targets, found, strict=True):
        for value, result in zip(values, got.tolist(), strict=True):
            want = value != 0 if target == dtypes.bool_ else _converted(value, target)
            if result != want:
                raise Failure(f"{dtype} {value!r} converted to {target} is {result}, expected {want}")


@named(
    "edges.narrow",
    "float32 and integers round to float16 and bfloat16 once, to nearest even, halfway cases included",
    over=(dtypes.float16, dtypes.bfloat16),
)
def narrow_edges(device: Device, options: Options, dtype: DType) -> None:
    every = np.arange(0, 1 << 16, 1 if not options.quick else 7, dtype=np.uint16).view(dtype.numpy).astype(np.float32)
    finite = np.sort(every[np.isfinite(every)])
    middle = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    x = np.concatenate([every, middle, np.nextafter(middle, np.float32(9e38)), np.nextafter(middle, np.float32(-9e38))])
    whole = np.arange(-70_000, 70_000, 3, dtype=np.int32)
    found = compute(device, [x, whole], lambda b, x, n: [b("convert", x, dtype=dtype), b("convert", n, dtype=dtype)])
    flush = {"float32", dtype.name} & device.target.flush_to_zero
    want = x.astype(dtype.numpy)
    if flush:
        tiny = np.abs(x) < float(np.finfo(np.float32).tiny if dtype == dtypes.bfloat16 else 2.0**-14)
        found[0] = np.where(tiny & (found[0] == 0), want, found[0])
    expect(f"float32 to {dtype}", found[0], want)
    expect(f"int32 to {dtype}", found[1], whole.astype(np.float32).astype(dtype.numpy))
