"""Reductions, arg-reductions and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable

from oarlock import dtypes
from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder
from oarlock_onnx.node import Node
from oarlock_onnx.operators.common import (
    axes_of,
    axis_of,
    cast,
    dtype_of,
    like,
    reduce,
    reshape,
    scalar,
    shape_of,
    wide,
)
from oarlock_onnx.registry import operator

__all__ = ["mean_of", "sum_of"]


def sum_of(b: GraphBuilder, x: Value, axes: tuple[int, ...], keepdims: bool = True) -> Value:
    """The sum over ``axes``."""
    return reduce(b, "sum", x, axes, keepdims)


def mean_of(b: GraphBuilder, x: Value, axes: tuple[int, ...], keepdims: bool = True) -> Value:
    """The mean over ``axes``; of integers, truncated."""
    count = math.prod(shape_of(x)[axis] for axis in axes)
    total = sum_of(b, x, axes, keepdims)
    if dtype_of(x).is_float:
        return b("divide", total, like(b, count, total))
    if dtype_of(x).is_signed:
        total = b("subtract", total, b("trunc_remainder", total, like(b, count, total)))
    return b("floor_divide", total, like(b, count, total))


def _log_sum_exp(b: GraphBuilder, x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    if not axes:
        return x
    top = reduce(b, "max", x, axes)
    infinite = b("equal", b("abs", top), like(b, math.inf, top))
    shift = b("select", infinite, b.full(0, top), top)
    total = sum_of(b, b("exp", b("subtract", x, shift)), axes)
    result = b("add", b("log", total), shift)
    shape = [dim for axis, dim in enumerate(shape_of(x)) if axis not in axes]
    return result if keepdims else reshape(b, result, shape)


def _through_float(
    rule: Callable[[GraphBuilder, Value, tuple[int, ...], bool], Value],
) -> Callable[[GraphBuilder, Value, tuple[int, ...], bool], Value]:
    """A rule of floats for integers too, and in float32 for 16-bit floats."""

    def converted(b: GraphBuilder, x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
        kind = dtype_of(x)
        inner = dtypes.float64 if kind.is_integer else wide(kind)
        return cast(b, rule(b, cast(b, x, inner), axes, keepdims), kind)

    return converted


def _square(b: GraphBuilder, x: Value) -> Value:
    return b("multiply", x, x)


_RULES: dict[str, Callable[[GraphBuilder, Value, tuple[int, ...], bool], Value]] = {
    "ReduceSum": sum_of,
    "ReduceProd": lambda b, x, axes, keep: reduce(b, "prod", x, axes, keep),
    "ReduceMax": lambda b, x, axes, keep: reduce(b, "max", x, axes, keep),
    "ReduceMin": lambda b, x, axes, keep: reduce(b, "min", x, axes, keep),
    "ReduceMean": mean_of,
    "ReduceL1": lambda b, x, axes, keep: sum_of(b, x if dtype_of(x).kind == "uint" else b("abs", x), axes, keep),
    "ReduceL2": _through_float(lambda b, x, axes, keep: b("sqrt", sum_of(b, _square(b, x), axes, keep))),
    "ReduceSumSquare": lambda b, x, axes, keep: sum_of(b, _square(b, x), axes, keep),
    "ReduceLogSum": _through_float(lambda b, x, axes, keep: b("log", sum_of(b, x, axes, keep))),
    "ReduceLogSumExp": _through_float(_log_sum_exp),
}
_AXES_INPUT = {"ReduceSum": 13}
"""The version since which the axes are an input; 18 for the others."""


@operator(*_RULES)
def reduction(b: GraphBuilder, node: Node) -> Value:
    """A reduction over ``axes`` (none given: over all, or none at all where asked so)."""
    x = node.input(0)
    rank = len(shape_of(x))
    if node.version >= _AXES_INPUT.get(node.op_type, 18):
        given = node.optional(1)
        axes = () if given is None else b.ints(given, "axes")
        if not axes and node.flag("noop_with_empty_axes"):
            return _RULES[node.op_type](b, x, (), True)
    else:
        axes = node.integers("axes", ())
    wanted = axes_of(axes, rank) if axes else tuple(range(rank))
    return _RULES[node.op_type](b, x, wanted, node.flag("keepdims", True))


@operator("ArgMax", "ArgMin")
def arg_reduction(b: GraphBuilder, node: Node) -> Value:
    """The index of the first (or last) largest or smallest element along an axis."""
    x = node.input(0)
    shape = shape_of(x)
    axis = axis_of(node.integer("axis", 0), len(shape))
    keepdims, last = node.flag("keepdims", True), node.flag("select_last_index")
    name = "argmax" if node.op_type == "ArgMax" else "argmin"
    if not last:
        return b(name, x, axis=axis, keepdims=keepdims, dtype=dtypes.int64)
    found = b(name, b("reverse", x, axes=(axis,)), axis=axis, keepdims=keepdims, dtype=dtypes.int64)
    return b("subtract", scalar(b, shape[axis] - 1, dtypes.int64), found)


@operator("CumSum", "CumProd")
def cumulative(b: GraphBuilder, node: Node) -> Value:
    """Running sums or products along an axis."""
    x = node.input(0)
    axes = b.ints(node.input(1), "axis")
    if len(axes) != 1:
        raise ModelError(f"axis must be one integer, got {list(axes)}")
    return b(
        "scan",
        x,
        kind="sum" if node.op_type == "CumSum" else "prod",
        axis=axis_of(axes[0], len(shape_of(x))),
        reverse=node.flag("reverse"),
        exclusive=node.flag("exclusive"),
    )
