"""Convolutions: plain, transposed, causal over patches, deformable."""

from __future__ import annotations

import itertools
import math

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
    like,
    numbers,
    pad_axes,
    reshape,
    shape_of,
    transpose,
)
from oarlock_onnx.operators.window import Window, window_of
from oarlock_onnx.registry import operator

__all__ = ["integer_convolution", "kernel_of"]


def kernel_of(node: Node, weight: Value) -> tuple[int, ...]:
    """The kernel's shape: that of the weight, with which the attribute must agree."""
    kernel = shape_of(weight)[2:]
    if node.has("kernel_shape") and node.integers("kernel_shape") != kernel:
        raise ModelError(f"kernel_shape {list(node.integers('kernel_shape'))}: the weight's is {list(kernel)}")
    return kernel


def _checked(x: Value, weight: Value, group: int) -> None:
    given, filters = shape_of(x), shape_of(weight)
    if len(given) != len(filters) or len(given) < 3:
        raise ModelError(f"input {list(given)} and weight {list(filters)} do not fit")
    if group < 1 or given[1] != filters[1] * group or filters[0] % group:
        raise ModelError(f"input {list(given)}, weight {list(filters)} and group {group} do not fit")


def _biased(b: GraphBuilder, result: Value, bias: Value | None) -> Value:
    if bias is None:
        return result
    shape = shape_of(bias)
    if len(shape) != 1 or shape[0] != shape_of(result)[1]:
        raise ModelError(f"bias {list(shape)} does not fit {shape_of(result)[1]} channels")
    return b("add", result, reshape(b, bias, (shape[0], *(1,) * (len(shape_of(result)) - 2))))


@operator("Conv")
def conv(b: GraphBuilder, node: Node) -> Value:
    """A convolution in groups, with bias."""
    x, weight = node.input(0), node.input(1)
    group = node.integer("group", 1)
    _checked(x, weight, group)
    window = window_of(node, shape_of(x)[2:], kernel_of(node, weight))
    result = _convolve(b, x, weight, window, group)
    return _biased(b, result, node.optional(2))


def _convolve(b: GraphBuilder, x: Value, weight: Value, window: Window, group: int) -> Value:
    low, high = window.low, window.high
    if min(*low, *high) < 0:
        x = pad_axes(b, x, (0, 0, *(min(n, 0) for n in low)), (0, 0, *(min(n, 0) for n in high)), like(b, 0, x))
    padding = tuple((max(0, lo), max(0, hi)) for lo, hi in zip(low, high, strict=True))
    kept = _spread_axes(shape_of(x)[2:], window, padding)
    result = b(
        "convolution",
        reshape(b, x, (*shape_of(x)[:2], *(shape_of(x)[axis + 2] for axis in kept))),
        reshape(b, weight, (*shape_of(weight)[:2], *(window.kernel[axis] for axis in kept))),
        strides=tuple(window.strides[axis] for axis in kept),
        padding=tuple(padding[axis] for axis in kept),
        dilation=tuple(window.dilations[axis] for axis in kept),
        groups=group,
    )
    return reshape(b, result, (*shape_of(result)[:2], *window.out))


def _spread_axes(dims: tuple[int, ...], window: Window, padding: tuple[tuple[int, int], ...]) -> list[int]:
    """The spatial axes on which something happens (at least one): those of size 1 without padding do not count."""
    kept = [axis for axis, dim in enumerate(dims) if (dim, window.kernel[axis], padding[axis]) != (1, 1, (0, 0))]
    return kept or [0]


