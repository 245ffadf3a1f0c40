"""Normalisation: batch, instance, layer, local response, Lp."""

from __future__ import annotations

from oarlock import dtypes
from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder
from oarlock_onnx.node import Item, Node
from oarlock_onnx.operators.common import (
    axis_of,
    cast,
    dtype_of,
    like,
    pad_axes,
    reduce,
    reshape,
    shape_of,
    slice_axis,
    wide,
)
from oarlock_onnx.operators.reduction import mean_of
from oarlock_onnx.registry import operator
from oarlock_onnx.tensors import dtype_of as onnx_dtype

__all__: list[str] = []


def _per_channel(b: GraphBuilder, value: Value, x: Value) -> Value:
    """A vector of channels, to broadcast against ``x`` (channels are dimension 1)."""
    channels = shape_of(x)[1] if len(shape_of(x)) > 1 else 1
    if shape_of(value) != (channels,):
        raise ModelError(f"{list(shape_of(value))} does not fit {channels} channels")
    return reshape(b, value, (channels, *(1,) * (len(shape_of(x)) - 2)))


def _moments(b: GraphBuilder, x: Value, axes: tuple[int, ...]) -> tuple[Value, Value, Value]:
    """Mean, variance and what is left after the mean is taken off."""
    mean = mean_of(b, x, axes)
    rest = b("subtract", x, mean)
    return mean, mean_of(b, b("multiply", rest, rest), axes), rest


def _inverse_root(b: GraphBuilder, variance: Value, epsilon: float) -> Value:
    return b("divide", like(b, 1, variance), b("sqrt", b("add", variance, like(b, epsilon, variance))))


@operator("BatchNormalization")
def batch_normalization(b: GraphBuilder, node: Node) -> list[Item]:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias per channel; in training mode by the batch's moments."""
    x, scale, bias, mean, variance = (node.input(index) for index in range(5))
    training = node.flag("training_mode") if node.version >= 14 else False
    if node.version < 14 and any(node.wants(index) for index in range(1, 5)):
        raise ModelError(f"training mode of operator set {node.version} is not supported")
    kind, epsilon = dtype_of(x), node.real("epsilon", 1e-5)
    inner = wide(kind)
    x, scale, bias = (cast(b, value, inner) for value in (x, scale, bias))
    given = [cast(b, value, inner) for value in (mean, variance)]
    used, running = _statistics(b, node, x, given) if training else (given, [])
    factor = b("multiply", scale, _inverse_root(b, used[1], epsilon))
    offset = b("subtract", bias, b("multiply", used[0], factor))
    result = b("add", b("multiply", x, _per_channel(b, factor, x)), _per_channel(b, offset, x))
    return [cast(b, result, kind), *(cast(b, value, dtype_of(mean)) for value in running)]


def _statistics(b: GraphBuilder, node: Node, x: Value, given: list[Value]) -> tuple[list[Value], list[Value]]:
    axes = tuple(axis for axis in range(len(shape_of(x))) if axis != 1)
    mean, variance, _ = _moments(b, x, axes)
    used = [reshape(b, value, (shape_of(x)[1],)) for value in (mean, variance)]
    momentum = node.real("momentum", 0.9)
    running = [
        b("add", b("multiply", old, like(b, momentum, old)), b("multiply", new, like(b, 1 - momentum, new)))
        for old, new in zip(given, used, strict=True)
    ]
    return used, running


@operator("InstanceNormalization")
def instance_normalization(b: GraphBuilder, node: Node) -> Value:
    """Each channel of each entry by its own mean and variance."""
    return b("instance_norm", *(node.input(index) for index in range(3)), epsilon=node.real("epsilon", 1e-5))


@operator("LayerNormalization")
def layer_normalization(b: GraphBuilder, node: Node) -> list[Item]:
    """The dimensions from ``axis`` on by their mean and variance, computed in the stash type."""
    x, scale, bias = node.input(0), node.input(1), node.optional(2)
    rank, kind, epsilon = len(shape_of(x)), dtype_of(x), node.real("epsilon", 1e-5)
    axis = axis_of(node.integer("axis", -1), rank)
    stash = onnx_dtype(node.integer("stash_type", 1), "stash_type")
    inner = stash if stash.is_float and stash.bits >= 32 else dtypes.float32
    plain = inner == wide(kind) and not node.wants(1) and not node.wants(2)
    if plain and bias is not None and shape_of(scale) == shape_of(bias) == shape_of(x)[axis:]:
        return [b("layer_norm", x, scale, bias, axis=axis, epsilon=epsilon)]
    mean, variance, rest = _moments(b, cast(b, x, inner), tuple(range(axis, rank)))
    inverse = _inverse_root(b, variance, epsilon)
    result = b("multiply", cast(b, b("multiply", rest, inverse), kind), scale)
    if bias is not None:
        result = b("add", result, bias)
    return [result, cast(b, mean, stash), cast(b, inverse, stash)]


