"""Samples between pixels: GridSample and RoiAlign."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oarlock import dtypes
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
    reduce,
    reshape,
    shape_of,
    slice_axis,
    transpose,
    wide,
)
from oarlock_onnx.registry import operator

__all__: list[str] = []


@dataclass(frozen=True, slots=True)
class _Tap:
    """One neighbour along one axis: its index (whole floats), its weight, and whether it lies inside."""

    place: Value
    weight: Value | None
    inside: Value | None


@operator("GridSample")
def grid_sample(b: GraphBuilder, node: Node) -> Value:
    """The input at normalised positions, interpolated; outside by padding mode."""
    x, grid = node.input(0), node.input(1)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(node.string("mode", "linear"), node.string("mode", "linear"))
    padding, corners = node.string("padding_mode", "zeros"), node.flag("align_corners")
    dims, rank = shape_of(x)[2:], len(shape_of(x)) - 2
    if mode not in ("nearest", "linear", "cubic") or padding not in ("zeros", "border", "reflection"):
        raise ModelError(f"mode {mode!r} and padding_mode {padding!r} are not known")
    if rank < 1 or len(shape_of(grid)) != rank + 2 or shape_of(grid)[-1] != rank or shape_of(grid)[0] != shape_of(x)[0]:
        raise ModelError(f"input {list(shape_of(x))} and grid {list(shape_of(grid))} do not fit")
    kind = dtype_of(x)
    inner = wide(kind) if kind.is_float else dtypes.float32
    count = math.prod(shape_of(grid)[1:-1])
    points = reshape(b, cast(b, grid, inner), (shape_of(x)[0], count, rank))
    taps = []
    for axis, dim in enumerate(dims):
        part = reshape(b, slice_axis(b, points, 2, rank - 1 - axis, rank - axis), (shape_of(x)[0], count))
        taps.append(_taps(b, part, dim, mode, padding, corners))
    result = _weighted(b, cast(b, x, inner), taps)
    return cast(b, reshape(b, result, (*shape_of(x)[:2], *shape_of(grid)[1:-1])), kind)


def _taps(b: GraphBuilder, part: Value, dim: int, mode: str, padding: str, corners: bool) -> list[_Tap]:
    """The neighbours of positions along an axis of ``dim`` elements, positions given in [-1, 1]."""
    one = like(b, 1, part)
    if corners:
        place = b("multiply", b("add", part, one), like(b, (dim - 1) / 2, part))
    else:
        place = b(
            "divide", b("subtract", b("multiply", b("add", part, one), like(b, dim, part)), one), like(b, 2, part)
        )
    if mode == "nearest":
        place = b("round", place)
    edges = (0.0, dim - 1.0) if corners else (-0.5, dim - 0.5)
    if mode != "cubic":  # whose neighbours are brought inside one by one
        place = _held(b, place, dim, padding, edges)
    if mode == "nearest":
        return [_settled(b, place, None, dim, padding, edges)]
    low = b("floor", place)
    rest = b("subtract", place, low)
    weights = _linear(b, rest) if mode == "linear" else _cubic(b, rest)
    first = 0 if mode == "linear" else -1
    return [
        _settled(b, b("add", low, like(b, first + step, low)), weight, dim, padding, edges)
        for step, weight in enumerate(weights)
    ]


def _held(b: GraphBuilder, place: Value, dim: int, padding: str, edges: tuple[float, float]) -> Value:
    """Positions brought inside: clamped or reflected; as they are for zeros."""
    if padding == "zeros":
        return place
    if padding == "border":
        return b("maximum", like(b, 0, place), b("minimum", like(b, dim - 1, place), place))
    span = edges[1] - edges[0]
    if span == 0:
        return b.full(edges[0], place)
    turn = b("remainder", b("subtract", place, like(b, edges[0], place)), like(b, 2 * span, place))
    turn = b("minimum", turn, b("subtract", like(b, 2 * span, place), turn))
    return b("add", turn, like(b, edges[0], place))


def _settled(
    b: GraphBuilder, place: Value, weight: Value | None, dim: int, padding: str, edges: tuple[float, float]
) -> _Tap:
    last = like(b, dim - 1, place)
    inside = None
    if padding == "zeros":
        inside = b("bitwise_and", b("greater_equal", place, like(b, 0, place)), b("less_equal", place, last))
    elif padding == "reflection":
        place = b("trunc", _held(b, place, dim, padding, edges))
    return _Tap(b("maximum", like(b, 0, place), b("minimum", last, place)), weight, inside)


def _linear(b: GraphBuilder, rest: Value) -> list[Value]:
    return [b("subtract", like(b, 1, rest), rest), rest]


def _cubic(b: GraphBuilder, rest: Value, a: float = -0.75) -> list[Value]:
    def near(x: Value) -> Value:
        inner = b("subtract", b("multiply", like(b, a + 2, x), x), like(b, a + 3, x))
        return b("add", b("multiply", inner, b("multiply", x, x)), like(b, 1, x))

    def far(x: Value) -> Value:
        first = b("subtract", b("multiply", like(b, a, x), x), like(b, 5 * a, x))
        second = b("add", b("multiply", first, x), like(b, 8 * a, x))
        return b("subtract", b("multiply", second, x), like(b, 4 * a, x))

    one = like(b, 1, rest)
    back = b("subtract", one, rest)
    return [far(b("add", rest, one)), near(rest), near(back), far(b("add", back, one))]


def _weighted(b: GraphBuilder, x: Value, taps: Sequence[Sequence[_Tap]]) -> Value:
    """The sum over all combinations of neighbours: [batch, channels, points]."""
    n, channels, *dims = shape_of(x)
    size = math.prod(dims)
    flat = reshape(b, transpose(b, reshape(b, x, (n, channels, size)), (0, 2, 1)), (n * size, channels))
    base = numbers(b, n, 2, 0, size)
    total: Value | None = None
    for chosen in itertools.product(*taps):
        place: Value | None = None
        weight: Value | None = None
        inside: Value | None = None
        for tap, dim in zip(chosen, dims, strict=True):
            index = cast(b, tap.place, dtypes.int32)
            place = index if place is None else b("add", b("multiply", place, b.constant(np.int32(dim))), index)
            if tap.weight is not None:
                weight = tap.weight if weight is None else b("multiply", weight, tap.weight)
            if tap.inside is not None:
                inside = tap.inside if inside is None else b("bitwise_and", inside, tap.inside)
        if place is None:
            raise ModelError("there are no spatial dimensions")
        part = b("gather", flat, b("add", place, base), axis=0)
        if weight is not None:
            part = b("multiply", part, reshape(b, weight, (*shape_of(weight), 1)))
        if inside is not None:
            part = b("select", reshape(b, inside, (*shape_of(inside), 1)), part, like(b, 0, part))
        total = part if total is None else b("add", total, part)
    if total is None:
        raise ModelError("there is nothing to sample")
    return transpose(b, total, (0, 2, 1))


@operator("RoiAlign")
def roi_align(b: GraphBuilder, node: Node) -> Value:
    """Regions pooled to a fixed grid from bilinear samples."""
    x, rois, batch = node.input(0), node.input(1), node.input(2)
    height, width = node.integer("output_height", 1), node.integer("output_width", 1)
    ratio, mode = node.integer("sampling_ratio", 0), node.string("mode", "avg")
    transform = node.string(
        "coordinate_transformation_mode", "half_pixel" if node.version >= 16 else "output_half_pixel"
    )
    if len(shape_of(x)) != 4 or len(shape_of(rois)) != 2 or shape_of(rois)[1] != 4:
        raise ModelError(f"input {list(shape_of(x))} and rois {list(shape_of(rois))} do not fit")
    if min(height, width) < 1 or ratio < 0 or mode not in ("avg", "max") or max(height, width, ratio) > 2**15:
        raise ModelError(f"output {height}x{width}, sampling_ratio {ratio} and mode {mode!r} do not fit")
    half = transform == "half_pixel"
    scaled = b("multiply", rois, like(b, node.real("spatial_scale", 1.0), rois))
    scaled = b("subtract", scaled, like(b, 0.5 if half else 0.0, scaled))
    if ratio:
        return _regions(b, x, scaled, batch, (height, width), (ratio, ratio), mode, half)
    known = b.static(scaled, "rois (with sampling_ratio 0)")
    parts = []
    for row in range(len(known)):
        spans = known[row, 3] - known[row, 1], known[row, 2] - known[row, 0]
        if not half:
            spans = max(float(spans[0]), 1.0), max(float(spans[1]), 1.0)
        counts = [max(1, math.ceil(span / cells)) for span, cells in zip(spans, (height, width), strict=True)]
        if max(counts) > 2**15:
            raise ModelError(f"region {row} is sampled at {counts} points a cell")
        one, entry = slice_axis(b, scaled, 0, row, row + 1), slice_axis(b, batch, 0, row, row + 1)
        parts.append(_regions(b, x, one, entry, (height, width), (counts[0], counts[1]), mode, half))
    if not parts:
        return b("broadcast", like(b, 0, x), shape=(0, shape_of(x)[1], height, width), dims=())
    return parts[0] if len(parts) == 1 else b("concat", *parts, axis=0)


def _regions(
    b: GraphBuilder,
    x: Value,
    rois: Value,
    batch: Value,
    cells: tuple[int, int],
    samples: tuple[int, int],
    mode: str,
    half: bool,
) -> Value:
    """Regions with equally many samples a cell: [regions, channels, rows, columns]."""
    n, channels, *dims = shape_of(x)
    count = shape_of(rois)[0]
    axes = [_roi_axis(b, rois, axis, cells[axis], samples[axis], dims[axis], half) for axis in (0, 1)]
    size = dims[0] * dims[1]
    flat = reshape(b, transpose(b, reshape(b, x, (n, channels, size)), (0, 2, 1)), (n * size, channels))
    base = b("multiply", cast(b, batch, dtypes.int32), b.constant(np.int32(size)))
    base = reshape(b, base, (count, 1, 1))
    rows, columns = shape_of(axes[0][0][0])[1], shape_of(axes[1][0][0])[1]
    found: Value | None = None
    for (row, row_weight), (column, column_weight) in itertools.product(*axes):
        place = b(
            "add",
            b("multiply", reshape(b, row, (count, rows, 1)), b.constant(np.int32(dims[1]))),
            reshape(b, column, (count, 1, columns)),
        )
        weight = b("multiply", reshape(b, row_weight, (count, rows, 1)), reshape(b, column_weight, (count, 1, columns)))
        part = b(
            "multiply", b("gather", flat, b("add", place, base), axis=0), reshape(b, weight, (count, rows, columns, 1))
        )
        found = part if found is None else b("maximum" if mode == "max" else "add", found, part)
    if found is None:
        raise ModelError("there is nothing to sample")
    grid = reshape(b, found, (count, cells[0], samples[0], cells[1], samples[1], channels))
    if mode == "max":
        pooled = reduce(b, "max", grid, (2, 4), keepdims=False)
    else:
        pooled = reduce(b, "sum", grid, (2, 4), keepdims=False)
        pooled = b("divide", pooled, like(b, samples[0] * samples[1], pooled))
    return transpose(b, pooled, (0, 3, 1, 2))


def _roi_axis(
    b: GraphBuilder, rois: Value, axis: int, cells: int, samples: int, dim: int, half: bool
) -> list[tuple[Value, Value]]:
    """The two neighbours of each sample along an axis, as (index, weight) [regions, cells * samples]."""
    low = slice_axis(b, rois, 1, 1 - axis, 2 - axis)
    span = b("subtract", slice_axis(b, rois, 1, 3 - axis, 4 - axis), low)
    if not half:
        span = b("maximum", span, like(b, 1, span))
    check_host("sampling", cells, samples)
    steps = (np.arange(cells)[:, None] + (np.arange(samples)[None, :] + 0.5) / samples).reshape(1, -1) / cells
    place = b("add", low, b("multiply", span, b.constant(steps, dtype_of(rois))))
    inside = b(
        "bitwise_and", b("greater_equal", place, like(b, -1, place)), b("less_equal", place, like(b, dim, place))
    )
    place = b("minimum", b("maximum", place, like(b, 0, place)), like(b, dim - 1, place))
    first = b("floor", place)
    second = b("minimum", b("add", first, like(b, 1, first)), like(b, dim - 1, first))
    rest = b("subtract", place, first)
    weights = [b("subtract", like(b, 1, rest), rest), rest]
    zero = like(b, 0, place)
    return [
        (cast(b, index, dtypes.int32), b("select", inside, weight, zero))
        for index, weight in zip((first, second), weights, strict=True)
    ]
