"""Composite products and shapes of convolution: matmul, transposed convolution."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from oarlock.dtypes import DType
from oarlock.errors import ShapeError
from oarlock.ir import Dim, TensorType, Value
from oarlock.ops.build import broadcast_to, strided_slice
from oarlock.ops.composite import composite, wide_reference
from oarlock.ops.contract import product_dtype
from oarlock.ops.inference import (
    FLOATS,
    NUMERIC,
    broadcast_shapes,
    check_dtype,
    int_of,
    ints_of,
    pairs_of,
    same_dtypes,
    static_shape,
)
from oarlock.ops.numerics import narrow, quiet
from oarlock.ops.record import Array, ArrayBuilder, Attributes, Record, tensor
from oarlock.ops.sampling import sample, small

__all__ = ["LINEAR"]


def _infer_matmul(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    x, y = types
    check_dtype("matmul", "the operand", same_dtypes("matmul", types), NUMERIC)
    if x.rank == 0 or y.rank == 0:
        raise ShapeError(f"matmul: operands are {x} and {y}, but none may be 0-d: use multiply")
    if x.shape[-1] != y.shape[max(y.rank - 2, 0)]:
        raise ShapeError(
            f"matmul: the last axis of {x} and the {'last but one' if y.rank > 1 else 'only'} of {y} differ"
        )
    batch = broadcast_shapes("matmul", x.shape[:-2], y.shape[:-2])
    return (TensorType(x.dtype, (*batch, *x.shape[-2:-1], *(y.shape[-1:] if y.rank > 1 else ()))),)


def _emit_matmul(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, y = operands
    left, right = tensor(x), tensor(y)
    if right.rank <= 2:
        contract: Any = ((left.rank - 1,), (max(right.rank - 2, 0),))
        return (b("dot_general", x, y, batch=((), ()), contract=contract, dtype=left.dtype),)
    batch: tuple[Dim, ...] = broadcast_shapes("matmul", left.shape[:-2], right.shape[:-2])
    count = len(batch)
    x = broadcast_to(b, x, (*batch, *left.shape[-2:])) if left.rank > 1 else broadcast_to(b, x, (*batch, *left.shape))
    y = broadcast_to(b, y, (*batch, *right.shape[-2:]))
    axes = tuple(range(count))
    contract = ((tensor(x).rank - 1,), (count,))
    return (b("dot_general", x, y, batch=(axes, axes), contract=contract, dtype=left.dtype),)


@quiet
def _matmul(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, y = operands
    wide = product_dtype(x.dtype, x.dtype, x.size * (y.shape[-1] if y.ndim > 1 else 1))
    return (narrow(np.matmul(x.astype(wide), y.astype(wide)), x.dtype),)


def _matmul_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    cases: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((3, 5), (5, 2)), ((5,), (5,)), ((5,), (5, 2)), ((3, 5), (5,)), ((2, 3, 5), (5, 4)), ((3, 5), (2, 5, 4)),
        ((2, 1, 3, 5), (4, 5, 2)), ((5,), (2, 5, 4)), ((2, 3, 5), (5,)), ((0, 3), (3, 2)), ((2, 0), (0, 3)),
        ((17, 129), (129, 33)),
    ]  # fmt: skip
    return [sample(small(dtype, rng, x), small(dtype, rng, y)) for x, y in cases]


def _geometry(attributes: Attributes, rank: int) -> tuple[tuple[int, ...], Any, tuple[int, ...], tuple[int, ...]]:
    """Strides, padding, dilation, output padding of ``rank`` spatial dimensions."""
    name = "conv_transpose"
    return (
        ints_of(name, attributes, "strides", rank, least=1),
        pairs_of(name, attributes, "padding", rank),
        ints_of(name, attributes, "dilation", rank, least=1),
        ints_of(name, attributes, "output_padding", rank, least=0),
    )


def _infer_transposed(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    x, w = types
    check_dtype("conv_transpose", "the operand", same_dtypes("conv_transpose", types), FLOATS)
    if x.rank != w.rank or x.rank < 3:
        raise ShapeError(f"conv_transpose: x is {x} and w is {w}, not [N, C, spatial...] and [C, O/groups, spatial...]")
    groups = int_of("conv_transpose", attributes, "groups", least=1)
    shape, weights = static_shape("conv_transpose", "x", x, 1), static_shape("conv_transpose", "w", w)
    if shape[0] != weights[0] or shape[0] % groups:
        raise ShapeError(f"conv_transpose: {x} and weights {w} do not agree in {groups} groups of channels")
    strides, padding, dilation, extra = _geometry(attributes, x.rank - 2)
    spatial = []
    for i, (size, window) in enumerate(zip(shape[1:], weights[2:], strict=True)):
        full = (size - 1) * strides[i] + (window - 1) * dilation[i] + 1 + extra[i] - sum(padding[i])
        if size == 0 or window == 0 or full < 0 or extra[i] >= max(strides[i], dilation[i]):
            raise ShapeError(f"conv_transpose: axis {i + 2} of {x} and {w} gives no result with {dict(attributes)}")
        spatial.append(full)
    return (TensorType(x.dtype, (x.shape[0], weights[1] * groups, *spatial)),)


def _emit_transposed(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, w = operands
    rank, groups = tensor(x).rank - 2, cast(int, attributes["groups"])
    strides, padding, dilation, extra = _geometry(attributes, rank)
    window = tensor(w).static_shape[2:]
    reach = [(k - 1) * d for k, d in zip(window, dilation, strict=True)]
    low = [r - lo for r, (lo, _) in zip(reach, padding, strict=True)]
    high = [r - hi + e for r, (_, hi), e in zip(reach, padding, extra, strict=True)]
    zero = b.constant(0, tensor(x).dtype)
    spread = b(
        "pad",
        x,
        zero,
        low=(0, 0, *(max(p, 0) for p in low)),
        high=(0, 0, *(max(p, 0) for p in high)),
        interior=(0, 0, *(s - 1 for s in strides)),
    )
    crop = [
        slice(max(-lo, 0), dim - max(-hi, 0))
        for lo, hi, dim in zip(low, high, static_shape("conv_transpose", "x", tensor(spread), 2), strict=True)
    ]
    spread = strided_slice(b, spread, [slice(None), slice(None), *crop]) if min([0, *low, *high]) < 0 else spread
    kernel = b("reverse", _swapped(b, w, groups), axes=tuple(range(2, rank + 2)))
    ones = (1,) * rank
    return (b("convolution", spread, kernel, strides=ones, padding=((0, 0),) * rank, dilation=dilation, groups=groups),)


def _swapped(b: ArrayBuilder, w: Value, groups: int) -> Value:
    """[C, O/groups, ...] as [O, C/groups, ...]."""
    channels, outputs, *window = tensor(w).static_shape
    grouped = b("reshape", w, shape=(groups, channels // groups, outputs, *window))
    turned = b("transpose", grouped, permutation=(0, 2, 1, *range(3, 3 + len(window))))
    return b("reshape", turned, shape=(groups * outputs, channels // groups, *window))


def _transposed(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    """Every value of x adds its multiple of the window to the result; the padding is cut off at the end."""
    x, w = operands
    groups = cast(int, attributes["groups"])
    strides, padding, dilation, extra = _geometry(attributes, x.ndim - 2)
    spread = [
        (n - 1) * s + (k - 1) * d + 1 + e
        for n, s, k, d, e in zip(x.shape[2:], strides, w.shape[2:], dilation, extra, strict=True)
    ]
    result = np.zeros((x.shape[0], groups, w.shape[1], *spread), x.dtype)
    inputs = x.reshape(x.shape[0], groups, -1, math.prod(x.shape[2:]))
    weights = w.reshape(groups, -1, *w.shape[1:])
    for offset in itertools.product(*map(range, w.shape[2:])):
        at: tuple[Any, ...] = (..., *offset)
        part = np.matmul(weights[at].swapaxes(1, 2), inputs)
        view = tuple(
            slice(o * d, o * d + (n - 1) * s + 1, s)
            for o, d, n, s in zip(offset, dilation, x.shape[2:], strides, strict=True)
        )
        result[(slice(None), slice(None), slice(None), *view)] += part.reshape(*part.shape[:3], *x.shape[2:])
    crop = tuple(slice(lo, size - hi) for size, (lo, hi) in zip(spread, padding, strict=True))
    return (result.reshape(x.shape[0], groups * w.shape[1], *spread)[(slice(None), slice(None), *crop)],)


def _transposed_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    cases: list[tuple[Any, ...]] = [
        ((1, 2, 3, 3), (2, 4, 3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), (0, 0), 1),
        ((2, 3, 4, 3), (3, 2, 3, 2), (2, 3), ((1, 1), (0, 1)), (1, 1), (1, 2), 1),
        ((1, 4, 5), (4, 3, 3), (2,), ((1, 0),), (2,), (1,), 2),
        ((1, 2, 4), (2, 1, 2), (1,), ((2, 2),), (1,), (0,), 2),
        ((1, 2, 2, 3, 2), (2, 2, 2, 2, 1), (2, 1, 2), ((0, 0), (0, 1), (0, 0)), (1, 1, 1), (0, 0, 1), 1),
    ]
    keys = ("strides", "padding", "dilation", "output_padding", "groups")
    return [
        sample(small(dtype, rng, x), small(dtype, rng, w), **dict(zip(keys, rest, strict=True)))
        for x, w, *rest in cases
    ]


LINEAR: tuple[Record, ...] = (
    composite(
        "matmul",
        "contract",
        "The matrix product by NumPy's rules: 1-d operands are a row and a column, leading axes broadcast.",
        "x y",
        _infer_matmul,
        _matmul,
        _emit_matmul,
        _matmul_samples,
        dtypes=NUMERIC,
        tolerance="contraction",
    ),
    composite(
        "conv_transpose",
        "contract",
        "The gradient of convolution by its input as an operator: x [N, C, spatial...] spread out by strides and "
        "multiplied with w [C, O/groups, spatial...]; output_padding enlarges the high end.",
        "x w",
        _infer_transposed,
        wide_reference(_transposed),
        _emit_transposed,
        _transposed_samples,
        attributes={"strides": tuple, "padding": tuple, "dilation": tuple, "output_padding": tuple, "groups": int},
        dtypes=FLOATS,
        tolerance="contraction",
    ),
)
"""Their records."""
