"""Sorting along an axis, and the largest or smallest k."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import ShapeError
from oarlock.ir import TensorType, Value
from oarlock.ops.composite import composite
from oarlock.ops.inference import INTEGERS, NUMERIC, axis_of, check_dtype, flag_of, int_of, static_shape
from oarlock.ops.numerics import quiet, widen
from oarlock.ops.record import Array, ArrayBuilder, Attributes, Record, tensor
from oarlock.ops.sampling import sample, small, specials, values

__all__ = ["SORT", "order"]


def _index_dtype(attributes: Attributes) -> DType:
    return cast(DType, attributes.get("dtype", dtypes.int32))


def _infer(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (x,) = types
    axis_of("sort", attributes, x.rank)
    check_dtype("sort", "attribute dtype", _index_dtype(attributes), INTEGERS)
    return (x, TensorType(_index_dtype(attributes), x.shape))


def order(x: Array, axis: int, descending: bool) -> Array:
    """Positions that sort ``x`` along ``axis``: equal values keep their order, NaN comes last either way."""
    wide = widen(x)
    if descending:
        turned = np.argsort(np.flip(wide, axis), axis=axis, kind="stable")
        found = x.shape[axis] - 1 - np.flip(turned, axis)
    else:
        found = np.argsort(wide, axis=axis, kind="stable")
    missing = np.isnan(np.take_along_axis(wide, found, axis)) if wide.dtype.kind == "f" else np.zeros(x.shape, np.bool_)
    return np.asarray(np.take_along_axis(found, np.argsort(missing, axis=axis, kind="stable"), axis))


@quiet
def _sort(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    (x,) = operands
    axis = cast(int, attributes["axis"])
    found = order(x, axis, flag_of(attributes, "descending"))
    return (np.take_along_axis(x, found, axis), found.astype(_index_dtype(attributes).numpy))


def _samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    calls = []
    special = rng.permutation(np.concatenate([specials(dtype)] * 2))
    for descending in (False, True):
        for shape, axis in (((1,), 0), ((0,), 0), ((7,), 0), ((3, 5, 2), 1), ((65, 3), 0), ((2, 257), 1), ((3, 0), 0)):
            calls.append(sample(small(dtype, rng, shape), axis=axis, descending=descending))
        calls.append(sample(values(dtype, rng, (128,)), axis=0, descending=descending, dtype=dtypes.int64))
        calls.append(sample(special, axis=0, descending=descending))
    return calls


def _infer_top_k(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (x,) = types
    axis, k = axis_of("top_k", attributes, x.rank), int_of("top_k", attributes, "k", least=0)
    if k > static_shape("top_k", "x", x)[axis]:
        raise ShapeError(f"top_k: axis {axis} of {x} has fewer than {k} elements")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return (TensorType(x.dtype, shape), TensorType(_index_dtype(attributes), shape))


def _emit_top_k(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    (x,) = operands
    axis, k = cast(int, attributes["axis"]), cast(int, attributes["k"])
    shape = tensor(x).static_shape
    limits = (*shape[:axis], k, *shape[axis + 1 :])
    dtype = _index_dtype(attributes)
    both = b.many("sort", x, axis=axis, descending=flag_of(attributes, "largest"), dtype=dtype)
    return [b("slice", v, starts=(0,) * len(shape), limits=limits, steps=(1,) * len(shape)) for v in both]


@quiet
def _top_k(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    (x,) = operands
    axis, k = cast(int, attributes["axis"]), cast(int, attributes["k"])
    found = np.take(order(x, axis, flag_of(attributes, "largest")), range(k), axis)
    dtype = _index_dtype(attributes)
    return (np.take_along_axis(x, found, axis), found.astype(dtype.numpy))


def _top_k_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    return [
        sample(x, k=k, axis=axis, largest=largest)
        for largest in (True, False)
        for x, k, axis in (
            (small(dtype, rng, (7,)), 3, 0), (small(dtype, rng, (3, 5, 2)), 5, 1), (small(dtype, rng, (4, 65)), 1, 1),
            (small(dtype, rng, (3,)), 0, 0), (specials(dtype), 2, 0),
        )
    ]  # fmt: skip


SORT: tuple[Record, ...] = (
    Record(
        "sort",
        "sort",
        "Values in order along an axis and the positions they came from; stable, NaN last.",
        ("x",),
        _infer,
        _sort,
        attributes={"axis": int, "descending": bool, "dtype": DType},
        optional=frozenset({"descending", "dtype"}),
        results=2,
        samples=_samples,
    ),
    composite(
        "top_k", "sort", "The k largest or smallest values along an axis, in order, and their places; NaN last.", "x",
        _infer_top_k, _top_k, _emit_top_k, _top_k_samples,
        attributes={"k": int, "axis": int, "largest": bool, "dtype": DType}, optional=("dtype",), results=2,
        dtypes=NUMERIC,
    ),
)  # fmt: skip
"""Their records."""