@operator("ConvTranspose")
def conv_transpose(b: GraphBuilder, node: Node) -> Value:
    """The gradient of a convolution: the input spread by the strides, convolved with the turned weight."""
    x, weight, group = node.input(0), node.input(1), node.integer("group", 1)
    given, filters = shape_of(x), shape_of(weight)
    if len(given) != len(filters) or len(given) < 3 or group < 1 or given[1] != filters[0] or filters[0] % group:
        raise ModelError(f"input {list(given)}, weight {list(filters)} and group {group} do not fit")
    kernel, rank = kernel_of(node, weight), len(given) - 2
    strides, dilations = node.integers("strides", (1,) * rank), node.integers("dilations", (1,) * rank)
    extra = node.integers("output_padding", (0,) * rank)
    if not len(strides) == len(dilations) == len(extra) == rank or min(*strides, *dilations) < 1 or min(extra) < 0:
        raise ModelError(
            f"strides {list(strides)}, dilations {list(dilations)} and output_padding {list(extra)} do not fit"
        )
    if max(*strides, *dilations, *extra) >= 2**20:
        raise ModelError(
            f"strides {list(strides)}, dilations {list(dilations)} and output_padding {list(extra)} are absurd"
        )
    low, high = _transposed_pads(node, given[2:], kernel, strides, dilations, extra)
    spans = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
    spread = pad_axes(
        b,
        x,
        (0, 0, *(span - lo for span, lo in zip(spans, low, strict=True))),
        (0, 0, *(span - hi + e for span, hi, e in zip(spans, high, extra, strict=True))),
        like(b, 0, x),
        (0, 0, *(stride - 1 for stride in strides)),
    )
    turned = b("reverse", weight, axes=tuple(range(2, rank + 2)))
    per_in, per_out = filters[0] // group, filters[1]
    turned = reshape(b, turned, (group, per_in, per_out, *kernel))
    turned = transpose(b, turned, (0, 2, 1, *range(3, rank + 3)))
    turned = reshape(b, turned, (group * per_out, per_in, *kernel))
    result = b(
        "convolution",
        spread,
        turned,
        strides=(1,) * rank,
        padding=((0, 0),) * rank,
        dilation=dilations,
        groups=group,
    )
    return _biased(b, result, node.optional(2))


