"""Composite normalisations: layer, RMS, batch, instance, group."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from oarlock.dtypes import DType
from oarlock.errors import ShapeError
from oarlock.ir import Dim, TensorType, Value
from oarlock.ops.composite import Decompose, composite, in_single, number, wide_reference
from oarlock.ops.inference import (
    FLOATS,
    axis_of,
    broadcast_shapes,
    check_dtype,
    int_of,
    same_dtypes,
    static_shape,
)
from oarlock.ops.record import Array, ArrayBuilder, Attributes, Infer, Record, tensor
from oarlock.ops.sampling import Samples, sample, small, uniform
from oarlock.ops.statistics import emit_mean, emit_variance, repeat

__all__ = ["NORMALISE"]


def _check_trailing(name: str, types: Sequence[TensorType], operands: Sequence[str], attributes: Attributes) -> None:
    x = types[0]
    check_dtype(name, "the operand", same_dtypes(name, types), FLOATS)
    axis = axis_of(name, attributes, x.rank)
    for operand, given in zip(operands, types[1:], strict=True):
        if given.rank > x.rank - axis or broadcast_shapes(name, x.shape[axis:], given.shape) != x.shape[axis:]:
            raise ShapeError(f"{name}: {operand} is {given}, which does not broadcast to the axes from {axis} of {x}")


def _trailing(name: str, operands: Sequence[str]) -> Infer:
    def infer(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        _check_trailing(name, types, operands, attributes)
        return (types[0],)

    return infer


def _channels(name: str, operands: Sequence[str]) -> Infer:
    """x is [N, C, ...] and every other operand [C]."""

    def infer(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        x = types[0]
        check_dtype(name, "the operand", same_dtypes(name, types), FLOATS)
        if x.rank < 2:
            raise ShapeError(f"{name}: x is {x}, but needs a batch and a channel axis")
        for operand, given in zip(operands, types[1:], strict=True):
            if given.shape != (x.shape[1],):
                raise ShapeError(f"{name}: {operand} is {given}, but x has {x.shape[1]} channels")
        if name == "group_norm":
            groups = int_of(name, attributes, "groups", least=1)
            if static_shape(name, "x", x, 1)[0] % groups:
                raise ShapeError(f"{name}: {x.shape[1]} channels do not divide into {groups} groups")
        return (x,)

    return infer


def _axes_from(x: Value, attributes: Attributes) -> tuple[int, ...]:
    return tuple(range(cast(int, attributes["axis"]), tensor(x).rank))


def _per_channel(b: ArrayBuilder, parameter: Value, like: Value) -> Value:
    return b("broadcast", parameter, shape=tensor(like).shape, dims=(1,))


def _inverse_root(b: ArrayBuilder, variance: Value, epsilon: float) -> Value:
    root = b("sqrt", b("add", variance, b.full(epsilon, variance)))
    return b("divide", b.full(1, root), root)


def _normalised(b: ArrayBuilder, x: Value, axes: tuple[int, ...], attributes: Attributes) -> Value:
    variance, deviation = emit_variance(b, x, axes)
    factor = _inverse_root(b, variance, number(attributes, "epsilon", 1e-5))
    return b("multiply", deviation, repeat(b, factor, x, axes))


def _emit_layer(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, scale, bias = operands
    normal = _normalised(b, x, _axes_from(x, attributes), attributes)
    return (b("add", b("multiply", normal, scale), bias),)


def _emit_rms(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, scale = operands
    axes = _axes_from(x, attributes)
    factor = _inverse_root(b, emit_mean(b, b("multiply", x, x), axes), number(attributes, "epsilon", 1e-5))
    return (b("multiply", b("multiply", x, repeat(b, factor, x, axes)), scale),)


def _emit_batch(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, scale, bias, mean, variance = operands
    factor = b("multiply", scale, _inverse_root(b, variance, number(attributes, "epsilon", 1e-5)))
    centred = b("subtract", x, _per_channel(b, mean, x))
    return (b("add", b("multiply", centred, _per_channel(b, factor, x)), _per_channel(b, bias, x)),)


def _emit_instance(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, scale, bias = operands
    normal = _normalised(b, x, tuple(range(2, tensor(x).rank)), attributes)
    return (b("add", b("multiply", normal, _per_channel(b, scale, x)), _per_channel(b, bias, x)),)


def _emit_group(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, scale, bias = operands
    shape = tensor(x).shape
    grouped = b("reshape", x, shape=_grouped(tensor(x), cast(int, attributes["groups"])))
    normal = b("reshape", _normalised(b, grouped, (2,), attributes), shape=shape)
    return (b("add", b("multiply", normal, _per_channel(b, scale, x)), _per_channel(b, bias, x)),)


def _grouped(kind: TensorType, groups: int) -> tuple[Dim, int, int]:
    return (kind.shape[0], groups, math.prod(static_shape("group_norm", "x", kind, 1)) // groups)


def normalised(x: Array, axes: tuple[int, ...], epsilon: float) -> Any:
    """x less its mean, over the root of its variance plus epsilon."""
    count = math.prod(x.shape[a] for a in axes)
    deviation = x - np.divide(np.sum(x, axes, keepdims=True), count)
    variance = np.divide(np.sum(deviation * deviation, axes, keepdims=True), count)
    return deviation / np.sqrt(variance + epsilon)


def per_channel(parameter: Array, x: Array) -> Array:
    """``parameter`` [C] in a shape that broadcasts with ``x`` [N, C, ...]."""
    return parameter.reshape(-1, *[1] * (x.ndim - 2))


def _layer(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, scale, bias = operands
    axes = tuple(range(cast(int, attributes["axis"]), x.ndim))
    return (normalised(x, axes, number(attributes, "epsilon", 1e-5)) * scale + bias,)


def _rms(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, scale = operands
    axes = tuple(range(cast(int, attributes["axis"]), x.ndim))
    square = np.divide(np.sum(x * x, axes, keepdims=True), math.prod(x.shape[a] for a in axes))
    return (x / np.sqrt(square + number(attributes, "epsilon", 1e-5)) * scale,)


def _batch(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x = operands[0]
    scale, bias, mean, variance = (per_channel(p, x) for p in operands[1:])
    return ((x - mean) / np.sqrt(variance + number(attributes, "epsilon", 1e-5)) * scale + bias,)


def _instance(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, scale, bias = operands
    normal = normalised(x, tuple(range(2, x.ndim)), number(attributes, "epsilon", 1e-5))
    return (normal * per_channel(scale, x) + per_channel(bias, x),)


def _group(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, scale, bias = operands
    groups = cast(int, attributes["groups"])
    grouped = x.reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups)
    normal = normalised(grouped, (2,), number(attributes, "epsilon", 1e-5)).reshape(x.shape)
    return (normal * per_channel(scale, x) + per_channel(bias, x),)


def _trailing_samples(parameters: int) -> Samples:
    def make(dtype: DType, rng: np.random.Generator) -> list[Any]:
        calls = []
        for shape, axis in (((7,), 0), ((3, 5, 4), 2), ((3, 5, 4), 1), ((2, 257), 1), ((0, 3), 1)):
            parts = [uniform(dtype, rng, shape[axis:], 0.5, 1.5) for _ in range(parameters)]
            calls.append(sample(small(dtype, rng, shape), *parts, axis=axis, epsilon=1e-5))
        offset = uniform(dtype, rng, (4, 33), 9.0, 11.0)
        ones = [uniform(dtype, rng, (33,), 0.5, 1.5) for _ in range(parameters)]
        return [*calls, sample(offset, *ones, axis=1, epsilon=1e-3)]

    return make


def _channel_samples(parameters: int, **attributes: Any) -> Samples:
    def make(dtype: DType, rng: np.random.Generator) -> list[Any]:
        shapes: list[tuple[int, ...]] = [(2, 4, 5, 3), (3, 4, 7), (1, 6, 17, 2), (0, 2, 3)]
        return [
            sample(
                small(dtype, rng, shape),
                *(uniform(dtype, rng, (shape[1],), 0.5, 1.5) for _ in range(parameters)),
                **attributes,
                epsilon=epsilon,
            )
            for shape in shapes
            for epsilon in (1e-5, 1e-2)
        ]

    return make


def _define(
    name: str,
    summary: str,
    operands: str,
    infer: Callable[[str, Sequence[str]], Infer],
    reference: Callable[..., Any],
    decompose: Decompose,
    samples: Samples,
    attributes: dict[str, Any],
) -> Record:
    return composite(
        name,
        "normalise",
        summary,
        operands,
        infer(name, operands.split()[1:]),
        wide_reference(reference),
        in_single(decompose),
        samples,
        attributes={**attributes, "epsilon": float},
        optional=("epsilon",),
        dtypes=FLOATS,
        tolerance="reduction",
    )


NORMALISE: tuple[Record, ...] = (
    _define(
        "layer_norm",
        "Mean 0 and variance 1 over the axes from axis on, times scale, plus bias.",
        "x scale bias", _trailing, _layer, _emit_layer, _trailing_samples(2), {"axis": int},
    ),
    _define(
        "rms_norm",
        "x over the root of its mean square over the axes from axis on, times scale.",
        "x scale", _trailing, _rms, _emit_rms, _trailing_samples(1), {"axis": int},
    ),
    _define(
        "batch_norm",
        "(x - mean) / sqrt(variance + epsilon) * scale + bias, per channel (axis 1).",
        "x scale bias mean variance", _channels, _batch, _emit_batch, _channel_samples(4), {},
    ),
    _define(
        "instance_norm",
        "Mean 0 and variance 1 over the axes after the channels, times scale, plus bias, per channel.",
        "x scale bias", _channels, _instance, _emit_instance, _channel_samples(2), {},
    ),
    _define(
        "group_norm",
        "Mean 0, variance 1 over each group of channels and the axes after them, times scale, plus bias, per channel.",
        "x scale bias", _channels, _group, _emit_group, _channel_samples(2, groups=2), {"groups": int},
    ),
)  # fmt: skip
"""Their records."""
