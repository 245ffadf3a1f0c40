"""Composite reductions: any, all, mean, variance, logsumexp, softmax; and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import ShapeError
from oarlock.ir import TensorType, Value
from oarlock.ops.arithmetic import emit_is_finite
from oarlock.ops.build import counted
from oarlock.ops.composite import Decompose, composite, in_single, number, wide_reference
from oarlock.ops.inference import FLOATS, NUMERIC, axis_of, check_dtype, flag_of
from oarlock.ops.record import Array, ArrayBuilder, Attributes, Infer, Record, tensor
from oarlock.ops.reduce import infer_reduction, reduction_samples
from oarlock.ops.sampling import Samples, sample, small, specials, uniform, values
from oarlock.ops.window import WINDOW

__all__ = ["STATISTICS", "emit_mean", "emit_variance", "repeat"]


def axes_in(attributes: Attributes) -> tuple[int, ...]:
    """The attribute ``axes``."""
    return cast("tuple[int, ...]", attributes["axes"])


def repeat(b: ArrayBuilder, reduced: Value, like: Value, axes: Sequence[int]) -> Value:
    """``reduced`` (without ``axes``) repeated along them to the shape of ``like``."""
    shape = tensor(like).shape
    return b("broadcast", reduced, shape=shape, dims=tuple(i for i in range(len(shape)) if i not in axes))


def count_of(name: str, x: Value, axes: Sequence[int]) -> int:
    """How many elements ``axes`` of ``x`` hold; raises ShapeError where symbolic."""
    dims = [tensor(x).shape[axis] for axis in axes]
    if not all(isinstance(dim, int) for dim in dims):
        raise ShapeError(f"{name}: axes {tuple(axes)} of {tensor(x)} are symbolic: specialise them")
    return math.prod(cast("list[int]", dims))


def emit_mean(b: ArrayBuilder, x: Value, axes: tuple[int, ...], keepdims: bool = False) -> Value:
    """The mean over ``axes``, in the dtype of ``x``."""
    total = b("reduce_sum", x, axes=axes, keepdims=keepdims)
    return b("divide", total, counted(b, count_of("mean", x, axes), total))


def emit_variance(
    b: ArrayBuilder, x: Value, axes: tuple[int, ...], keepdims: bool = False, correction: float = 0
) -> tuple[Value, Value]:
    """The variance over ``axes``, and the deviations from the mean, in two passes."""
    deviation = b("subtract", x, repeat(b, emit_mean(b, x, axes), x, axes))
    total = b("reduce_sum", b("multiply", deviation, deviation), axes=axes, keepdims=keepdims)
    less = int(correction) if float(correction).is_integer() else correction
    freedom = max(count_of("variance", x, axes) - less, 0)
    return b("divide", total, counted(b, freedom, total)), deviation


def _variance(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    (x,) = operands
    axes = axes_in(attributes)
    freedom = max(math.prod(x.shape[a] for a in axes) - number(attributes, "correction", 0), 0)
    deviation = x - np.sum(x, axes, keepdims=True) / math.prod(x.shape[a] for a in axes) if x.size else x
    total = np.sum(deviation * deviation, axes, keepdims=flag_of(attributes, "keepdims"))
    return (np.divide(total, freedom),)


def _mean(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    (x,) = operands
    axes = axes_in(attributes)
    total = np.sum(x, axes, keepdims=flag_of(attributes, "keepdims"))
    return (np.divide(total, math.prod(x.shape[a] for a in axes)),)


def _emit_logsumexp(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    (x,) = operands
    axes, keepdims = axes_in(attributes), flag_of(attributes, "keepdims")
    top = b("reduce_max", x, axes=axes, keepdims=True)
    top = b("select", emit_is_finite(b, top), top, b.full(0, top))
    total = b("reduce_sum", b("exp", b("subtract", x, top)), axes=axes, keepdims=keepdims)
    return (b("add", b("log", total), b("reshape", top, shape=tensor(total).shape)),)


def _logsumexp(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    (x,) = operands
    axes, keepdims = axes_in(attributes), flag_of(attributes, "keepdims")
    top = np.max(x, axes, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    total = np.sum(np.exp(x - top), axes, keepdims=keepdims)
    return (np.log(total) + top.reshape(total.shape),)


def _infer_softmax(name: str) -> Infer:
    def infer(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        check_dtype(name, "the operand", types[0].dtype, FLOATS)
        axis_of(name, attributes, types[0].rank)
        return (types[0],)

    return infer


def emit_shifted(b: ArrayBuilder, x: Value, axis: int) -> tuple[Value, Value]:
    """x less its maximum along ``axis``, and the sum of the exponentials of that."""
    shifted = b("subtract", x, b("reduce_max", x, axes=(axis,), keepdims=True))
    return shifted, b("reduce_sum", b("exp", shifted), axes=(axis,), keepdims=True)


def _emit_softmax(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    (x,) = operands
    axes = (cast(int, attributes["axis"]),)
    e = b("exp", b("subtract", x, b("reduce_max", x, axes=axes, keepdims=True)))
    return (b("divide", e, b("reduce_sum", e, axes=axes, keepdims=True)),)


def _emit_log_softmax(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    shifted, total = emit_shifted(b, operands[0], cast(int, attributes["axis"]))
    return (b("subtract", shifted, b("log", total)),)


def _softmax(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    axis = cast(int, attributes["axis"])
    shifted = operands[0] - np.max(operands[0], axis, keepdims=True, initial=-np.inf)
    return (np.exp(shifted) / np.sum(np.exp(shifted), axis, keepdims=True),)


def _log_softmax(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    axis = cast(int, attributes["axis"])
    shifted = operands[0] - np.max(operands[0], axis, keepdims=True, initial=-np.inf)
    return (shifted - np.log(np.sum(np.exp(shifted), axis, keepdims=True)),)


def _softmax_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    cases: list[tuple[tuple[int, ...], int]] = [
        ((1,), 0),
        ((7,), 0),
        ((3, 5, 2), 1),
        ((4, 33), 0),
        ((2, 1025), 1),
        ((0, 3), 1),
    ]
    calls = [sample(values(dtype, rng, shape), axis=axis) for shape, axis in cases]
    calls += [sample(uniform(dtype, rng, (3, 17), -60.0, 60.0), axis=1), sample(specials(dtype).reshape(-1, 1), axis=1)]
    return calls


def _logsumexp_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    return [*reduction_samples()(dtype, rng), sample(specials(dtype).reshape(-1, 1), axes=(1,))]


def _reduction(
    name: str,
    summary: str,
    reference: Callable[..., Sequence[Any]],
    decompose: Decompose,
    *,
    extra: Sequence[str] = (),
    allowed: tuple[DType, ...] = FLOATS,
    samples: Samples | None = None,
) -> Record:
    return composite(
        name,
        "reduce",
        summary,
        "x",
        infer_reduction(name, allowed),
        wide_reference(reference),
        in_single(decompose),
        samples or reduction_samples(),
        attributes={"axes": tuple, "keepdims": bool, **dict.fromkeys(extra, (int, float))},
        optional=("keepdims", *extra),
        dtypes=allowed,
        tolerance="reduction" if allowed == FLOATS else "exact",
    )


def _truth(name: str, summary: str, function: Callable[..., Any], primitive: str) -> Record:
    return _reduction(
        name,
        summary,
        lambda operands, a: (function(operands[0], axis=axes_in(a), keepdims=flag_of(a, "keepdims")),),
        lambda b, operands, a: (b(primitive, operands[0], axes=axes_in(a), keepdims=flag_of(a, "keepdims")),),
        allowed=(dtypes.bool_,),
    )


def _variance_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    calls = reduction_samples()(dtype, rng)
    offset = small(dtype, rng, (5, 65)).astype(np.float64) + 100.0
    return [
        *calls,
        sample(small(dtype, rng, (4, 9)), axes=(1,), correction=1),
        sample(offset.astype(dtype.numpy), axes=(1,), keepdims=True, correction=1.5),
        sample(small(dtype, rng, (4, 1)), axes=(1,), correction=1),
    ]


def _running(name: str, summary: str, kind: str) -> Record:
    scan = next(record for record in WINDOW if record.name == "scan")

    def with_kind(attributes: Attributes) -> dict[str, Any]:
        return {"kind": kind, **attributes}

    def samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
        assert scan.samples is not None
        calls = [s for s in scan.samples(dtype, rng) if s.attributes["kind"] == kind]
        return [sample(*s.operands, **{k: v for k, v in s.attributes.items() if k != "kind"}) for s in calls]

    return composite(
        name,
        "window",
        summary,
        "x",
        lambda types, attributes: scan.infer(types, with_kind(attributes)),
        lambda operands, attributes: scan.reference(operands, with_kind(attributes)),
        lambda b, operands, attributes: (b("scan", *operands, **with_kind(attributes)),),
        samples,
        attributes={"axis": int, "reverse": bool, "exclusive": bool},
        optional=("reverse", "exclusive"),
        dtypes=NUMERIC,
        tolerance="reduction",
    )


def _softmax_record(name: str, summary: str, reference: Callable[..., Any], decompose: Decompose) -> Record:
    return composite(
        name,
        "reduce",
        summary,
        "x",
        _infer_softmax(name),
        wide_reference(reference),
        in_single(decompose),
        _softmax_samples,
        attributes={"axis": int},
        dtypes=FLOATS,
        tolerance="reduction",
    )


STATISTICS: tuple[Record, ...] = (
    _truth("any", "Whether one holds; False where empty.", np.any, "reduce_max"),
    _truth("all", "Whether all hold; True where empty.", np.all, "reduce_min"),
    _reduction(
        "mean",
        "The sum divided by the number of elements; NaN where empty.",
        _mean,
        lambda b, operands, a: (emit_mean(b, operands[0], axes_in(a), flag_of(a, "keepdims")),),
    ),
    _reduction(
        "variance",
        "The sum of squared deviations from the mean, divided by the number of elements less correction.",
        _variance,
        lambda b, operands, a: (
            emit_variance(b, operands[0], axes_in(a), flag_of(a, "keepdims"), number(a, "correction", 0))[0],
        ),
        extra=("correction",),
        samples=_variance_samples,
    ),
    _reduction(
        "logsumexp",
        "log(sum(exp(x))) without overflow; -inf where empty.",
        _logsumexp,
        _emit_logsumexp,
        samples=_logsumexp_samples,
    ),
    _softmax_record("softmax", "exp(x) over its sum along an axis.", _softmax, _emit_softmax),
    _softmax_record("log_softmax", "The logarithm of softmax.", _log_softmax, _emit_log_softmax),
    _running("cumsum", "Running sums along an axis.", "sum"),
    _running("cumprod", "Running products along an axis.", "prod"),
)
"""Their records."""
