"""Contractions: products summed over shared axes (dot_general) and over windows (convolution)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import ShapeError
from oarlock.ir import Dim, TensorType
from oarlock.ops.inference import (
    FLOATS,
    NUMERIC,
    check_dtype,
    dtype_of,
    flag_of,
    int_of,
    ints_of,
    pairs_of,
    same_dtypes,
    static_shape,
    window_size,
)
from oarlock.ops.numerics import accumulator, narrow, quiet
from oarlock.ops.record import Array, Attributes, Record
from oarlock.ops.sampling import sample, small

__all__ = ["CONTRACT", "contraction_axes", "product_dtype"]

_EXACT_LIMIT = 1 << 20
"""Up to so many products a float64 contraction is summed in extended precision, which no fast library offers."""

_ROWS = 64
"""A convolution's reference multiplies matrices of about so many rows: more need memory, fewer need calls."""

Axes = tuple[int, ...]


def contraction_axes(attributes: Attributes, x: int, y: int) -> tuple[Axes, Axes, Axes, Axes, Axes, Axes]:
    """Batch, contracted and free axes of x, then of y, from their ranks; raises ShapeError for unusable attributes."""
    sides: list[tuple[Axes, Axes, Axes]] = []
    for side, rank in enumerate((x, y)):
        named: list[Axes] = []
        for key in ("batch", "contract"):
            value = attributes[key]
            pair = value if isinstance(value, tuple) and len(value) == 2 else ()
            if len(pair) != 2 or not all(isinstance(p, tuple) for p in pair) or len(pair[0]) != len(pair[1]):  # type: ignore[arg-type]
                raise ShapeError(f"dot_general: {key} is {value!r}, not two tuples of equally many axes")
            named.append(cast(Axes, pair[side]))
        used = (*named[0], *named[1])
        if len(set(used)) != len(used) or any(not isinstance(a, int) or not 0 <= a < rank for a in used):
            raise ShapeError(
                f"dot_general: operand {side} has batch axes {named[0]} and contracted axes {named[1]}, "
                f"which must be distinct numbers in [0, {rank})"
            )
        sides.append((named[0], named[1], tuple(a for a in range(rank) if a not in used)))
    return (*sides[0], *sides[1])


