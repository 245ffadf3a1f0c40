"""The tolerance table's rows for composites: forward error bounds of their decompositions, term by term."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from oarlock.ops.bounds import Bound, Call, scatter_bound
from oarlock.ops.record import Array

__all__ = ["COMPOSITE_BOUNDS"]


def _axes(call: Call) -> tuple[int, ...]:
    return cast("tuple[int, ...]", call.attributes["axes"])


def _epsilon(call: Call) -> float:
    return float(cast(float, call.attributes.get("epsilon", 1e-5)))


def _by_operand(steps: float, offset: float = 0.0) -> Bound:
    """``steps`` roundings of the size of the largest operand plus ``offset``."""

    def bound(call: Call) -> Any:
        largest = np.max(np.broadcast_arrays(*(np.abs(x) for x in call.operands)), axis=0)
        return steps * call.unit * (largest + offset)

    return bound


def _line(steps: float) -> Bound:
    """``steps`` roundings of alpha * x + beta."""

    def bound(call: Call) -> Any:
        alpha, beta = (float(cast(float, call.attributes.get(k, d))) for k, d in (("alpha", 0.2), ("beta", 0.5)))
        return steps * call.unit * (np.abs(alpha * call.operands[0]) + abs(beta))

    return bound


def _mean(call: Call) -> Any:
    count = math.prod(call.operands[0].shape[a] for a in _axes(call))
    return (count + 4) * call.unit * call.absolute()


def _moments(x: Array, axes: Sequence[int], unit: float) -> tuple[Array, Array, Array, Any]:
    """Deviations from the mean, the error of each, the variance and its error, as two passes give them."""
    axes = tuple(axes)
    count = math.prod(x.shape[a] for a in axes)
    mean = np.sum(x, axes, keepdims=True) / count
    deviation = x - mean
    error = (count + 4) * unit * np.sum(np.abs(x), axes, keepdims=True) / count + 2 * unit * np.abs(x)
    variance = np.sum(deviation**2, axes, keepdims=True) / count
    drift = np.sum(2 * np.abs(deviation) * error + error**2, axes, keepdims=True) / count
    return deviation, error, variance, drift + (count + 8) * unit * variance


def _variance(call: Call) -> Any:
    x, axes = call.operands[0], _axes(call)
    count = math.prod(x.shape[a] for a in axes)
    error = _moments(x, axes, call.unit)[3]
    freedom = count - float(cast(float, call.attributes.get("correction", 0)))
    return (error * count / freedom if freedom > 0 else 0 * error).reshape(call.expected.shape)


def _normalisation(call: Call, x: Array, axes: Sequence[int], scale: Array, bias: Array) -> Any:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias."""
    deviation, error, variance, drift = _moments(x, axes, call.unit)
    floor = variance + _epsilon(call)
    relative = drift / floor / 2 + 12 * call.unit
    normal = (error + np.abs(deviation) * relative) / np.sqrt(floor)
    return normal * np.abs(scale) + 4 * call.unit * (np.abs(deviation) / np.sqrt(floor) * np.abs(scale) + np.abs(bias))


def _layer_norm(call: Call) -> Any:
    x, scale, bias = call.operands
    return _normalisation(call, x, range(call.integer("axis"), x.ndim), scale, bias)


def _rms_norm(call: Call) -> Any:
    x = call.operands[0]
    count = math.prod(x.shape[call.integer("axis") :])
    return (count + 16) * call.unit * np.abs(call.expected)


def _channel(parameter: Array, x: Array) -> Array:
    return parameter.reshape(-1, *[1] * (x.ndim - 2))


def _batch_norm(call: Call) -> Any:
    x = call.operands[0]
    scale, bias, mean, variance = (_channel(p, x) for p in call.operands[1:])
    size = (np.abs(x) + np.abs(mean)) * np.abs(scale) / np.sqrt(variance + _epsilon(call))
    return 16 * call.unit * (size + np.abs(bias))


def _instance_norm(call: Call) -> Any:
    x, scale, bias = call.operands
    return _normalisation(call, x, range(2, x.ndim), _channel(scale, x), _channel(bias, x))


