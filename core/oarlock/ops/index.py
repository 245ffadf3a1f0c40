"""Reading and writing at computed positions: gather, scatter; and the positions themselves: iota."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import DTypeError, ShapeError
from oarlock.ir import TensorType
from oarlock.ops.inference import INTEGERS, NUMERIC, axis_of, check_dtype, dtype_of, same_dtypes
from oarlock.ops.numerics import narrow, precise, quiet
from oarlock.ops.record import Array, Attributes, Record
from oarlock.ops.sampling import sample, small, values
from oarlock.ops.shape import shape_of

__all__ = ["INDEX", "clamped"]

_SCATTER: dict[str, Callable[..., Any]] = {
    "add": np.add.at,
    "multiply": np.multiply.at,
    "minimum": np.minimum.at,
    "maximum": np.maximum.at,
}


def _gathered(name: str, x: TensorType, indices: TensorType, attributes: Attributes) -> tuple[Any, ...]:
    check_dtype(name, "the indices operand", indices.dtype, INTEGERS)
    axis = axis_of(name, attributes, x.rank)
    return (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def _infer_gather(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    x, indices = types
    shape = _gathered("gather", x, indices, attributes)
    axis = axis_of("gather", attributes, x.rank)
    if x.shape[axis] == 0 and 0 not in indices.shape:
        raise ShapeError(f"gather: axis {axis} of {x} is empty: there is nothing to take")
    return (TensorType(x.dtype, shape),)


@quiet
def _gather(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, indices = operands
    axis = int(attributes["axis"])  # type: ignore[arg-type]
    if x.shape[axis] == 0:
        return (np.zeros((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype),)
    return (np.take(x, clamped(indices, 0, x.shape[axis] - 1), axis),)


def clamped(indices: Array, low: int, high: int) -> Array:
    """``indices`` of any integer dtype as int64 held within [low, high]."""
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.uint64(high))
    return np.clip(indices.astype(np.int64), low, high)


def _infer_scatter(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    x, indices, updates = types
    kind = attributes["kind"]
    same_dtypes("scatter", (x, updates))
    if kind != "set" and kind not in _SCATTER:
        raise ShapeError(f"scatter: kind is {kind!r}, but may be set, {', '.join(_SCATTER)}")
    if kind != "set" and x.dtype == dtypes.bool_:
        raise DTypeError(f"scatter: kind {kind} does not take bool; only set does")
    shape = _gathered("scatter", x, indices, attributes)
    if updates.shape != shape:
        raise ShapeError(f"scatter: updates are {updates}, but {TensorType(x.dtype, shape)} is needed")
    return (x,)


@quiet
def _scatter(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, indices, updates = operands
    axis, kind = int(attributes["axis"]), str(attributes["kind"])  # type: ignore[arg-type]
    size = x.shape[axis]
    flat = clamped(indices, -1, size).reshape(-1)
    inside = (flat >= 0) & (flat < size)
    result = np.moveaxis(precise(x).copy(), axis, 0)
    rows = updates.reshape(*x.shape[:axis], flat.size, *x.shape[axis + 1 :])
    rows = np.moveaxis(precise(rows), axis, 0)[inside]
    if kind == "set":
        result[flat[inside]] = rows
    else:
        _SCATTER[kind](result, flat[inside], rows)
    return (narrow(np.moveaxis(result, 0, axis), x.dtype),)


def _infer_iota(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    shape = shape_of("iota", attributes)
    axis_of("iota", attributes, len(shape))
    check_dtype("iota", "attribute dtype", dtype_of(attributes), NUMERIC)
    return (TensorType(dtype_of(attributes), shape),)


@quiet
def _iota(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    shape: Any = attributes["shape"]
    axis = int(attributes["axis"])  # type: ignore[arg-type]
    line = np.arange(shape[axis], dtype=np.int64).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return (np.broadcast_to(line.astype(dtype_of(attributes).numpy), shape),)


def _gather_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    cases: list[tuple[tuple[int, ...], int, tuple[int, ...]]] = [
        ((7,), 0, ()), ((7,), 0, (5,)), ((3, 5, 2), 1, (2, 3)), ((3, 5, 2), 0, (4,)), ((3, 5, 2), 2, (0,)),
        ((257, 3), 0, (255,)), ((1, 4), 0, (3, 1)), ((0, 3), 1, (2,)),
    ]  # fmt: skip
    calls = []
    for shape, axis, chosen in cases:
        indices = rng.integers(-2, shape[axis] + 2, chosen).astype(np.int32)
        calls.append(sample(values(dtype, rng, shape), np.asarray(indices), axis=axis))
    for kind in (dtypes.uint8, dtypes.int64):
        calls.append(sample(values(dtype, rng, (6, 2)), values(kind, rng, (9,)), axis=0))
    return calls


def _scatter_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    kinds = ["set"] if dtype == dtypes.bool_ else ["set", *_SCATTER]
    cases: list[tuple[tuple[int, ...], int, tuple[int, ...]]] = [
        ((7,), 0, ()), ((7,), 0, (12,)), ((3, 5, 2), 1, (2, 3)), ((3, 5, 2), 0, (0,)), ((33, 3), 0, (65,)),
        ((3, 4), 1, (4,)),
    ]  # fmt: skip
    calls = []
    for kind in kinds:
        for shape, axis, chosen in cases:
            indices = np.asarray(rng.integers(-2, shape[axis] + 2, chosen)).astype(np.int32)
            updates = small(dtype, rng, (*shape[:axis], *chosen, *shape[axis + 1 :]))
            calls.append(sample(small(dtype, rng, shape), indices, updates, axis=axis, kind=kind))
    return calls


def _iota_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    cases: list[tuple[tuple[int, ...], int]] = [
        ((1,), 0),
        ((0,), 0),
        ((65,), 0),
        ((3, 5), 0),
        ((3, 5), 1),
        ((2, 3, 4), 1),
    ]
    return [sample(shape=shape, axis=axis, dtype=dtype) for shape, axis in cases]


INDEX: tuple[Record, ...] = (
    Record(
        "gather",
        "index",
        "Slices of x along an axis at the indices, each clamped to [0, size - 1].",
        ("x", "indices"),
        _infer_gather,
        _gather,
        attributes={"axis": int},
        samples=_gather_samples,
    ),
    Record(
        "scatter",
        "index",
        "A copy of x in which updates are set at, added to, multiplied with, or lower or raise the slices at the "
        "indices along an axis, in order; indices outside are dropped. Float sums and products round at least once.",
        ("x", "indices", "updates"),
        _infer_scatter,
        _scatter,
        attributes={"axis": int, "kind": str},
        tolerance="reduction",
        samples=_scatter_samples,
    ),
    Record(
        "iota",
        "index",
        "0, 1, 2, ... along an axis.",
        (),
        _infer_iota,
        _iota,
        attributes={"shape": tuple, "axis": int, "dtype": DType},
        dtypes=NUMERIC,
        samples=_iota_samples,
    ),
)
"""Their records."""
