"""Resize and Upsample: one axis at a time, with weights computed on the host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder
from oarlock_onnx.limits import check_host, check_size
from oarlock_onnx.node import Node
from oarlock_onnx.operators.common import (
    axes_of,
    cast,
    dtype_of,
    expand,
    gather_axis,
    like,
    reshape,
    shape_of,
    wide,
)
from oarlock_onnx.registry import operator

__all__: list[str] = []

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Rule:
    """How coordinates and neighbours are chosen."""

    mode: str
    transform: str
    nearest: str
    cubic: float
    exclude_outside: bool
    antialias: bool
    extrapolation: float


@operator("Resize", "Upsample")
def resize(b: GraphBuilder, node: Node) -> Value:
    """The input sampled at another size."""
    x = node.input(0)
    rule = _rule(node)
    rank = len(shape_of(x))
    axes = axes_of(node.integers("axes", tuple(range(rank))), rank)
    scales, sizes = _targets(b, node, [shape_of(x)[axis] for axis in axes])
    roi = _roi(b, node, rule, len(axes))
    check_size("the result", [sizes[axes.index(a)] if a in axes else d for a, d in enumerate(shape_of(x))], dtype_of(x))
    kind = dtype_of(x)
    result = x if rule.mode == "nearest" else cast(b, x, wide(kind)) if kind.is_float else cast(b, x, dtypes.float32)
    outside: list[tuple[int, Array]] = []
    for place, axis in enumerate(axes):
        dim = shape_of(x)[axis]
        if scales[place] == 1 and sizes[place] == dim and rule.transform != "tf_crop_and_resize":
            continue
        if dim == 0:
            raise ModelError("an empty dimension cannot be resized")
        check_host("resizing", sizes[place])
        coordinates = _coordinates(rule.transform, dim, sizes[place], scales[place], roi, place)
        if rule.transform == "tf_crop_and_resize":
            outside.append((axis, (coordinates < 0) | (coordinates > dim - 1)))
        result = _along(b, result, axis, coordinates, min(scales[place], 1.0), rule)
    for axis, mask in outside:
        if mask.any():
            along = [1] * rank
            along[axis] = len(mask)
            result = b("select", b.constant(mask.reshape(along)), like(b, rule.extrapolation, result), result)
    if kind.is_integer and rule.mode != "nearest":
        result = b("trunc", result)
    return cast(b, result, kind)


def _rule(node: Node) -> _Rule:
    mode = node.string("mode", "nearest")
    if mode == "bilinear":
        mode = "linear"
    if mode not in ("nearest", "linear", "cubic"):
        raise ModelError(f"mode {mode!r} is not nearest, linear or cubic")
    if node.op_type == "Upsample" or node.version < 11:
        nearest = "floor" if node.op_type == "Upsample" else "simple"
        return _Rule(mode, "asymmetric", nearest, -0.75, False, False, 0.0)
    return _Rule(
        mode,
        node.string("coordinate_transformation_mode", "half_pixel"),
        node.string("nearest_mode", "round_prefer_floor"),
        node.real("cubic_coeff_a", -0.75),
        node.flag("exclude_outside"),
        node.flag("antialias"),
        node.real("extrapolation_value", 0.0),
    )


def _roi(b: GraphBuilder, node: Node, rule: _Rule, count: int) -> tuple[float, ...]:
    if rule.transform != "tf_crop_and_resize":
        return ()
    roi = tuple(float(item) for item in b.static(node.input(1), "roi").reshape(-1))
    if len(roi) != 2 * count:
        raise ModelError(f"roi {list(roi)} does not fit {count} axes")
    return roi


def _targets(b: GraphBuilder, node: Node, dims: Sequence[int]) -> tuple[list[float], list[int]]:
    """The scale and the size of each axis, from whichever of them is given."""
    scales_at, sizes_at = (2, 3) if node.op_type == "Resize" and node.version >= 11 else (1, 9)
    given = node.optional(sizes_at)
    if given is not None:
        sizes = list(b.ints(given, "sizes"))
        if sizes:
            return _from_sizes(node, dims, sizes)
    if node.op_type == "Upsample" and node.version < 9:
        scales = list(node.reals("scales")) if node.has("scales") else [1.0, 1.0]
        if not node.has("scales"):
            scales += [node.real("height_scale"), node.real("width_scale")]
    else:
        scales = [float(item) for item in b.static(node.input(scales_at), "scales").reshape(-1)]
    if len(scales) != len(dims) or not all(0 < scale < 2**31 for scale in scales):
        raise ModelError(f"scales {scales} do not fit {list(dims)}")
    return scales, [math.floor(dim * scale) for dim, scale in zip(dims, scales, strict=True)]


def _from_sizes(node: Node, dims: Sequence[int], sizes: list[int]) -> tuple[list[float], list[int]]:
    if len(sizes) != len(dims) or min(sizes) < 0 or 0 in dims:
        raise ModelError(f"sizes {sizes} do not fit {list(dims)}")
    policy = node.string("keep_aspect_ratio_policy", "stretch")
    scales = [size / dim for size, dim in zip(sizes, dims, strict=True)]
    if policy == "stretch":
        return scales, sizes
    if policy not in ("not_larger", "not_smaller"):
        raise ModelError(f"keep_aspect_ratio_policy {policy!r} is not known")
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [scale] * len(dims), [math.floor(scale * dim + 0.5) for dim in dims]


def _coordinates(transform: str, dim: int, size: int, scale: float, roi: Sequence[float], place: int) -> Array:
    """Where in the input each output element lies (float64); the exact output length need not be whole."""
    x, exact = np.arange(size, dtype=np.float64), scale * dim
    if transform == "half_pixel":
        return (x + 0.5) / scale - 0.5
    if transform == "half_pixel_symmetric":
        return dim / 2 * (1 - size / exact) + (x + 0.5) / scale - 0.5
    if transform == "pytorch_half_pixel":
        return (x + 0.5) / scale - 0.5 if size > 1 else np.zeros(size)
    if transform == "align_corners":
        return x * (dim - 1) / (exact - 1) if exact > 1 else np.zeros(size)
    if transform == "asymmetric":
        return x / scale
    if transform == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    if transform == "tf_crop_and_resize":
        start, end = roi[place], roi[place + len(roi) // 2]
        if size > 1:
            return start * (dim - 1) + x * (end - start) * (dim - 1) / (size - 1)
        return np.full(size, 0.5 * (start + end) * (dim - 1))
    raise ModelError(f"coordinate_transformation_mode {transform!r} is not known")


def _along(b: GraphBuilder, x: Value, axis: int, coordinates: Array, shrink: float, rule: _Rule) -> Value:
    dim = shape_of(x)[axis]
    if rule.mode == "nearest":
        return _pick(b, x, axis, np.clip(_nearest(coordinates, rule.nearest, shrink), 0, dim - 1).astype(np.int64))
    places, weights = _taps(coordinates, shrink, rule)
    if rule.exclude_outside:
        weights = np.where((places >= 0) & (places < dim), weights, 0.0)
        weights = weights / weights.sum(axis=1, keepdims=True)
    places = np.clip(places, 0, dim - 1)
    along = [1] * len(shape_of(x))
    along[axis] = len(coordinates)
    total: Value | None = None
    for tap in range(places.shape[1]):
        if not weights[:, tap].any():
            continue
        part = gather_axis(b, x, places[:, tap], axis)
        part = b("multiply", part, b.constant(weights[:, tap].reshape(along), dtype_of(x)))
        total = part if total is None else b("add", total, part)
    return gather_axis(b, x, places[:, 0], axis) if total is None else total


def _pick(b: GraphBuilder, x: Value, axis: int, places: Array) -> Value:
    """Elements along an axis; a plain repetition without indices."""
    shape = shape_of(x)
    times = len(places) // shape[axis] if shape[axis] else 0
    if times and np.array_equal(places, np.repeat(np.arange(shape[axis]), times)):
        split = reshape(b, x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
        spread = expand(b, split, (*shape[: axis + 1], times, *shape[axis + 1 :]))
        return reshape(b, spread, (*shape[:axis], shape[axis] * times, *shape[axis + 1 :]))
    return gather_axis(b, x, places, axis)


def _nearest(coordinates: Array, mode: str, shrink: float) -> Array:
    if mode == "round_prefer_floor":
        return np.ceil(coordinates - 0.5)
    if mode == "round_prefer_ceil":
        return np.floor(coordinates + 0.5)
    if mode == "floor":
        return np.floor(coordinates)
    if mode == "ceil":
        return np.ceil(coordinates)
    if mode == "simple":
        return np.ceil(coordinates) if shrink < 1 else np.floor(coordinates)
    raise ModelError(f"nearest_mode {mode!r} is not known")


def _taps(coordinates: Array, shrink: float, rule: _Rule) -> tuple[Array, Array]:
    """Neighbours [size, taps] and their weights; when shrinking with ``antialias`` the filter widens."""
    scale = shrink if rule.antialias else 1.0
    radius = (1.0 if rule.mode == "linear" else 2.0) / scale
    first = np.floor(coordinates - radius) + 1
    count = math.ceil(2 * radius) + 1 if scale < 1 else int(2 * radius)
    check_host("resizing", len(coordinates), count)
    places = first[:, None] + np.arange(count)[None, :]
    distance = np.abs(places - coordinates[:, None]) * scale
    weights = np.maximum(0.0, 1.0 - distance) if rule.mode == "linear" else _cubic(distance, rule.cubic)
    if scale < 1:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return places.astype(np.int64), weights


def _cubic(distance: Array, a: float) -> Array:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