def _group_norm(call: Call) -> Any:
    x, scale, bias = call.operands
    groups = call.integer("groups")
    grouped = x.reshape(x.shape[0], groups, x.shape[1] // groups, math.prod(x.shape[2:]))
    parameters = (p.reshape(1, groups, -1, 1) for p in (scale, bias))
    return _normalisation(call, grouped, (2, 3), *parameters).reshape(x.shape)


def _shift(call: Call, axes: tuple[int, ...]) -> tuple[Array, int]:
    """|x - max| along axes, and the number of elements there."""
    x = call.operands[0]
    top = np.max(x, axes, keepdims=True, initial=-np.inf)
    return np.abs(x - np.where(np.isfinite(top), top, 0)), math.prod(x.shape[a] for a in axes)


def _softmax(call: Call) -> Any:
    """The sum's terms err by their own shift, weighted by the terms: below 1/e each, so 2 in all."""
    shift, count = _shift(call, (call.integer("axis"),))
    return (shift + count + 24) * call.unit * call.expected


def _log_softmax(call: Call) -> Any:
    shift, count = _shift(call, (call.integer("axis"),))
    return (shift + count + 24 + 8 * np.abs(call.expected)) * call.unit


def _logsumexp(call: Call) -> Any:
    top = np.max(call.operands[0], _axes(call), keepdims=True, initial=-np.inf).reshape(call.expected.shape)
    _, count = _shift(call, _axes(call))
    return (np.where(np.isfinite(top), np.abs(top), 0) + count + 16 + 8 * np.abs(call.expected)) * call.unit


def _running(call: Call) -> Any:
    return (call.operands[0].shape[call.integer("axis")] + 2) * call.unit * call.absolute()


def _matmul(call: Call) -> Any:
    return (call.operands[0].shape[-1] + 2) * call.unit * call.absolute()


def _conv_transpose(call: Call) -> Any:
    w = call.operands[1]
    return (w.shape[0] * math.prod(w.shape[2:]) + 2) * call.unit * call.absolute()


def _average_pool(call: Call) -> Any:
    return (math.prod(call.integers("window")) + 4) * call.unit * call.absolute()


def _resize(call: Call) -> Any:
    """Cubic weights are negative too: their absolute values sum to below 2 an axis."""
    x = call.operands[0]
    largest = np.max(np.abs(x), initial=0.0)
    return (
        0 if call.attributes["mode"] == "nearest" else 16 * x.ndim * call.unit * largest * np.ones(call.expected.shape)
    )


def _cell(call: Call) -> Any:
    """The gates' sums err like products of whole rows; what follows has slopes of at most 1 and the state's size."""
    sizes = [np.abs(x) for x in call.operands]
    states = 2 if call.record.name == "lstm_cell" else 1
    x, h, (w, r) = sizes[0], sizes[1], sizes[1 + states : 3 + states]
    biases = sum(float(np.max(bias, initial=0.0)) for bias in sizes[3 + states :])
    rows = np.max(x @ w.T, 1, initial=0.0) + np.max(h @ r.T, 1, initial=0.0) + biases
    length = x.shape[1] + h.shape[1] + 40
    state = 1 + np.max(sizes[states], 1, initial=0.0)
    depth = 1 + np.max(r.sum(1), initial=0.0) if call.record.name == "gru_cell" else 1
    return (length * call.unit * (rows + 1) * state * depth)[:, None] * np.ones(call.expected.shape)


COMPOSITE_BOUNDS: Mapping[str, Bound] = {
    "gelu": _by_operand(24),
    "hard_sigmoid": _line(4),
    "hard_swish": lambda call: 4 * call.unit * np.abs(call.operands[0]) * (np.abs(call.operands[0]) / 6 + 0.5),
    "logaddexp": _by_operand(8, 1.0),
    "mean": _mean,
    "variance": _variance,
    "logsumexp": _logsumexp,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "cumsum": _running,
    "cumprod": _running,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "matmul": _matmul,
    "conv_transpose": _conv_transpose,
    "average_pool": _average_pool,
    "resize": _resize,
    "lstm_cell": _cell,
    "gru_cell": _cell,
    "rnn_cell": _cell,
    "scatter_along_axis": scatter_bound,
    "scatter_nd": scatter_bound,
}
"""Allowed absolute error before the result is rounded to its dtype, by operator."""
