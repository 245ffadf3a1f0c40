"""Named cases of views and copies: strided, turned and offset operands, empty shapes, and what lies beside a result."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ir import Value
from oarlock.ops import ArrayBuilder
from oarlock.ops.build import expand_dims
from oarlock.runtime import Device, DeviceArray, from_numpy, to_numpy
from oarlock_conformance.case import Options
from oarlock_conformance.cases.operators.named import compute, expect, named

__all__: list[str] = []

Array = npt.NDArray[Any]


def _columns(b: ArrayBuilder, x: Value, start: int, stop: int, step: int = 1) -> Value:
    """``x[:, start:stop:step]``."""
    rows = x.type.shape[0]  # type: ignore[union-attr]
    return b("slice", x, starts=(0, start), limits=(rows, stop), steps=(1, step))


@named("view.concat", "operands of a concatenation may be strided and turned: cat(d[:, :2], rot90(d[:, 2:]))")
def concat_of_views(device: Device, options: Options) -> None:
    d = np.arange(8, dtype=np.float32).reshape(2, 4)

    def body(b: ArrayBuilder, d: Value) -> list[Value]:
        turned = b("reverse", b("transpose", _columns(b, d, 2, 4), permutation=(1, 0)), axes=(0,))
        return [b("concat", _columns(b, d, 0, 2), turned, axis=axis) for axis in (0, 1)]

    for axis, got in enumerate(compute(device, [d], body)):
        want = np.concatenate([d[:, :2], np.rot90(d[:, 2:])], axis)
        expect(f"cat(d[:, :2], rot90(d[:, 2:]), axis={axis})", got, want)


@named("view.stack", "operands of a stack may be strided and computed: stack(-x[..., 1::2], x[..., ::2])")
def stack_of_views(device: Device, options: Options) -> None:
    x = np.arange(60, dtype=np.float32).reshape(6, 10)

    def body(b: ArrayBuilder, x: Value) -> list[Value]:
        odd, even = b("negative", _columns(b, x, 1, 10, 2)), _columns(b, x, 0, 10, 2)
        return [b("concat", expand_dims(b, odd, axis), expand_dims(b, even, axis), axis=axis) for axis in (0, 1, 2)]

    for axis, got in enumerate(compute(device, [x], body)):
        expect(f"stack(-x[:, 1::2], x[:, ::2], {axis})", got, np.stack([-x[:, 1::2], x[:, ::2]], axis))


@named("view.host", "a host array with strides is copied as its values are: arange(9).reshape(3, 3)[:, :2]")
def host_view(device: Device, options: Options) -> None:
    whole = np.arange(9, dtype=np.float32).reshape(3, 3)
    for what, view in (
        ("[:, :2]", whole[:, :2]),
        ("[::-1]", whole[::-1]),
        (".T", whole.T),
        ("[:, ::2]", whole[:, ::2]),
    ):
        expect(f"arange(9).reshape(3, 3){what} copied", to_numpy(from_numpy(view, device)), view)
        (got,) = compute(device, [view], lambda b, x: [b("negative", x)])
        expect(f"-(arange(9).reshape(3, 3){what})", got, -view)


@named(
    "view.odd_copy",
    "a copy of a few elements at an odd element leaves its neighbours alone: x[1:2] = y[1:2], within the device and "
    "from and to the host",
    over=(dtypes.bool_, dtypes.uint8, dtypes.float16, dtypes.bfloat16, dtypes.int16),
    quick=(dtypes.bool_, dtypes.uint8, dtypes.float16),
)
def odd_copy(device: Device, options: Options, dtype: DType) -> None:
    x = np.array([0, 1, 0, 1, 1, 0, 1], np.float32).astype(dtype.numpy)
    y = np.array([1, 0, 1, 1, 0, 0, 1], np.float32).astype(dtype.numpy)
    size = device.target.storage_of(dtype).itemsize
    for start in (1, 3):
        for count in (1, 2, 3):
            there, from_ = from_numpy(x, device), from_numpy(y, device)
            device.copy(there.buffer, start * size, from_.buffer, start * size, count * size)
            want = x.copy()
            want[start : start + count] = y[start : start + count]
            what = f"x[{start}:{start + count}] = y[{start}:{start + count}] of {dtype}"
            expect(f"{what} within the device", to_numpy(there), want)
            there = from_numpy(x, device)
            part = to_numpy(DeviceArray(device, from_.buffer, start * size, dtype, (count,)))
            expect(f"y[{start}:{start + count}] of {dtype} copied out", part, y[start : start + count])
            held = from_numpy(part, device)
            device.copy(there.buffer, start * size, held.buffer, 0, count * size)
            expect(f"{what} by way of the host", to_numpy(there), want)


@named("view.rows_apart", "a reduction of rows 0 and 2 of a [4, 4] tensor sums those rows")
def rows_apart(device: Device, options: Options) -> None:
    a = np.arange(16, dtype=np.float32).reshape(4, 4)
    found = compute(
        device,
        [a],
        lambda b, a: [
            b("reduce_sum", b("slice", a, starts=(0, 0), limits=(3, 4), steps=(2, 1)), axes=axes)
            for axes in ((0, 1), (0,), (1,))
        ],
    )
    for axes, got in zip(((0, 1), (0,), (1,)), found, strict=True):
        expect(f"a[::2].sum({axes})", got, a[:3:2].sum(axes))


@named("view.wide_slice", "x[:, 4:50] of a tall tensor is read inside its rows, and nothing is written beside results")
def wide_slice(device: Device, options: Options) -> None:
    rows = 1500 if options.quick else 150_000
    x = np.random.default_rng(options.seed).standard_normal((rows, 464 if options.quick else 64)).astype(np.float32)
    found = compute(
        device,
        [x],
        lambda b, x: [
            b("is_finite", _columns(b, x, 4, 50)),
            b("negative", _columns(b, x, 4, 50)),
            b("reduce_max", _columns(b, x, 4, 50), axes=(1,)),
        ],
    )
    part = x[:, 4:50]
    for what, got, want in zip(
        ("isfinite", "negative", "max"), found, (np.isfinite(part), -part, part.max(1)), strict=True
    ):
        expect(f"{what} of x[:, 4:50]", got, want)


@named("view.offset", "an operand that starts later in its buffer is read from there: f(x[2:]) == f(copy of x[2:])")
def offset(device: Device, options: Options) -> None:
    x = np.random.default_rng(options.seed).standard_normal(97).astype(np.float32)
    names = ("negative", "abs", "sign", "floor", "ceil", "trunc", "round", "square", "relu", "sqrt")

    def body(b: ArrayBuilder, x: Value) -> list[Value]:
        part = b("slice", x, starts=(2,), limits=(97,), steps=(1,))
        return [b(name, part) for name in names] + [b("reduce_sum", part, axes=(0,)), b("reverse", part, axes=(0,))]

    through_view = compute(device, [x], body)
    copied = compute(device, [np.concatenate([x[:2] * 0, x[2:]])], body)  # what lies before must not matter
    for name, got, want in zip((*names, "reduce_sum", "reverse"), through_view, copied, strict=True):
        expect(f"{name}(x[2:])", got, want)


# --- empty ---


@named("empty.reductions", "reductions of nothing give their identity: count_nonzero of (0, 2, 2), all and any of []")
def empty_reductions(device: Device, options: Options) -> None:
    x, nothing = np.zeros((0, 2, 2), np.float32), np.zeros(0, np.bool_)

    def body(b: ArrayBuilder, x: Value, t: Value) -> list[Value]:
        count = b("convert", b("not_equal", x, b.full(0, x)), dtype=dtypes.int32)
        return [
            b("reduce_sum", count, axes=(0, 1, 2)),
            b("reduce_sum", count, axes=(0,)),
            b("reduce_min", t, axes=(0,)),
            b("reduce_max", t, axes=(0,)),
            b("reduce_prod", x, axes=(0,)),
            b("reduce_max", x, axes=(0, 1)),
        ]

    wanted = (0, np.zeros((2, 2)), True, False, np.ones((2, 2)), np.full(2, -np.inf))
    for number, (got, want) in enumerate(zip(compute(device, [x, nothing], body), wanted, strict=True)):
        expect(f"reduction {number} of nothing", got, want)


@named(
    "empty.products",
    "products over or of nothing: (0, 9) @ (9,), linear of (3, 4, 0) with (5, 0) and (5,), baddbmm of (2, 0, 1), the "
    "dot of two empties",
)
def empty_products(device: Device, options: Options) -> None:
    f = np.float32
    operands = [
        np.ones((0, 9), f), np.ones(9, f), np.ones((3, 4, 0), f), np.ones((5, 0), f), np.arange(5, dtype=f),
        np.ones((2, 0, 1), f), np.ones((2, 0, 3), f), np.ones((2, 3, 1), f), np.ones(0, f),
    ]  # fmt: skip

    def body(b: ArrayBuilder, *v: Value) -> list[Value]:
        linear = b("add", b("matmul", v[2], b("transpose", v[3], permutation=(1, 0))), v[4])
        return [
            b("matmul", v[0], v[1]),
            linear,
            b("add", v[5], b("matmul", v[6], v[7])),
            b("matmul", v[8], v[8]),
        ]

    wanted = (np.zeros(0), np.broadcast_to(np.arange(5), (3, 4, 5)), np.zeros((2, 0, 1)), np.zeros(()))
    for number, (got, want) in enumerate(zip(compute(device, operands, body), wanted, strict=True)):
        expect(f"product {number} of empty operands", got, want)


@named("empty.moves", "moves of nothing: concatenation with empty parts, gathers and scatters without an index, sorts")
def empty_moves(device: Device, options: Options) -> None:
    x, none, index = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((0, 3), np.float32), np.zeros(0, np.int32)

    def body(b: ArrayBuilder, x: Value, none: Value, index: Value) -> list[Value]:
        return [
            b("concat", none, x, none, axis=0),
            b("concat", none, none, axis=0),
            b("gather", x, index, axis=0),
            b("scatter", x, index, none, axis=0, kind="add"),
            b.many("sort", none, axis=0, descending=False)[0],
            b("scan", none, kind="sum", axis=0),
            b("pad", none, b.constant(2, dtypes.float32), low=(1, 0), high=(1, 0), interior=(0, 0)),
        ]

    wanted = (x, none, none, x, none, none, np.full((2, 3), 2.0))
    for number, (got, want) in enumerate(zip(compute(device, [x, none, index], body), wanted, strict=True)):
        expect(f"move {number} of nothing", got, want)
