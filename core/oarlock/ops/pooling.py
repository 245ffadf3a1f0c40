"""Composite pooling over windows of the spatial axes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from oarlock.dtypes import DType
from oarlock.errors import ShapeError
from oarlock.ir import TensorType, Value
from oarlock.ir.extents import known
from oarlock.ops.composite import Decompose, composite, in_single, wide_reference
from oarlock.ops.inference import FLOATS, NUMERIC, check_dtype, flag_of, ints_of, pairs_of, window_size
from oarlock.ops.numerics import Reference, identity, narrow, quiet, widen
from oarlock.ops.record import Array, ArrayBuilder, Attributes, Infer, Record, tensor
from oarlock.ops.sampling import Samples, sample, small

__all__ = ["POOLING"]

Geometry = tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...], tuple[int, ...]]


def _geometry(name: str, attributes: Attributes, rank: int) -> Geometry:
    """Window, strides, padding, dilation of ``rank`` spatial axes; padding with what is never counted included."""
    window, strides = (ints_of(name, attributes, key, rank, least=1) for key in ("window", "strides"))
    dilation = ints_of(name, attributes, "dilation", rank, least=1) if "dilation" in attributes else (1,) * rank
    extra = ints_of(name, attributes, "extra", rank, least=0) if "extra" in attributes else (0,) * rank
    padding = pairs_of(name, attributes, "padding", rank)
    return window, strides, tuple((lo, hi + e) for (lo, hi), e in zip(padding, extra, strict=True)), dilation


def _infer(name: str, allowed: tuple[DType, ...]) -> Infer:
    def infer(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        (x,) = types
        check_dtype(name, "the operand", x.dtype, allowed)
        if x.rank < 2:
            raise ShapeError(f"{name}: x is {x}, but needs [N, C, spatial...]")
        geometry = zip(*_geometry(name, attributes, x.rank - 2), strict=True)
        spatial = [window_size(name, x.shape[i], *axis, f"axis {i} of x") for i, axis in enumerate(geometry, 2)]
        return (TensorType(x.dtype, (*x.shape[:2], *spatial)),)

    return infer


def _emit_window(b: ArrayBuilder, x: Value, name: str, kind: str, attributes: Attributes) -> Value:
    window, strides, padding, dilation = _geometry(name, attributes, tensor(x).rank - 2)
    return b(
        "window_reduce", x, kind=kind, window=(1, 1, *window), strides=(1, 1, *strides),
        padding=((0, 0), (0, 0), *padding), dilation=(1, 1, *dilation),
    )  # fmt: skip


def counts(attributes: Attributes, sizes: Sequence[int]) -> Array:
    """How many elements each window of ``average_pool`` counts, by position; at least 1."""
    window, strides, padding, dilation = _geometry("average_pool", attributes, len(sizes))
    extra = cast("tuple[int, ...]", attributes.get("extra", (0,) * len(sizes)))
    result = np.ones((), np.int64)
    for axis, size in enumerate(sizes):
        low, high = padding[axis]
        counted = np.zeros(low + size + high, np.int64)
        whole = flag_of(attributes, "count_include_pad")
        counted[0 if whole else low : len(counted) - (extra[axis] if whole else high)] = 1
        count = (len(counted) - (window[axis] - 1) * dilation[axis] - 1) // strides[axis] + 1
        taps = np.arange(count)[:, None] * strides[axis] + np.arange(window[axis]) * dilation[axis]
        result = np.multiply.outer(result, counted[taps].sum(1))
    return np.maximum(result, 1)


def _emit_average(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    (x,) = operands
    total = _emit_window(b, x, "average_pool", "sum", attributes)
    sizes = counts(attributes, [known(dim) for dim in tensor(x).shape[2:]])
    shape = tensor(total).shape
    if sizes.size and (sizes == sizes.flat[0]).all():
        return (b("divide", total, b.full(int(sizes.flat[0]), total)),)
    divisor = b.constant(sizes, tensor(total).dtype)
    return (b("divide", total, b("broadcast", divisor, shape=shape, dims=tuple(range(2, len(shape))))),)


def _pooled(x: Array, attributes: Attributes, name: str, start: Any, combine: np.ufunc) -> Array:
    window, strides, padding, dilation = _geometry(name, attributes, x.ndim - 2)
    padded = np.pad(x, ((0, 0), (0, 0), *padding), constant_values=start)
    sizes = [
        (n - (w - 1) * d - 1) // s + 1 for n, w, d, s in zip(padded.shape[2:], window, dilation, strides, strict=True)
    ]
    result = np.full((*x.shape[:2], *sizes), start, x.dtype)
    for offset in itertools.product(*map(range, window)):
        view = tuple(
            slice(o * d, o * d + (n - 1) * s + 1, s)
            for o, d, n, s in zip(offset, dilation, sizes, strides, strict=True)
        )
        result = combine(result, padded[(slice(None), slice(None), *view)])
    return result


def _average(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    (x,) = operands
    total = _pooled(x, attributes, "average_pool", 0, np.add)
    return (total / counts(attributes, x.shape[2:]),)


@quiet
def _maximum(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x = widen(operands[0])
    return (narrow(_pooled(x, attributes, "max_pool", identity("max", x.dtype), np.maximum), operands[0].dtype),)


def _samples(average: bool) -> Samples:
    def make(dtype: DType, rng: np.random.Generator) -> list[Any]:
        cases: list[tuple[tuple[int, ...], dict[str, Any]]] = [
            ((2, 3, 7, 6), {"window": (3, 2), "strides": (2, 2), "padding": ((1, 1), (0, 1))}),
            ((1, 2, 9), {"window": (3,), "strides": (1,), "padding": ((0, 0),)}),
            ((1, 1, 8, 8), {"window": (3, 3), "strides": (2, 3), "padding": ((1, 1), (2, 2)), "extra": (1, 0)}),
            ((1, 2, 11), {"window": (3,), "strides": (2,), "padding": ((1, 2),), "dilation": (2,)}),
            ((1, 5, 17, 9), {"window": (17, 9), "strides": (1, 1), "padding": ((0, 0), (0, 0))}),
            ((0, 2, 4), {"window": (2,), "strides": (2,), "padding": ((0, 0),)}),
            ((2, 2, 3, 4, 5), {"window": (2, 2, 2), "strides": (1, 2, 1), "padding": ((0, 0), (0, 0), (1, 0))}),
        ]
        choices: list[dict[str, Any]] = [{}, {"count_include_pad": True}] if average else [{}]
        return [sample(small(dtype, rng, shape), **geometry, **more) for shape, geometry in cases for more in choices]

    return make


def _define(
    name: str, summary: str, allowed: tuple[DType, ...], reference: Reference, emit: Decompose, average: bool
) -> Record:
    kinds: dict[str, Any] = dict.fromkeys(("window", "strides", "padding", "dilation", "extra"), tuple)
    return composite(
        name,
        "window",
        summary,
        "x",
        _infer(name, allowed),
        reference,
        emit,
        _samples(average),
        attributes={**kinds, **({"count_include_pad": bool} if average else {})},
        optional=("dilation", "extra", *(["count_include_pad"] if average else [])),
        dtypes=allowed,
        tolerance="reduction" if average else "exact",
    )


POOLING: tuple[Record, ...] = (
    _define(
        "average_pool",
        "The mean of every window of x [N, C, spatial...]; padding counts if count_include_pad, extra padding never.",
        FLOATS,
        wide_reference(_average),
        in_single(_emit_average),
        True,
    ),
    _define(
        "max_pool",
        "The largest of every window of x [N, C, spatial...]; padding and extra high padding are below everything.",
        NUMERIC,
        _maximum,
        lambda b, operands, attributes: (_emit_window(b, operands[0], "max_pool", "max", attributes),),
        False,
    ),
)
"""Their records."""