@operator("LpNormalization")
def lp_normalization(b: GraphBuilder, node: Node) -> Value:
    """x divided by its 1-norm or 2-norm along an axis; 0 where that is 0."""
    x, p = node.input(0), node.integer("p", 2)
    axis = (axis_of(node.integer("axis", -1), len(shape_of(x))),)
    if p not in (1, 2):
        raise ModelError(f"p {p} is not 1 or 2")
    if p == 1:
        norm = reduce(b, "sum", b("abs", x), axis)
    else:
        norm = b("sqrt", reduce(b, "sum", b("multiply", x, x), axis))
    none = b("equal", norm, like(b, 0, norm))
    return b("divide", x, b("select", none, like(b, 1, norm), norm))


@operator("LRN")
def lrn(b: GraphBuilder, node: Node) -> Value:
    """x / (bias + alpha / size * sum of squares of neighbouring channels) ** beta."""
    x, size = node.input(0), node.integer("size")
    alpha, beta, bias = node.real("alpha", 1e-4), node.real("beta", 0.75), node.real("bias", 1.0)
    shape = shape_of(x)
    if len(shape) < 2 or not 1 <= size < 2**16:
        raise ModelError(f"size {size} does not fit the input {list(shape)}")
    kind = dtype_of(x)
    inner = cast(b, x, wide(kind))
    before = (size - 1) // 2
    rank = len(shape)
    window, ones = (1, size, *(1,) * (rank - 2)), (1,) * rank
    padding = ((0, 0), (before, size - 1 - before), *((0, 0),) * (rank - 2))
    total = b(
        "window_reduce",
        b("multiply", inner, inner),
        kind="sum",
        window=window,
        strides=ones,
        padding=padding,
        dilation=ones,
    )
    base = b("add", like(b, bias, inner), b("multiply", like(b, alpha / size, inner), total))
    return cast(b, b("divide", inner, b("power", base, like(b, beta, inner))), kind)


@operator("Dropout")
def dropout(b: GraphBuilder, node: Node) -> list[Item]:
    """At inference the input itself; a random mask is not supported."""
    x = node.input(0)
    if node.version >= 12:
        mode, ratio = node.optional(2), node.optional(1)
        training = mode is not None and bool(b.static(mode, "training_mode").reshape(()))
        rate = 0.5 if ratio is None else float(b.static(ratio, "ratio").reshape(())) if training else 0.0
        if training and rate != 0.0:
            raise ModelError("dropout in training mode draws random numbers, which is not supported")
    elif node.version < 7 and not node.flag("is_test"):
        raise ModelError("dropout in training mode draws random numbers, which is not supported")
    ones = b("broadcast", b.constant(True), shape=shape_of(x), dims=())
    return [x, ones if node.version >= 10 else cast(b, ones, dtype_of(x))]


@operator("CausalConvWithState")
def causal_convolution(b: GraphBuilder, node: Node) -> list[Item]:
    """A convolution per channel over the past only, with the last inputs carried on as state."""
    x, weight, bias, past = node.input(0), node.input(1), node.optional(2), node.optional(3)
    if len(shape_of(x)) != 3 or len(shape_of(weight)) != 3 or shape_of(weight)[:2] != (shape_of(x)[1], 1):
        raise ModelError(f"input {list(shape_of(x))} and weight {list(shape_of(weight))} do not fit")
    channels, taps = shape_of(x)[1], shape_of(weight)[2]
    if past is None:
        joined = pad_axes(b, x, (0, 0, taps - 1), (0, 0, 0), like(b, 0, x))
    else:
        joined = b("concat", past, x, axis=2)
    kind = dtype_of(x)
    inner = wide(kind)
    result = b(
        "convolution",
        cast(b, joined, inner),
        cast(b, weight, inner),
        strides=(1,),
        padding=((0, 0),),
        dilation=(1,),
        groups=channels,
    )
    if bias is not None:
        result = b("add", result, reshape(b, cast(b, bias, inner), (channels, 1)))
    activation = node.string("activation", "none")
    if activation in ("silu", "swish"):
        result = b("silu", result)
    elif activation != "none":
        raise ModelError(f"activation {activation!r} is not silu, swish or none")
    length = shape_of(joined)[2]
    return [cast(b, result, kind), slice_axis(b, joined, 2, length - taps + 1, length)]
