"""Pad and the placing of parts: constant, reflected, repeated and wrapped edges."""

from __future__ import annotations

import math

import numpy as np

from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder
from oarlock_onnx.limits import check_host, check_size
from oarlock_onnx.node import Node
from oarlock_onnx.operators.common import axes_of, dtype_of, gather_axis, like, pad_axes, reshape, shape_of
from oarlock_onnx.registry import operator

__all__: list[str] = []

_INDEXED = ("reflect", "edge", "wrap")


@operator("Pad")
def pad(b: GraphBuilder, node: Node) -> Value:
    """Padding by ``mode``; negative amounts cut."""
    x = node.input(0)
    rank = len(shape_of(x))
    mode = node.string("mode", "constant")
    if node.version < 11:
        amounts = node.integers("paddings" if node.version < 2 else "pads")
        filler = like(b, node.real("value", 0.0), x)
        axes: tuple[int, ...] = tuple(range(rank))
    else:
        amounts = b.ints(node.input(1), "pads")
        given, chosen = node.optional(2), node.optional(3)
        filler = like(b, 0, x) if given is None else reshape(b, given, ())
        axes = tuple(range(rank)) if chosen is None else axes_of(b.ints(chosen, "axes"), rank)
    if len(amounts) != 2 * len(axes):
        raise ModelError(f"pads {list(amounts)} do not fit {len(axes)} axes")
    low, high = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        low[axis], high[axis] = amounts[place], amounts[place + len(axes)]
    wanted = [max(0, dim + lo + hi) for dim, lo, hi in zip(shape_of(x), low, high, strict=True)]
    check_size("the result", wanted, dtype_of(x))
    if mode == "constant":
        return pad_axes(b, x, low, high, filler)
    if mode not in _INDEXED:
        raise ModelError(f"mode {mode!r} is not one of constant, {', '.join(_INDEXED)}")
    for axis in range(rank):
        x = _indexed(b, x, axis, low[axis], high[axis], mode)
    return x


def _indexed(b: GraphBuilder, x: Value, axis: int, low: int, high: int, mode: str) -> Value:
    if low == 0 and high == 0:
        return x
    check_host(f"padding by {mode}", shape_of(x)[axis] + max(0, low) + max(0, high))
    places = np.arange(shape_of(x)[axis])
    places = places[max(0, -low) : len(places) - max(0, -high)]
    if not len(places) and (low > 0 or high > 0):
        raise ModelError(f"cannot pad an empty dimension by {mode}")
    padded = np.pad(places, (max(0, low), max(0, high)), mode=mode)  # type: ignore[call-overload]
    return gather_axis(b, x, padded, axis)


@operator("Col2Im")
def col2im(b: GraphBuilder, node: Node) -> Value:
    """Columns of blocks summed into an image: the reverse of taking patches."""
    x = node.input(0)
    image = b.ints(node.input(1), "image_shape")
    block = b.ints(node.input(2), "block_shape")
    rank = len(image)
    dilations, strides = node.integers("dilations", (1,) * rank), node.integers("strides", (1,) * rank)
    pads = node.integers("pads", (0,) * 2 * rank)
    if len(shape_of(x)) != 3 or not len(block) == len(dilations) == len(strides) == len(pads) // 2 == rank:
        raise ModelError("image_shape, block_shape, dilations, strides and pads do not fit")
    per, taps = [], math.prod(block)
    for axis in range(rank):
        span = image[axis] + pads[axis] + pads[axis + rank] - dilations[axis] * (block[axis] - 1) - 1
        if span < 0 or strides[axis] < 1:
            raise ModelError(f"blocks {list(block)} do not fit the image {list(image)}")
        count = span // strides[axis] + 1
        check_host("Col2Im", count, max(1, block[axis]))
        starts = np.arange(count) * strides[axis] - pads[axis]
        per.append(np.arange(block[axis])[:, None] * dilations[axis] + starts)
    n, rows, columns = shape_of(x)
    if taps == 0 or rows % taps or columns != math.prod(part.shape[1] for part in per):
        raise ModelError(f"columns {list(shape_of(x))} do not fit image {list(image)} and block {list(block)}")
    check_size("the image", (n * (rows // taps), *image), dtype_of(x))
    check_host("Col2Im", taps, columns)
    places = _positions(per, image)
    channels = rows // taps
    base = b("broadcast", like(b, 0, x), shape=(n * channels, math.prod(image)), dims=())
    updates = reshape(b, x, (n * channels, taps * columns))
    summed = b("scatter", base, b.constant(places.astype(np.int32)), updates, axis=1, kind="add")
    return reshape(b, summed, (n, channels, *image))


def _positions(per: list[np.ndarray], image: tuple[int, ...]) -> np.ndarray:
    """Flat image positions of [tap, column]; outside the image: one past its end, which a scatter drops."""
    rank = len(per)
    total = np.zeros((1,) * (2 * rank), np.int64)
    inside = np.ones((1,) * (2 * rank), bool)
    for axis, part in enumerate(per):
        dims = [1] * (2 * rank)
        dims[axis], dims[axis + rank] = part.shape
        spread = part.reshape(dims)
        total = total * image[axis] + spread
        inside = inside & (spread >= 0) & (spread < image[axis])
    return np.where(inside, total, math.prod(image)).reshape(-1)
