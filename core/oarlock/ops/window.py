"""Reductions over sliding windows and along an axis: window_reduce and scan."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from oarlock.dtypes import DType
from oarlock.errors import ShapeError
from oarlock.ir import TensorType
from oarlock.ops.inference import NUMERIC, axis_of, check_dtype, flag_of, ints_of, pairs_of, window_size
from oarlock.ops.numerics import identity, narrow, precise, quiet
from oarlock.ops.record import Array, Attributes, Record
from oarlock.ops.sampling import sample, small, uniform

__all__ = ["WINDOW"]

_COMBINE: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def _kind(name: str, attributes: Attributes, allowed: Sequence[str]) -> str:
    kind = attributes["kind"]
    if kind not in allowed:
        raise ShapeError(f"{name}: kind is {kind!r}, but may be {', '.join(allowed)}")
    return str(kind)


def _geometry(attributes: Attributes, rank: int) -> list[tuple[int, int, tuple[int, int], int]]:
    """(window, stride, padding, dilation) of each dimension."""
    window, strides, dilation = (
        ints_of("window_reduce", attributes, key, rank, least=1) for key in ("window", "strides", "dilation")
    )
    return list(zip(window, strides, pairs_of("window_reduce", attributes, "padding", rank), dilation, strict=True))


def _infer_window(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (x,) = types
    check_dtype("window_reduce", "the operand", x.dtype, NUMERIC)
    _kind("window_reduce", attributes, ("sum", "max", "min"))
    shape = []
    for axis, geometry in enumerate(_geometry(attributes, x.rank)):
        if geometry == (1, 1, (0, 0), 1):
            shape.append(x.shape[axis])
        else:
            shape.append(window_size("window_reduce", x.shape[axis], *geometry, f"axis {axis} of x"))
    return (TensorType(x.dtype, tuple(shape)),)


@quiet
def _window_reduce(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    (x,) = operands
    kind = str(attributes["kind"])
    geometry = _geometry(attributes, x.ndim)
    wide = precise(x)
    start = identity(kind, wide.dtype)
    padded = np.pad(wide, [padding for _, _, padding, _ in geometry], constant_values=start) if x.ndim else wide
    shape = [
        (padded.shape[axis] - (window - 1) * dilation - 1) // stride + 1
        for axis, (window, stride, _, dilation) in enumerate(geometry)
    ]
    result = np.full(shape, start, wide.dtype)
    for offset in itertools.product(*(range(window) for window, _, _, _ in geometry)):
        view = tuple(
            slice(o * dilation, o * dilation + (size - 1) * stride + 1 if size else 0, stride)
            for o, size, (_, stride, _, dilation) in zip(offset, shape, geometry, strict=True)
        )
        result = _COMBINE[kind](result, padded[view])
    return (narrow(result, x.dtype),)


def _infer_scan(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (x,) = types
    check_dtype("scan", "the operand", x.dtype, NUMERIC)
    _kind("scan", attributes, tuple(_COMBINE))
    axis_of("scan", attributes, x.rank)
    return (x,)


@quiet
def _scan(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    (x,) = operands
    kind, axis = str(attributes["kind"]), cast(int, attributes["axis"])
    wide = precise(x)
    turned = np.flip(wide, axis) if flag_of(attributes, "reverse") else wide
    if flag_of(attributes, "exclusive") and x.shape[axis]:
        first = np.full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), identity(kind, wide.dtype), wide.dtype)
        turned = np.concatenate([first, np.take(turned, range(x.shape[axis] - 1), axis)], axis)
    result = _COMBINE[kind].accumulate(turned, axis, dtype=wide.dtype)
    return (narrow(np.flip(result, axis) if flag_of(attributes, "reverse") else result, x.dtype),)


def _window_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    cases: list[tuple[Any, ...]] = [
        ((2, 3, 7, 6), (1, 1, 3, 2), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (0, 1)), (1, 1, 1, 1)),
        ((9,), (3,), (1,), ((0, 0),), (2,)),
        ((5, 4), (2, 2), (1, 1), ((1, 0), (0, 3)), (1, 1)),
        ((), (), (), (), ()),
        ((0, 4), (1, 2), (1, 2), ((0, 0), (0, 0)), (1, 1)),
        ((257,), (5,), (3,), ((2, 2),), (1,)),
    ]
    return [
        sample(small(dtype, rng, x), kind=kind, window=window, strides=strides, padding=padding, dilation=dilation)
        for kind in ("sum", "max", "min")
        for x, window, strides, padding, dilation in cases
    ]


def _scan_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    cases: list[tuple[tuple[int, ...], int]] = [
        ((1,), 0),
        ((0,), 0),
        ((7,), 0),
        ((3, 5, 2), 1),
        ((4, 33), 0),
        ((2, 257), 1),
    ]
    flags = ((False, False), (True, False), (False, True), (True, True))
    return [
        sample(
            uniform(dtype, rng, shape, 0.9, 1.1) if kind == "prod" and dtype.is_float else small(dtype, rng, shape),
            kind=kind, axis=axis, reverse=reverse, exclusive=exclusive,
        )
        for kind in _COMBINE
        for reverse, exclusive in flags
        for shape, axis in (cases if (reverse, exclusive) == (False, False) else cases[2:5])
    ]  # fmt: skip


def _define(
    name: str, summary: str, infer: Any, reference: Callable[..., Any], attributes: Any, samples: Any
) -> Record:
    return Record(
        name,
        "window",
        summary,
        ("x",),
        infer,
        reference,
        attributes=attributes,
        optional=frozenset({"reverse", "exclusive"} & set(attributes)),
        dtypes=NUMERIC,
        tolerance="reduction",
        samples=samples,
    )


WINDOW: tuple[Record, ...] = (
    _define(
        "window_reduce",
        "The sum, max or min of every window of x; all attributes have x's full rank; padding is the kind's identity.",
        _infer_window,
        _window_reduce,
        {"kind": str, "window": tuple, "strides": tuple, "padding": tuple, "dilation": tuple},
        _window_samples,
    ),
    _define(
        "scan",
        "Running sum, prod, max or min along an axis, from the end if reverse; exclusive starts from the identity.",
        _infer_scan,
        _scan,
        {"kind": str, "axis": int, "reverse": bool, "exclusive": bool},
        _scan_samples,
    ),
)
"""Their records."""