def _transposed_pads(
    node: Node,
    dims: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    extra: tuple[int, ...],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    rank = len(dims)
    auto = node.string("auto_pad", "NOTSET")
    if auto not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise ModelError(f"auto_pad {auto!r} is not known")
    pads = node.integers("pads", (0,) * 2 * rank) if auto == "NOTSET" else (0,) * 2 * rank
    full = [
        stride * (dim - 1) + e + (k - 1) * d + 1
        for stride, dim, e, k, d in zip(strides, dims, extra, kernel, dilations, strict=True)
    ]
    if node.has("output_shape"):
        wanted = node.integers("output_shape")[-rank:]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(dim * stride for dim, stride in zip(dims, strides, strict=True))
    else:
        if len(pads) != 2 * rank or max(map(abs, pads)) >= 2**20:
            raise ModelError(f"pads {list(pads)} do not fit {rank} dimensions")
        return pads[:rank], pads[rank:]
    if len(wanted) != rank or min(wanted) < 1 or max(wanted) >= 2**31:
        raise ModelError(f"output_shape {list(wanted)} does not fit {rank} dimensions")
    totals = [size - want for size, want in zip(full, wanted, strict=True)]
    halves = [max(total, 0) // 2 for total in totals]
    rests = [total - half for total, half in zip(totals, halves, strict=True)]
    upper = auto == "SAME_UPPER" or min(totals) < 0  # what is missing is added at the end
    return (tuple(halves), tuple(rests)) if upper else (tuple(rests), tuple(halves))


def integer_convolution(
    b: GraphBuilder, x: Value, weight: Value, window: Window, group: int, dtype: DType = dtypes.int32
) -> Value:
    """A convolution of integers, exact: one product per place in the kernel, summed in ``dtype``."""
    n, channels, *_ = shape_of(x)
    filters = shape_of(weight)[0]
    x, weight = cast(b, x, dtype), cast(b, weight, dtype)
    padded = pad_axes(b, x, (0, 0, *window.low), (0, 0, *window.high), like(b, 0, x))
    positions = math.prod(window.out)
    weights = reshape(b, weight, (group, filters // group, channels // group, math.prod(window.kernel)))
    total: Value | None = None
    for tap, place in enumerate(itertools.product(*map(range, window.kernel))):
        starts = [p * d for p, d in zip(place, window.dilations, strict=True)]
        limits = [
            start + (count - 1) * stride + 1
            for start, count, stride in zip(starts, window.out, window.strides, strict=True)
        ]
        part = b("slice", padded, starts=(0, 0, *starts), limits=(n, channels, *limits), steps=(1, 1, *window.strides))
        part = reshape(b, part, (n, group, channels // group, positions))
        shape = shape_of(weights)
        one = b("slice", weights, starts=(0, 0, 0, tap), limits=(*shape[:3], tap + 1), steps=(1, 1, 1, 1))
        one = reshape(b, one, shape[:3])
        product = b("dot_general", one, part, batch=((0,), (1,)), contract=((2,), (2,)), dtype=dtype)
        total = product if total is None else b("add", total, product)
    if total is None:
        raise ModelError("the kernel is empty")
    result = transpose(b, total, (2, 0, 1, 3))
    return reshape(b, result, (n, filters, *window.out))


@operator("DeformConv")
def deform_conv(b: GraphBuilder, node: Node) -> Value:
    """A convolution whose places are moved by offsets and weighted by a mask; pixels between are interpolated."""
    x, weight, offset = node.input(0), node.input(1), node.input(2)
    group, parts = node.integer("group", 1), node.integer("offset_group", 1)
    _checked(x, weight, group)
    if len(shape_of(x)) != 4 or parts < 1 or shape_of(x)[1] % parts:
        raise ModelError(f"input {list(shape_of(x))} with offset_group {parts} is not supported, only images")
    window = window_of(node, shape_of(x)[2:], kernel_of(node, weight))
    n, channels, taps, positions = *shape_of(x)[:2], math.prod(window.kernel), math.prod(window.out)
    if math.prod(shape_of(offset)) != n * parts * taps * 2 * positions:
        raise ModelError(f"offset {list(shape_of(offset))} does not fit")
    moves = reshape(b, offset, (n, parts, taps, 2, positions))
    rows, columns = (_places(b, moves, window, axis) for axis in (0, 1))
    sampled = _sampled(b, x, parts, rows, columns)
    mask = node.optional(4)
    if mask is not None:
        sampled = b("multiply", sampled, reshape(b, mask, (n, parts, 1, taps, positions)))
    columns_in = reshape(b, sampled, (n, group, channels // group * taps, positions))
    filters = shape_of(weight)[0]
    rows_in = reshape(b, weight, (group, filters // group, channels // group * taps))
    product = b("dot_general", rows_in, columns_in, batch=((0,), (1,)), contract=((2,), (2,)), dtype=dtype_of(x))
    result = reshape(b, transpose(b, product, (2, 0, 1, 3)), (n, filters, *window.out))
    return _biased(b, result, node.optional(3))


def _places(b: GraphBuilder, moves: Value, window: Window, axis: int) -> Value:
    """Positions along ``axis`` [n, parts, taps, positions]: the regular ones plus the offsets."""
    check_host("moving places", 2, *window.kernel, *window.out)
    kernel = np.indices(window.kernel).reshape(2, -1)[axis] * window.dilations[axis]
    starts = np.indices(window.out).reshape(2, -1)[axis] * window.strides[axis] - window.low[axis]
    regular = kernel[:, None] + starts[None, :]
    n, parts, taps, _, positions = shape_of(moves)
    limits = (n, parts, taps, axis + 1, positions)
    moved = b("slice", moves, starts=(0, 0, 0, axis, 0), limits=limits, steps=(1,) * 5)
    moved = reshape(b, moved, (n, parts, taps, positions))
    return b("add", moved, b.constant(regular, dtype_of(moves)))


def _sampled(b: GraphBuilder, x: Value, parts: int, rows: Value, columns: Value) -> Value:
    """Bilinear samples [n, parts, channels / parts, taps, positions]; outside the image is 0."""
    n, channels, height, width = shape_of(x)
    per = channels // parts
    flat = reshape(
        b, transpose(b, reshape(b, x, (n, parts, per, height * width)), (0, 1, 3, 2)), (n * parts * height * width, per)
    )
    base = reshape(b, numbers(b, n * parts, 1, 0, height * width), (n, parts, 1, 1))
    total: Value | None = None
    top, left = b("floor", rows), b("floor", columns)
    for down, right in itertools.product((0, 1), (0, 1)):
        row, column = b("add", top, like(b, down, top)), b("add", left, like(b, right, left))
        weight = b("multiply", _near(b, rows, row), _near(b, columns, column))
        inside = b("bitwise_and", _within(b, row, height), _within(b, column, width))
        weight = b("select", inside, weight, like(b, 0, weight))
        place = b("add", b("multiply", _whole(b, row), b.constant(np.int32(width))), _whole(b, column))
        place = b("select", inside, b("add", place, base), b.constant(np.int32(0)))
        part = b("multiply", b("gather", flat, place, axis=0), reshape(b, weight, (*shape_of(weight), 1)))
        total = part if total is None else b("add", total, part)
    if total is None:
        raise ModelError("there is nothing to sample")
    return transpose(b, total, (0, 1, 4, 2, 3))


def _near(b: GraphBuilder, place: Value, neighbour: Value) -> Value:
    return b("subtract", like(b, 1, place), b("abs", b("subtract", place, neighbour)))


def _within(b: GraphBuilder, place: Value, size: int) -> Value:
    return b("bitwise_and", b("greater_equal", place, like(b, 0, place)), b("less", place, like(b, size, place)))


def _whole(b: GraphBuilder, place: Value) -> Value:
    return cast(b, place, dtypes.int32)
