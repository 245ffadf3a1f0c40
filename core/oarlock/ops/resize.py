"""Composite resize: nearest, linear or cubic interpolation along each axis, as gathers with constant weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import ShapeError
from oarlock.ir import TensorType, Value
from oarlock.ir.extents import known
from oarlock.ops.composite import composite, in_single, number, wide_reference
from oarlock.ops.inference import FLOATS, check_dtype, ints_of, static_shape
from oarlock.ops.record import Array, ArrayBuilder, Attributes, Record, tensor
from oarlock.ops.sampling import sample, small

__all__ = ["COORDINATES", "NEAREST", "RESIZE", "taps"]

COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_MODES = ("nearest", "linear", "cubic")
_DEFAULT_CUBIC = -0.75


def _positions(attributes: Attributes, size: int, target: int, scale: float) -> Array:
    """Where each element of a resized axis lies on the original one, as ONNX's Resize defines it.

    The nearest element jumps where a position is rounded, so there positions are float32, as frameworks have them.
    """
    kind: Any = np.float32 if attributes["mode"] == "nearest" else np.float64
    at, ratio, mode = np.arange(target).astype(kind), kind(scale), attributes["coordinates"]
    if mode == "align_corners":
        found = at * (size - 1) / (target - 1) if target > 1 else at * 0
    elif mode == "asymmetric":
        found = at / ratio
    elif mode == "pytorch_half_pixel" and target <= 1:
        found = at * 0
    else:
        found = (at + 0.5) / ratio - 0.5
        if mode == "half_pixel_symmetric":
            found = found + size / 2 * (1 - target / (ratio * size))
    return np.asarray(found, np.float64)


def _nearest(positions: Array, rounding: str) -> Array:
    if rounding == "round_prefer_floor":
        return np.ceil(positions - 0.5)
    if rounding == "round_prefer_ceil":
        return np.floor(positions + 0.5)
    return np.floor(positions) if rounding == "floor" else np.ceil(positions)


def _cubic(t: Array, a: float) -> list[Array]:
    """Weights of the four neighbours at distances 1 + t, t, 1 - t, 2 - t (Keys, 1981)."""
    near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, 1 - t)]
    far = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (1 + t, 2 - t)]
    return [far[0], near[0], near[1], far[1]]


def taps(attributes: Attributes, size: int, target: int, scale: float) -> list[tuple[Array, Array]]:
    """(indices, weights) of the elements that each element of a resized axis is made of."""
    positions = _positions(attributes, size, target, scale)
    mode = attributes["mode"]
    if mode == "nearest":
        found = _nearest(positions, str(attributes.get("rounding", NEAREST[0])))
        return [(np.clip(found, 0, size - 1).astype(np.int32), np.ones(target))]
    base = np.floor(positions)
    t = positions - base
    weights = [1 - t, t] if mode == "linear" else _cubic(t, number(attributes, "cubic", _DEFAULT_CUBIC))
    first = 0 if mode == "linear" else -1
    return [(np.clip(base + first + i, 0, size - 1).astype(np.int32), weight) for i, weight in enumerate(weights)]


def _scales(attributes: Attributes, shape: Sequence[int], sizes: Sequence[int]) -> list[float]:
    given = attributes.get("scales")
    if given is not None:
        return [float(scale) for scale in cast("tuple[float, ...]", given)]
    return [target / size if size else 1.0 for size, target in zip(shape, sizes, strict=True)]


def _plan(attributes: Attributes, shape: Sequence[int]) -> list[tuple[int, list[tuple[Array, Array]]]]:
    """The axes that change, with their taps."""
    shape = [known(size) for size in shape]
    sizes = [known(size) for size in cast("tuple[int, ...]", attributes["sizes"])]
    scales = _scales(attributes, shape, sizes)
    return [
        (axis, taps(attributes, size, target, scale))
        for axis, (size, target, scale) in enumerate(zip(shape, sizes, scales, strict=True))
        if size != target or scale != 1.0
    ]


def _infer(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (x,) = types
    check_dtype("resize", "the operand", x.dtype, dtypes.ALL if attributes["mode"] == "nearest" else FLOATS)
    shape = static_shape("resize", "x", x)
    sizes = ints_of("resize", attributes, "sizes", x.rank, least=0)
    for key, allowed in (("mode", _MODES), ("coordinates", COORDINATES), ("rounding", NEAREST)):
        if attributes.get(key, allowed[0]) not in allowed:
            raise ShapeError(f"resize: {key} is {attributes[key]!r}, but may be {', '.join(allowed)}")
    scales = attributes.get("scales")
    if scales is not None and (not isinstance(scales, tuple) or len(scales) != x.rank or min(cast(Any, scales)) <= 0):
        raise ShapeError(f"resize: scales are {scales}, but {x.rank} numbers > 0 are needed for {x}")
    for axis, (size, target) in enumerate(zip(shape, sizes, strict=True)):
        if size == 0 and target > 0:
            raise ShapeError(f"resize: axis {axis} of {x} is empty and cannot grow to {target}")
    return (TensorType(x.dtype, sizes),)


def _emit(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    (x,) = operands
    for axis, parts in _plan(attributes, tensor(x).static_shape):
        terms = []
        for indices, weights in parts:
            taken = b("gather", x, b.constant(indices), axis=axis)
            if attributes["mode"] != "nearest":
                weight = b.constant(weights, tensor(x).dtype)
                taken = b("multiply", taken, b("broadcast", weight, shape=tensor(taken).shape, dims=(axis,)))
            terms.append(taken)
        x = terms[0]
        for term in terms[1:]:
            x = b("add", x, term)
    return (x,)


def _reference(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    (x,) = operands
    for axis, parts in _plan(attributes, x.shape):
        terms = [
            np.take(x, indices, axis)
            if attributes["mode"] == "nearest"
            else np.take(x, indices, axis) * weights.reshape(-1, *[1] * (x.ndim - axis - 1))
            for indices, weights in parts
        ]
        x = terms[0] if len(terms) == 1 else np.sum(terms, axis=0)
    return (x,)


def _samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((1, 2, 4, 5), (1, 2, 8, 7)), ((1, 1, 6, 5), (1, 1, 3, 2)), ((2, 3, 5), (2, 3, 11)),
        ((1, 1, 1, 3), (1, 1, 4, 1)),
    ]  # fmt: skip
    modes: list[dict[str, Any]] = [{"mode": "nearest", "rounding": r} for r in NEAREST]
    if dtype.is_float:
        modes += [{"mode": "linear"}, {"mode": "cubic"}]
    return [
        sample(small(dtype, rng, shape), sizes=sizes, coordinates=coordinates, **mode)
        for shape, sizes in shapes
        for coordinates in (COORDINATES if shape == shapes[0][0] else COORDINATES[:1])
        for mode in modes
    ] + [
        sample(
            small(dtype, rng, (1, 1, 4, 4)),
            sizes=(1, 1, 9, 5),
            scales=(1.0, 1.0, 2.3, 1.4),
            coordinates=c,
            mode="nearest",
        )
        for c in COORDINATES
    ]


RESIZE: tuple[Record, ...] = (
    composite(
        "resize",
        "index",
        "x resized to sizes along every axis that changes; coordinates, rounding and cubic are ONNX Resize's "
        "coordinate_transformation_mode, nearest_mode and cubic_coeff_a; scales default to the ratio of sizes.",
        "x",
        _infer,
        wide_reference(_reference),
        in_single(_emit),
        _samples,
        attributes={
            "sizes": tuple,
            "mode": str,
            "coordinates": str,
            "rounding": str,
            "scales": tuple,
            "cubic": (float, int),
        },
        optional=("rounding", "scales", "cubic"),
        tolerance="reduction",
    ),
)
"""Its record."""
