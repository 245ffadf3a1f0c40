"""Reductions over axes, and the positions of extremes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import ShapeError
from oarlock.ir import TensorType
from oarlock.ops.inference import INTEGERS, NUMERIC, axes_of, axis_of, check_dtype, dtype_of, flag_of
from oarlock.ops.numerics import identity, narrow, precise, quiet, widen
from oarlock.ops.record import Array, Attributes, Infer, Record, Tolerance
from oarlock.ops.sampling import Samples, sample, small, specials, uniform, values

__all__ = ["REDUCE"]


def reduced_shape(shape: tuple[Any, ...], axes: Sequence[int], keepdims: bool) -> tuple[Any, ...]:
    """``shape`` after reducing ``axes``."""
    if keepdims:
        return tuple(1 if i in axes else dim for i, dim in enumerate(shape))
    return tuple(dim for i, dim in enumerate(shape) if i not in axes)


def infer_reduction(name: str, allowed: Sequence[DType]) -> Infer:
    """Inference of a reduction with attributes ``axes`` and ``keepdims``: the dtype stays."""

    def infer(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        (x,) = types
        check_dtype(name, "the operand", x.dtype, allowed)
        axes = axes_of(name, attributes, x.rank)
        return (TensorType(x.dtype, reduced_shape(x.shape, axes, flag_of(attributes, "keepdims"))),)

    return infer


def _reference(kind: str, function: Callable[..., Any]) -> Callable[..., Sequence[Array]]:
    @quiet
    def evaluate(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
        (x,) = operands
        wide = precise(x) if kind in ("sum", "prod") else widen(x)
        start = identity(kind, wide.dtype)
        result = function(wide, axis=attributes["axes"], keepdims=flag_of(attributes, "keepdims"), initial=start)
        return (narrow(np.asarray(result).astype(wide.dtype, copy=False), x.dtype),)

    return evaluate


def reduction_samples(product: bool = False) -> Samples:
    """Samples of a reduction: every choice of axes of a small tensor, long and empty ones, special values."""

    def make(dtype: DType, rng: np.random.Generator) -> list[Any]:
        def ordinary(shape: tuple[int, ...]) -> Array:
            if product and dtype.is_float:
                return uniform(dtype, rng, shape, 0.9, 1.1)
            return small(dtype, rng, shape) if dtype.is_float else values(dtype, rng, shape)

        calls = [
            sample(ordinary((3, 5, 2)), axes=axes, keepdims=False) for axes in ((0,), (1,), (2,), (0, 2), (0, 1, 2), ())
        ]
        calls += [
            sample(ordinary((3, 5, 2)), axes=(1, 2), keepdims=True),
            sample(ordinary(()), axes=(), keepdims=False),
        ]
        calls += [sample(ordinary((0, 3)), axes=axes, keepdims=True) for axes in ((0,), (1,))]
        for length in (1, 63, 1025):
            calls.append(sample(ordinary((length,)), axes=(0,), keepdims=False))
        calls += [sample(ordinary((17, 257)), axes=(axis,), keepdims=False) for axis in (0, 1)]
        return calls

    return make


def _extreme_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    special = specials(dtype)
    calls = [sample(special, axes=(0,), keepdims=False)]
    if dtype.is_float:
        calls.append(sample(np.stack([special[:-1], special[1:]]), axes=(1,), keepdims=True))
    return [*reduction_samples()(dtype, rng), *calls]


def _reduction(
    kind: str,
    summary: str,
    function: Callable[..., Any],
    allowed: tuple[DType, ...],
    tolerance: Tolerance,
    samples: Samples,
) -> Record:
    name = "reduce_" + kind
    return Record(
        name,
        "reduce",
        summary,
        ("x",),
        infer_reduction(name, allowed),
        _reference(kind, function),
        attributes={"axes": tuple, "keepdims": bool},
        optional=frozenset({"keepdims"}),
        dtypes=allowed,
        tolerance=tolerance,
        samples=samples,
    )


def _position(name: str, summary: str, function: Callable[..., Any]) -> Record:
    def infer(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        (x,) = types
        axis = axis_of(name, attributes, x.rank)
        check_dtype(name, "attribute dtype", dtype_of(attributes), INTEGERS)
        if x.shape[axis] == 0:
            raise ShapeError(f"{name}: axis {axis} of {x} is empty: it has no extreme")
        return (TensorType(dtype_of(attributes), reduced_shape(x.shape, (axis,), flag_of(attributes, "keepdims"))),)

    @quiet
    def reference(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
        axis, keepdims = attributes["axis"], flag_of(attributes, "keepdims")
        found = function(widen(operands[0]), axis=axis, keepdims=keepdims)
        return (np.asarray(found).astype(dtype_of(attributes).numpy),)

    return Record(
        name,
        "reduce",
        summary,
        ("x",),
        infer,
        reference,
        attributes={"axis": int, "keepdims": bool, "dtype": DType},
        optional=frozenset({"keepdims"}),
        samples=_position_samples,
    )


def _position_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    calls = []
    for shape, axis in (
        ((7,), 0),
        ((1,), 0),
        ((3, 5, 2), 0),
        ((3, 5, 2), 1),
        ((3, 5, 2), 2),
        ((17, 257), 1),
        ((0, 3), 1),
    ):
        for keepdims in (False, True):
            calls.append(sample(small(dtype, rng, shape), axis=axis, keepdims=keepdims, dtype=dtypes.int32))
    ties = np.concatenate([specials(dtype), specials(dtype)])
    calls.append(sample(ties, axis=0, keepdims=False, dtype=dtypes.int64))
    calls.append(sample(ties[: len(ties) // 2 - 1], axis=0, keepdims=False, dtype=dtypes.int32))
    return calls


REDUCE: tuple[Record, ...] = (
    _reduction(
        "sum",
        "The sum; 0 where empty. float16 and bfloat16 accumulate in float32; integers wrap.",
        np.sum,
        NUMERIC,
        "reduction",
        reduction_samples(),
    ),
    _reduction(
        "prod",
        "The product; 1 where empty. float16 and bfloat16 accumulate in float32; integers wrap.",
        np.prod,
        NUMERIC,
        "reduction",
        reduction_samples(product=True),
    ),
    _reduction(
        "max",
        "The largest, any() on bool; NaN where one is; -inf, the least integer or False where empty.",
        np.max,
        dtypes.ALL,
        "exact",
        _extreme_samples,
    ),
    _reduction(
        "min",
        "The smallest, all() on bool; NaN where one is; inf, the largest integer or True where empty.",
        np.min,
        dtypes.ALL,
        "exact",
        _extreme_samples,
    ),
    _position("argmax", "The first position of the largest along an axis; NaN counts as larger than all.", np.argmax),
    _position("argmin", "The first position of the smallest along an axis; NaN counts as smaller than all.", np.argmin),
)
"""Their records."""
