"""Activation functions, softmax and its relatives."""

from __future__ import annotations

import math

from oarlock import dtypes
from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder
from oarlock_onnx.node import Node
from oarlock_onnx.operators.common import axis_of, cast, dtype_of, like, numbers, reshape, shape_of
from oarlock_onnx.registry import operator

__all__ = ["leaky_relu", "relu_of", "softplus"]

_SELU_ALPHA = 1.67326319217681884765625
_SELU_GAMMA = 1.05070102214813232421875


def relu_of(b: GraphBuilder, x: Value) -> Value:
    """max(x, 0)."""
    return b("relu", x)


@operator("Relu")
def relu(b: GraphBuilder, node: Node) -> Value:
    """max(x, 0)."""
    return relu_of(b, node.input(0))


@operator("Sigmoid")
def sigmoid(b: GraphBuilder, node: Node) -> Value:
    """1 / (1 + exp(-x))."""
    return b("sigmoid", node.input(0))


def leaky_relu(b: GraphBuilder, x: Value, slope: Value) -> Value:
    """x, below zero times ``slope``."""
    return b("select", b("less", x, like(b, 0, x)), b("multiply", x, slope), x)


@operator("LeakyRelu")
def leaky(b: GraphBuilder, node: Node) -> Value:
    """x, below zero times alpha."""
    return b("leaky_relu", node.input(0), alpha=node.real("alpha", 0.01))


@operator("PRelu")
def prelu(b: GraphBuilder, node: Node) -> Value:
    """x, below zero times a tensor; before version 7 a slope per channel."""
    x, slope = node.input(0), node.input(1)
    if node.version < 7 and len(shape_of(slope)) == 1 and len(shape_of(x)) > 1:
        slope = reshape(b, slope, (*shape_of(slope), *(1,) * (len(shape_of(x)) - 2)))
    return leaky_relu(b, x, slope)


@operator("ThresholdedRelu")
def thresholded_relu(b: GraphBuilder, node: Node) -> Value:
    """x above alpha, else 0."""
    x = node.input(0)
    return b("select", b("greater", x, like(b, node.real("alpha", 1.0), x)), x, b.full(0, x))


def elu_of(b: GraphBuilder, x: Value, alpha: float) -> Value:
    """x, below zero alpha (exp(x) - 1)."""
    return b("elu", x, alpha=alpha)


@operator("Elu")
def elu(b: GraphBuilder, node: Node) -> Value:
    """x, below zero alpha (exp(x) - 1)."""
    return elu_of(b, node.input(0), node.real("alpha", 1.0))


@operator("Selu")
def selu(b: GraphBuilder, node: Node) -> Value:
    """gamma elu(x); the defaults before version 6 are rounded."""
    alpha = node.real("alpha", _SELU_ALPHA if node.version >= 6 else 1.6732)
    gamma = node.real("gamma", _SELU_GAMMA if node.version >= 6 else 1.0507)
    return b("selu", node.input(0), alpha=alpha, gamma=gamma)


@operator("Celu")
def celu(b: GraphBuilder, node: Node) -> Value:
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""
    return b("celu", node.input(0), alpha=node.real("alpha", 1.0))


@operator("HardSigmoid")
def hard_sigmoid(b: GraphBuilder, node: Node) -> Value:
    """max(0, min(1, alpha x + beta))."""
    return hard_sigmoid_of(b, node.input(0), node.real("alpha", 0.2), node.real("beta", 0.5))


def hard_sigmoid_of(b: GraphBuilder, x: Value, alpha: float, beta: float) -> Value:
    """max(0, min(1, alpha x + beta))."""
    return b("hard_sigmoid", x, alpha=alpha, beta=beta)


@operator("HardSwish")
def hard_swish(b: GraphBuilder, node: Node) -> Value:
    """x hard_sigmoid(x) with alpha 1/6, beta 1/2."""
    return b("hard_swish", node.input(0))


def softplus(b: GraphBuilder, x: Value) -> Value:
    """log(1 + exp(x)), without overflow."""
    return b("softplus", x)


@operator("Softplus")
def softplus_node(b: GraphBuilder, node: Node) -> Value:
    """log(1 + exp(x))."""
    return softplus(b, node.input(0))


@operator("Softsign")
def softsign(b: GraphBuilder, node: Node) -> Value:
    """x / (1 + |x|)."""
    return b("softsign", node.input(0))


@operator("Mish")
def mish(b: GraphBuilder, node: Node) -> Value:
    """x tanh(softplus(x))."""
    return b("mish", node.input(0))


@operator("Swish")
def swish(b: GraphBuilder, node: Node) -> Value:
    """x sigmoid(alpha x)."""
    x, alpha = node.input(0), node.real("alpha", 1.0)
    return b("silu", x) if alpha == 1.0 else b("multiply", x, b("sigmoid", b("multiply", like(b, alpha, x), x)))


@operator("Gelu")
def gelu(b: GraphBuilder, node: Node) -> Value:
    """x times the normal distribution's cumulative function, exact or by tanh."""
    approximate = node.string("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise ModelError(f"approximate {approximate!r}: it is none or tanh")
    return b("gelu", node.input(0), approximate=approximate == "tanh")


@operator("Shrink")
def shrink(b: GraphBuilder, node: Node) -> Value:
    """x + bias below -lambd, x - bias above lambd, else 0."""
    x = node.input(0)
    bias, lambd = node.real("bias", 0.0), node.real("lambd", 0.5)
    kind = dtype_of(x)
    if kind.is_integer:
        wider = dtypes.float64 if kind.bits > 16 else dtypes.float32
        return cast(b, _shrink(b, cast(b, x, wider), bias, lambd), kind)
    return _shrink(b, x, bias, lambd)


def _shrink(b: GraphBuilder, x: Value, bias: float, lambd: float) -> Value:
    up = b("subtract", x, like(b, bias, x))
    down = b("add", x, like(b, bias, x))
    above = b("select", b("greater", x, like(b, lambd, x)), up, b.full(0, x))
    return b("select", b("less", x, like(b, -lambd, x)), down, above)


@operator("Softmax", "LogSoftmax", "Hardmax")
def softmax(b: GraphBuilder, node: Node) -> Value:
    """Along one axis; before version 13 along all axes from ``axis`` on."""
    x = node.input(0)
    shape = shape_of(x)
    if node.version >= 13:
        return _softmax(b, node.op_type, x, axis_of(node.integer("axis", -1), max(len(shape), 1)))
    axis = node.integer("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    if not 0 <= axis <= len(shape):
        raise ModelError(f"axis {axis} is outside the rank {len(shape)}")
    flat = reshape(b, x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
    return reshape(b, _softmax(b, node.op_type, flat, 1), shape)


def _softmax(b: GraphBuilder, kind: str, x: Value, axis: int) -> Value:
    if kind == "Hardmax":
        return _hardmax(b, x, axis)
    if not shape_of(x):
        return b.full(1 if kind == "Softmax" else 0, x)
    return b("softmax" if kind == "Softmax" else "log_softmax", x, axis=axis)


def _hardmax(b: GraphBuilder, x: Value, axis: int) -> Value:
    shape = shape_of(x)
    if not shape:
        return b.full(1, x)
    first = b("argmax", x, axis=axis, keepdims=True, dtype=dtypes.int32)
    return cast(b, b("equal", first, numbers(b, shape[axis], len(shape), axis)), dtype_of(x))