def _infer_dot(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    x, y = types
    check_dtype("dot_general", "the operand", same_dtypes("dot_general", types), NUMERIC)
    check_dtype("dot_general", "attribute dtype", dtype_of(attributes), FLOATS if x.dtype.is_float else NUMERIC)
    batch, contract, free, batch_y, contract_y, free_y = contraction_axes(attributes, x.rank, y.rank)
    for left, right in zip((*batch, *contract), (*batch_y, *contract_y), strict=True):
        if x.shape[left] != y.shape[right]:
            raise ShapeError(f"dot_general: axis {left} of {x} and axis {right} of {y} differ in size")
    shape: tuple[Dim, ...] = (
        *(x.shape[a] for a in (*batch, *free)),
        *(y.shape[a] for a in free_y),
    )
    return (TensorType(dtype_of(attributes), shape),)


@quiet
def _dot(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, y = operands
    batch, contract, free, batch_y, contract_y, free_y = contraction_axes(attributes, x.ndim, y.ndim)
    shape = [x.shape[a] for a in (*batch, *free)] + [y.shape[a] for a in free_y]
    count = [math.prod(x.shape[a] for a in axes) for axes in (batch, free, contract)]
    columns = math.prod(y.shape[a] for a in free_y)
    result = dtype_of(attributes).numpy
    wide = product_dtype(x.dtype, result, math.prod(count) * columns)
    left = x.transpose(*batch, *free, *contract).reshape(count).astype(wide)
    right = y.transpose(*batch_y, *contract_y, *free_y).reshape(count[0], count[2], columns).astype(wide)
    return (narrow(np.matmul(left, right).reshape(shape), result),)


def product_dtype(operand: np.dtype[Any], result: np.dtype[Any], products: int) -> np.dtype[Any]:
    """The dtype in which a reference sums ``products`` products of ``operand`` dtype to results of ``result`` dtype."""
    wide = np.promote_types(accumulator(operand), accumulator(result))
    extended = wide == np.dtype(np.longdouble)
    return np.dtype(np.float64) if extended and products > _EXACT_LIMIT else wide


def _window(name: str, attributes: Attributes, rank: int) -> tuple[Axes, tuple[tuple[int, int], ...], Axes]:
    return (
        ints_of(name, attributes, "strides", rank, least=1),
        pairs_of(name, attributes, "padding", rank),
        ints_of(name, attributes, "dilation", rank, least=1),
    )


def _infer_convolution(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    x, w = types
    check_dtype("convolution", "the operand", same_dtypes("convolution", types), FLOATS)
    last = flag_of(attributes, "channels_last")
    if x.rank != w.rank or x.rank < 3:
        form = "[N, spatial..., C]" if last else "[N, C, spatial...]"
        raise ShapeError(f"convolution: x is {x} and w is {w}, not {form} and [O, C/groups, spatial...]")
    groups = int_of("convolution", attributes, "groups", least=1)
    strides, padding, dilation = _window("convolution", attributes, x.rank - 2)
    weights = static_shape("convolution", "w", w)
    first = 1 if last else 2
    if x.shape[-1 if last else 1] != weights[1] * groups or weights[0] % groups:
        raise ShapeError(
            f"convolution: {groups} groups of {weights[1]} input and {weights[0]} output channels in all do not fit {x}"
        )
    if 0 in weights[2:]:
        raise ShapeError(f"convolution: w is {w}: its window is empty")
    spatial = tuple(
        window_size(
            "convolution", x.shape[i + first], weights[i + 2], strides[i], padding[i], dilation[i],
            f"axis {i + first} of x",
        )
        for i in range(x.rank - 2)
    )  # fmt: skip
    shape = (x.shape[0], *spatial, weights[0]) if last else (x.shape[0], weights[0], *spatial)
    return (TensorType(x.dtype, shape),)


@quiet
def _convolution(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, w = operands
    last = flag_of(attributes, "channels_last")
    x = np.moveaxis(x, -1, 1) if last else x
    groups = cast(int, attributes["groups"])
    strides, padding, dilation = _window("convolution", attributes, x.ndim - 2)
    spatial = [
        (x.shape[i + 2] + sum(padding[i]) - (w.shape[i + 2] - 1) * dilation[i] - 1) // strides[i] + 1
        for i in range(x.ndim - 2)
    ]
    wide = product_dtype(x.dtype, x.dtype, x.shape[0] * math.prod(spatial) * w.size)
    padded = np.pad(x.astype(wide), ((0, 0), (0, 0), *padding))
    channels, outputs = w.shape[1], w.shape[0] // groups
    weights = w.astype(wide).reshape(groups, outputs, channels, *w.shape[2:])
    total = np.zeros((x.shape[0], groups, outputs, math.prod(spatial)), wide)

    def part(offset: tuple[int, ...]) -> Array:
        """What the weight at ``offset`` meets: [N, groups, C/groups, positions]."""
        view = tuple(
            slice(o * d, o * d + (size - 1) * s + 1, s)
            for o, d, s, size in zip(offset, dilation, strides, spatial, strict=True)
        )
        return padded[(slice(None), slice(None), *view)].reshape(x.shape[0], groups, channels, total.shape[3])

    offsets = list(itertools.product(*map(range, w.shape[2:])))
    count = max(_ROWS // max(channels, 1), 1)
    for chunk in (offsets[i : i + count] for i in range(0, len(offsets), count)):
        at: list[tuple[Any, ...]] = [(..., *offset) for offset in chunk]
        total += np.matmul(
            np.concatenate([weights[place] for place in at], 2), np.concatenate([part(offset) for offset in chunk], 2)
        )
    result = narrow(total.reshape(x.shape[0], w.shape[0], *spatial), x.dtype)
    return (np.ascontiguousarray(np.moveaxis(result, 1, -1)) if last else result,)


def _dot_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    cases: list[tuple[tuple[int, ...], tuple[int, ...], Any, Any]] = [
        ((3, 5), (5, 2), ((), ()), ((1,), (0,))),
        ((5,), (5,), ((), ()), ((0,), (0,))),
        ((), (), ((), ()), ((), ())),
        ((3,), (4,), ((), ()), ((), ())),
        ((2, 3, 5), (2, 5, 4), ((0,), (0,)), ((2,), (1,))),
        ((3, 2, 5), (4, 5, 3), ((0,), (2,)), ((2,), (1,))),
        ((2, 3, 4), (4, 3, 6), ((), ()), ((1, 2), (1, 0))),
        ((3, 0), (0, 2), ((), ()), ((1,), (0,))),
        ((0, 3), (3, 2), ((), ()), ((1,), (0,))),
        ((17, 33), (33, 19), ((), ()), ((1,), (0,))),
        ((1, 129), (129, 5), ((), ()), ((1,), (0,))),
        ((65, 4), (31, 4), ((), ()), ((1,), (1,))),
    ]
    results = [dtype] + ([dtypes.float32] if dtype.is_float and dtype.bits == 16 else [])
    results += [dtypes.int32] if dtype.is_integer and dtype.bits == 8 else []
    return [
        sample(small(dtype, rng, x), small(dtype, rng, y), batch=batch, contract=contract, dtype=result)
        for result in results
        for x, y, batch, contract in cases
    ]


def _convolution_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    cases: list[tuple[Any, ...]] = [
        ((2, 3, 7, 6), (4, 3, 3, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
        ((1, 3, 8, 8), (5, 3, 3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 1),
        ((2, 4, 9), (6, 2, 3), (2,), ((0, 2),), (2,), 2),
        ((1, 5, 6, 5), (5, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 5),
        ((1, 3, 4, 4), (2, 3, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
        ((1, 2, 4, 5, 3), (3, 2, 2, 3, 2), (1, 2, 1), ((0, 1), (1, 1), (0, 0)), (1, 1, 2), 1),
        ((0, 2, 5), (3, 2, 3), (1,), ((0, 0),), (1,), 1),
        ((2, 6, 7, 3), (17, 3, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1, True),
        ((1, 9, 8, 4), (5, 4, 3, 2), (2, 1), ((1, 0), (0, 2)), (1, 3), 1, True),
        ((3, 5, 5, 9), (9, 9, 1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1), 1, True),
        ((1, 7, 6, 6), (6, 1, 3, 3), (1, 2), ((1, 1), (1, 1)), (2, 1), 6, True),
        ((2, 9, 4), (6, 2, 3), (2,), ((0, 2),), (2,), 2, True),
        ((1, 4, 3, 5, 2), (3, 2, 2, 2, 3), (1, 1, 2), ((0, 1), (0, 0), (1, 1)), (1, 1, 1), 1, True),
        ((0, 5, 2), (3, 2, 3), (1,), ((0, 0),), (1,), 1, True),
    ]
    keys = ("strides", "padding", "dilation", "groups", "channels_last")
    return [
        sample(small(dtype, rng, x), small(dtype, rng, w), **dict(zip(keys, rest, strict=False)))
        for x, w, *rest in cases
    ]


CONTRACT: tuple[Record, ...] = (
    Record(
        "dot_general",
        "contract",
        "Products summed over the contracted axes, for each pair of batch axes: batch, then free axes of x, then of y. "
        "Sums of float16 and bfloat16 are formed in float32, of others in dtype.",
        ("x", "y"),
        _infer_dot,
        _dot,
        attributes={"batch": tuple, "contract": tuple, "dtype": DType},
        dtypes=NUMERIC,
        tolerance="contraction",
        samples=_dot_samples,
    ),
    Record(
        "convolution",
        "contract",
        "Windows of x [N, C, spatial...] times weights w [O, C/groups, spatial...] (correlation: w is not flipped); "
        "with channels_last x is [N, spatial..., C], and the result alike.",
        ("x", "w"),
        _infer_convolution,
        _convolution,
        attributes={"strides": tuple, "padding": tuple, "dilation": tuple, "groups": int, "channels_last": bool},
        optional=frozenset({"channels_last"}),
        dtypes=FLOATS,
        tolerance="contraction",
        samples=_convolution_samples,
    ),
)
"""Their records."""
