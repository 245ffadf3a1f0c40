"""Pooling: average, maximum, Lp, global; maximum with indices and back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder
from oarlock_onnx.limits import check_host
from oarlock_onnx.node import Node
from oarlock_onnx.operators.common import (
    cast,
    dtype_of,
    expand,
    fill,
    index32,
    like,
    numbers,
    pad_axes,
    reduce,
    reshape,
    scalar,
    shape_of,
    wide,
)
from oarlock_onnx.operators.reduction import mean_of
from oarlock_onnx.operators.window import Window, window_of
from oarlock_onnx.registry import operator

__all__: list[str] = []


def _windowed(b: GraphBuilder, kind: str, x: Value, window: Window) -> Value:
    if min(*window.low, *window.high) < 0:
        raise ModelError("negative pads are not supported")
    high = [pad + extra for pad, extra in zip(window.high, window.extra, strict=True)]
    if 0 in window.out:
        return b(
            "slice",
            x,
            starts=(0,) * (window.rank + 2),
            limits=(*shape_of(x)[:2], *window.out),
            steps=(1,) * (window.rank + 2),
        )
    return b(
        "window_reduce",
        x,
        kind=kind,
        window=(1, 1, *window.kernel),
        strides=(1, 1, *window.strides),
        padding=((0, 0), (0, 0), *zip(window.low, high, strict=True)),
        dilation=(1, 1, *window.dilations),
    )


def _window(node: Node) -> Window:
    shape = shape_of(node.input(0))
    if len(shape) < 3:
        raise ModelError(f"input {list(shape)} has no spatial dimensions")
    return window_of(node, shape[2:], node.integers("kernel_shape"))


def _counts(b: GraphBuilder, window: Window, include_pad: bool, dtype: DType) -> Value:
    """How many elements each window averages: those inside, or those inside the padding too."""
    total = scalar(b, 1, dtype)
    for axis in range(window.rank):
        check_host("pooling", window.out[axis])
        starts = np.arange(window.out[axis]) * window.strides[axis] - window.low[axis]
        low = -window.low[axis] if include_pad else 0
        high = window.dims[axis] + (window.high[axis] if include_pad else 0)
        step = window.dilations[axis]
        first = np.maximum(-((starts - low) // step), 0)
        last = np.minimum((high - 1 - starts) // step, window.kernel[axis] - 1)
        counts = np.maximum(last - first + 1, 0)
        if counts.size and (counts == counts[0]).all():
            counts = counts[:1]
        dims = [1] * window.rank
        dims[axis] = len(counts)
        total = b("multiply", total, b.constant(counts.reshape(dims), dtype))
    return total


@operator("AveragePool")
def average_pool(b: GraphBuilder, node: Node) -> Value:
    """The mean of each window; padding counts only where asked."""
    x, window = node.input(0), _window(node)
    kind = dtype_of(x)
    total = _windowed(b, "sum", cast(b, x, wide(kind)), window)
    counts = _counts(b, window, node.flag("count_include_pad"), wide(kind))
    return cast(b, b("divide", total, counts), kind)


@operator("LpPool")
def lp_pool(b: GraphBuilder, node: Node) -> Value:
    """The p-norm of each window."""
    x = node.input(0)
    p = _order(node)
    return _root(b, _windowed(b, "sum", _power(b, x, p), _window(node)), p)


def _order(node: Node) -> float:
    """The p of an Lp norm."""
    p = node.real("p", 2.0) if node.version < 2 else float(node.integer("p", 2))
    if not p > 0:
        raise ModelError(f"p {p} is not above 0")
    return p


def _power(b: GraphBuilder, x: Value, p: float) -> Value:
    if p == 2:
        return b("multiply", x, x)
    return b("abs", x) if p == 1 else b("power", b("abs", x), like(b, p, x))


def _root(b: GraphBuilder, x: Value, p: float) -> Value:
    if p == 2:
        return b("sqrt", x)
    return x if p == 1 else b("power", x, like(b, 1 / p, x))


@operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(b: GraphBuilder, node: Node) -> Value:
    """One value for all spatial dimensions of a channel."""
    x = node.input(0)
    axes = tuple(range(2, len(shape_of(x))))
    if not axes:
        raise ModelError(f"input {list(shape_of(x))} has no spatial dimensions")
    if node.op_type == "GlobalMaxPool":
        return reduce(b, "max", x, axes)
    if node.op_type == "GlobalAveragePool":
        return cast(b, mean_of(b, cast(b, x, wide(dtype_of(x))), axes), dtype_of(x))
    p = _order(node)
    return _root(b, reduce(b, "sum", _power(b, x, p), axes), p)


@operator("MaxPool")
def max_pool(b: GraphBuilder, node: Node) -> list[Value]:
    """The largest of each window; on request also its index in the flattened input."""
    x, window = node.input(0), _window(node)
    if not node.wants(1):
        return [_windowed(b, "max", x, window)]
    order = node.integer("storage_order", 0)
    if order not in (0, 1):
        raise ModelError(f"storage_order {order} is not 0 or 1")
    return _max_with_index(b, x, window, order)


def _lowest(b: GraphBuilder, x: Value) -> Value:
    kind = dtype_of(x)
    return like(b, -math.inf if kind.is_float else int(np.iinfo(kind.numpy).min), x)


def _max_with_index(b: GraphBuilder, x: Value, window: Window, order: int) -> list[Value]:
    n, channels, *dims = shape_of(x)
    high = [pad + extra for pad, extra in zip(window.high, window.extra, strict=True)]
    padded = pad_axes(b, x, (0, 0, *window.low), (0, 0, *high), _lowest(b, x))
    best: Value | None = None
    where: Value | None = None
    for place in itertools.product(*map(range, window.kernel)):
        starts = [p * d for p, d in zip(place, window.dilations, strict=True)]
        limits = [s + (o - 1) * t + 1 for s, o, t in zip(starts, window.out, window.strides, strict=True)]
        part = b("slice", padded, starts=(0, 0, *starts), limits=(n, channels, *limits), steps=(1, 1, *window.strides))
        index = _flat_places(b, window, starts, dims, order)
        if best is None or where is None:
            best, where = part, fill_like(b, index, part)
        else:
            better = b("greater", part, best)
            best, where = b("maximum", best, part), b("select", better, index, where)
    if best is None or where is None:
        raise ModelError("the kernel is empty")
    planes = reshape(b, numbers(b, n * channels, 1, 0, math.prod(dims)), (n, channels, *(1,) * window.rank))
    return [best, cast(b, b("add", where, planes), dtypes.int64)]


def fill_like(b: GraphBuilder, value: Value, other: Value) -> Value:
    """``value`` broadcast to the shape of ``other``."""
    return expand(b, value, shape_of(other))


def _flat_places(b: GraphBuilder, window: Window, starts: Sequence[int], dims: Sequence[int], order: int) -> Value:
    """The flat index in one channel of a place of each window; by rows, or by columns with ``order`` 1."""
    total = scalar(b, 0, dtypes.int32)
    for axis in range(window.rank):
        stride = math.prod(dims[axis + 1 :]) if order == 0 else math.prod(dims[:axis])
        places = numbers(b, window.out[axis], window.rank, axis, window.strides[axis])
        places = b("add", places, scalar(b, starts[axis] - window.low[axis], dtypes.int32))
        total = b("add", total, b("multiply", places, scalar(b, stride, dtypes.int32)))
    return total


@operator("MaxUnpool")
def max_unpool(b: GraphBuilder, node: Node) -> Value:
    """Values put back at the indices that MaxPool gave; zero elsewhere."""
    x, indices, wanted = node.input(0), node.input(1), node.optional(2)
    n, channels, *dims = shape_of(x)
    kernel, rank = node.integers("kernel_shape"), len(dims)
    strides, pads = node.integers("strides", (1,) * rank), node.integers("pads", (0,) * 2 * rank)
    if not len(kernel) == len(strides) == len(pads) // 2 == rank or shape_of(indices) != shape_of(x):
        raise ModelError("kernel_shape, strides, pads and indices do not fit the input")
    inferred = [
        (dims[axis] - 1) * strides[axis] + kernel[axis] - pads[axis] - pads[axis + rank] for axis in range(rank)
    ]
    if min(inferred) < 1:
        raise ModelError(f"the result would have the shape {[n, channels, *inferred]}")
    total, count = n * channels * math.prod(inferred), math.prod(shape_of(x))
    places = reshape(b, index32(b, indices, total), (count,))
    base = fill(b, like(b, 0, x), (total,))
    placed = b("scatter", base, places, reshape(b, x, (count,)), axis=0, kind="set")
    result = reshape(b, placed, (n, channels, *inferred))
    shape = (n, channels, *inferred) if wanted is None else b.ints(wanted, "output_shape")
    if len(shape) != rank + 2 or shape[:2] != (n, channels):
        raise ModelError(f"output_shape {list(shape)} does not fit")
    missing = [want - have for want, have in zip(shape, (n, channels, *inferred), strict=True)]
    return pad_axes(b, result, (0,) * (rank + 2), missing, like(b, 0, x))


@operator("MaxRoiPool")
def max_roi_pool(b: GraphBuilder, node: Node) -> Value:
    """The largest of each cell of regions, which must be known while building."""
    x = node.input(0)
    rois = b.static(node.input(1), "rois")
    height, width = node.integers("pooled_shape")
    scale = node.real("spatial_scale", 1.0)
    if rois.ndim != 2 or rois.shape[1] != 5 or min(height, width) < 1 or len(shape_of(x)) != 4:
        raise ModelError(f"rois {list(rois.shape)} do not fit the input {list(shape_of(x))}")
    n, channels, rows, columns = shape_of(x)
    cells = []
    for roi in rois:
        batch = int(roi[0])
        if not 0 <= batch < n:
            raise ModelError(f"a region names image {batch} of {n}")
        left, top, right, bottom = (int(np.floor(v * scale + 0.5)) for v in roi[1:])
        high, broad = max(bottom - top + 1, 1) / height, max(right - left + 1, 1) / width
        for i, j in itertools.product(range(height), range(width)):
            y = [
                min(max(int(math.floor(i * high)) + top, 0), rows),
                min(max(int(math.ceil((i + 1) * high)) + top, 0), rows),
            ]
            z = [
                min(max(int(math.floor(j * broad)) + left, 0), columns),
                min(max(int(math.ceil((j + 1) * broad)) + left, 0), columns),
            ]
            if y[1] <= y[0] or z[1] <= z[0]:
                cells.append(fill(b, like(b, 0, x), (channels, 1)))
                continue
            part = b(
                "slice", x, starts=(batch, 0, y[0], z[0]), limits=(batch + 1, channels, y[1], z[1]), steps=(1,) * 4
            )
            cells.append(reshape(b, reduce(b, "max", part, (0, 2, 3), keepdims=False), (channels, 1)))
    joined = cells[0] if len(cells) == 1 else b("concat", *cells, axis=1)
    parts = reshape(b, joined, (channels, len(rois), height, width))
    return b("transpose", parts, permutation=(1, 0, 2, 3))
