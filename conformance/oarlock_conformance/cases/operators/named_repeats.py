"""Named cases of determinism: a kernel of every kind gives the same bits each time, and large ones use wide indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ir import TensorType, Value
from oarlock.ops import ArrayBuilder
from oarlock.runtime import Device, from_numpy, to_numpy
from oarlock.runtime.execute import plan_for
from oarlock_conformance.case import Failure, Options
from oarlock_conformance.cases.operators.build import build_function
from oarlock_conformance.cases.operators.named import expect, named

__all__: list[str] = []

Array = npt.NDArray[Any]
_RUNS = 20


def _kinds(b: ArrayBuilder, x: Value, y: Value, index: Value) -> dict[str, Value]:
    """A kernel of every kind on x [64, 300], y [300, 70] and index [64]."""
    image, window = b("reshape", x, shape=(2, 4, 40, 60)), b("reshape", y, shape=(70, 4, 15, 5))
    plain: dict[str, Any] = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    pooled = {"window": (1, 1, 3, 3), "strides": (1, 1, 2, 2), "padding": ((0, 0),) * 4, "dilation": (1,) * 4}
    return {
        "elements": b("gelu", x),
        "rows": b("softmax", x, axis=1),
        "columns": b("reduce_sum", x, axes=(0,)),
        "whole": b("reduce_sum", x, axes=(0, 1)),
        "contraction": b("matmul", x, y),
        "convolution": b("convolution", image, window, groups=1, **plain),
        "window": b("window_reduce", image, kind="sum", **pooled),
        "position": b("argmax", x, axis=1, dtype=dtypes.int32),
        "gather": b("gather", x, index, axis=0),
        "scatter": b("scatter", x, index, x, axis=0, kind="add"),
        "scan": b("scan", x, kind="sum", axis=1),
        "sort": b.many("sort", x, axis=1, descending=False)[0],
    }


def _operands(dtype: DType, seed: int) -> list[Array]:
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((64, 300)), random.standard_normal((300, 70))
    return [x.astype(dtype.numpy), y.astype(dtype.numpy), random.integers(0, 16, 64).astype(np.int32)]


@named(
    "determinism.kernels",
    f"a kernel of every kind gives the same bits in {_RUNS} runs on the same operands, wherever they lie",
    over=(dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.float64),
    quick=(dtypes.float32,),
)
def determinism(device: Device, options: Options, dtype: DType) -> dict[str, Any]:
    operands = _operands(dtype, options.seed)
    names: list[str] = []

    def body(b: ArrayBuilder, *arguments: Value) -> Sequence[Value]:
        results = _kinds(b, *arguments)
        names.extend(results)
        return list(results.values())

    types = [TensorType(dtypes.from_numpy(x.dtype), x.shape) for x in operands]
    plan = plan_for(build_function(types, body, "kinds"), device)
    first: list[bytes] = []
    held = []
    for turn in range(_RUNS):
        held.append([from_numpy(x, device) for x in operands])  # kept: each run reads other memory
        found = [to_numpy(result) for result in plan.run(held[-1])]
        first = first or [result.tobytes() for result in found]
        for name, result, before in zip(names, found, first, strict=True):
            if result.tobytes() != before:
                same = np.frombuffer(before, result.dtype).reshape(result.shape)
                wrong = int((result != same).sum())
                raise Failure(
                    f"{name}: run {turn + 1} gives other bits than run 1, in {wrong} of {result.size} elements"
                )
    return {"kinds": len(names), "runs": _RUNS}


# --- more than 2^31 elements ---

_MORE = 2**31 + 1


def _roomy(buffers: int) -> Callable[[Device], str]:
    def needs(device: Device) -> str:
        """What keeps ``buffers`` tensors of 2^31 + 1 bytes, and their copies on the host, from being had."""
        if not device.target.computes(dtypes.int64):
            return "tensors of 2^31 elements need int64 indices, which the device does not compute"
        limits = device.target.limits
        largest = min(limits.max_allocation, limits.max_binding)
        if largest < _MORE + 64:
            return f"one allocation holds at most {largest:,} bytes"
        free, wanted = device.memory_info()[0], (2 * buffers + 1) * _MORE
        return f"{free:,} bytes of memory are free, and {wanted:,} are needed" if free < wanted else ""

    return needs


def _long(count: int) -> Array:
    return np.resize(np.arange(-100, 101, dtype=np.int8), count)


@named(
    "large.elements",
    "element-wise kernels and views of 2^31 - 1, 2^31 and 2^31 + 1 int8 elements",
    over=(dtypes.int8,),
    quick=False,
    needs=_roomy(2),
)
def large_elements(device: Device, options: Options, dtype: DType) -> None:
    for count in (2**31 - 1, 2**31, _MORE):
        x = _long(count)
        types = [TensorType(dtype, (count,))]
        function = build_function(types, lambda b, x: [b("bitwise_invert", x)], "large")
        got = to_numpy(plan_for(function, device).run([from_numpy(x, device)])[0])
        np.invert(x, out=x)
        if not np.array_equal(got, x):
            at = int(np.argmax(got != x))
            raise Failure(f"~x of {count:,} int8: element {at:,} is {got[at]}, expected {x[at]}")


@named(
    "large.reductions",
    "sums, extremes and the end of 2^31 + 1 int8 elements",
    over=(dtypes.int8,),
    quick=False,
    needs=_roomy(1),
)
def large_reductions(device: Device, options: Options, dtype: DType) -> None:
    x = _long(_MORE)
    x[-1] = 127
    types = [TensorType(dtype, (_MORE,))]

    def body(b: ArrayBuilder, x: Value) -> list[Value]:
        end = b("slice", x, starts=(_MORE - 5,), limits=(_MORE,), steps=(1,))
        return [b("reduce_max", x, axes=(0,)), b("reduce_sum", x, axes=(0,)), b("reverse", end, axes=(0,))]

    found = [to_numpy(r) for r in plan_for(build_function(types, body, "large"), device).run([from_numpy(x, device)])]
    total = np.add.reduce(x, dtype=np.int64)
    expect("the largest of 2^31 + 1 int8", found[0], np.asarray(127))
    expect("the sum of 2^31 + 1 int8", found[1], np.asarray(total).astype(np.int8))
    expect("the last five of 2^31 + 1 int8", found[2], x[-5:][::-1])


@named(
    "large.product",
    "a product whose result has more than 2^31 elements: [46342, 1] @ [1, 46343] of int8",
    over=(dtypes.int8,),
    quick=False,
    needs=_roomy(1),
)
def large_product(device: Device, options: Options, dtype: DType) -> None:
    x, y = _long(46342).reshape(-1, 1), _long(46343).reshape(1, -1)
    types = [TensorType(dtype, x.shape), TensorType(dtype, y.shape)]
    plan = plan_for(build_function(types, lambda b, x, y: [b("matmul", x, y)], "large"), device)
    got = to_numpy(plan.run([from_numpy(x, device), from_numpy(y, device)])[0])
    for start in range(0, len(x), 4096):
        part = slice(start, start + 4096)
        if not np.array_equal(got[part], x[part] * y):
            wrong = np.argwhere(got[part] != x[part] * y)[0]
            raise Failure(f"element {tuple(wrong + [start, 0])} of [46342, 1] @ [1, 46343] is wrong")
