"""Quantised operators: integers with a scale and a zero point."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder
from oarlock_onnx.node import Node
from oarlock_onnx.operators.common import (
    axis_of,
    cast,
    dtype_of,
    expand,
    like,
    matmul,
    reshape,
    scalar,
    shape_of,
    slice_axis,
    wide,
)
from oarlock_onnx.operators.convolution import integer_convolution, kernel_of
from oarlock_onnx.operators.window import window_of
from oarlock_onnx.registry import operator
from oarlock_onnx.tensors import dtype_of as onnx_dtype

__all__: list[str] = []

_FAR = 2.0**20
"""Beyond every quantised range, and exact in float32 with any zero point added."""


def _dtype_attribute(node: Node, name: str, default: DType) -> DType:
    """A dtype attribute, in which 0 means the default."""
    number = node.integer(name, 0)
    return onnx_dtype(number, name) if number else default


def _spread(b: GraphBuilder, value: Value, x: Value, axis: int, block: int) -> Value:
    """A scale or zero point, to broadcast against ``x``: one for all, one per entry of an axis, one per block."""
    dims, shape = shape_of(x), shape_of(value)
    if math.prod(shape) == 1 and len(shape) <= 1:
        return reshape(b, value, ())
    if len(shape) == 1 and block == 0:
        at = axis_of(axis, len(dims))
        if shape[0] != dims[at]:
            raise ModelError(f"a scale of {shape[0]} entries does not fit axis {axis} of {list(dims)}")
        return reshape(b, value, (shape[0], *(1,) * (len(dims) - at - 1)))
    at = axis_of(axis, len(dims))
    if len(shape) != len(dims) or block < 1 or shape[at] != -(-dims[at] // block):
        raise ModelError(f"a scale {list(shape)} in blocks of {block} does not fit {list(dims)}")
    blocks = reshape(b, value, (*shape[: at + 1], 1, *shape[at + 1 :]))
    blocks = expand(b, blocks, (*shape[: at + 1], block, *shape[at + 1 :]))
    joined = reshape(b, blocks, (*shape[:at], shape[at] * block, *shape[at + 1 :]))
    return slice_axis(b, joined, at, 0, dims[at])


def _saturated(b: GraphBuilder, rounded: Value, zero: Value | None, dtype: DType) -> Value:
    """A rounded float plus the zero point, held to the range of ``dtype``."""
    if not dtype.is_integer or dtype.bits > 16:
        raise ModelError(f"quantising to {dtype} is not supported")
    x = cast(b, rounded, dtypes.float32)
    x = b("maximum", scalar(b, -_FAR, dtypes.float32), b("minimum", scalar(b, _FAR, dtypes.float32), x))
    if zero is not None:
        x = b("add", x, cast(b, zero, dtypes.float32))
    limits = np.iinfo(dtype.numpy)
    low, high = scalar(b, int(limits.min), dtypes.float32), scalar(b, int(limits.max), dtypes.float32)
    return cast(b, b("maximum", low, b("minimum", high, x)), dtype)


@operator("QuantizeLinear")
def quantize_linear(b: GraphBuilder, node: Node) -> Value:
    """saturate(round(x / scale) + zero point); halves round to even."""
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    axis, block = node.integer("axis", 1), node.integer("block_size", 0)
    target = _dtype_attribute(node, "output_dtype", dtypes.uint8 if zero is None else dtype_of(zero))
    if zero is not None and dtype_of(zero) != target:
        raise ModelError(f"output_dtype {target} and a zero point of {dtype_of(zero)} differ")
    inner = _dtype_attribute(node, "precision", dtype_of(scale))
    ratio = b("divide", cast(b, x, inner), cast(b, _spread(b, scale, x, axis, block), inner))
    zero = None if zero is None else _spread(b, zero, x, axis, block)
    return _saturated(b, b("round", ratio), zero, target)


@operator("DequantizeLinear")
def dequantize_linear(b: GraphBuilder, node: Node) -> Value:
    """(x - zero point) * scale."""
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    axis, block = node.integer("axis", 1), node.integer("block_size", 0)
    wanted = _dtype_attribute(node, "output_dtype", dtype_of(scale))
    number = cast(b, x, dtypes.int32)
    if zero is not None:
        if dtype_of(zero) != dtype_of(x):
            raise ModelError(f"x is {dtype_of(x)}, its zero point {dtype_of(zero)}")
        number = b("subtract", number, cast(b, _spread(b, zero, x, axis, block), dtypes.int32))
    inner = wide(wanted)
    return cast(b, b("multiply", cast(b, number, inner), cast(b, _spread(b, scale, x, axis, block), inner)), wanted)


def _shifted(b: GraphBuilder, x: Value, zero: Value | None, tail: int) -> Value:
    """x - zero point as int32; a zero point per entry is followed by ``tail`` dimensions of x."""
    number = cast(b, x, dtypes.int32)
    return number if zero is None else b("subtract", number, cast(b, _entries(b, zero, tail), dtypes.int32))


def _entries(b: GraphBuilder, value: Value, tail: int) -> Value:
    """A scalar as it is; a vector followed by ``tail`` dimensions of size 1."""
    shape = shape_of(value)
    if math.prod(shape) == 1 and len(shape) <= 1:
        return reshape(b, value, ())
    return reshape(b, value, (*shape, *(1,) * tail)) if len(shape) == 1 else value


@operator("MatMulInteger")
def matmul_integer(b: GraphBuilder, node: Node) -> Value:
    """A matrix product of integers less their zero points, in int32."""
    left = _shifted(b, node.input(0), node.optional(2), 1)
    right = _shifted(b, node.input(1), node.optional(3), 0)
    return matmul(b, left, right, dtypes.int32)


@operator("QLinearMatMul")
def qlinear_matmul(b: GraphBuilder, node: Node) -> Value:
    """A matrix product of quantised matrices, quantised again."""
    a_scale, b_scale, y_scale, y_zero = node.input(1), node.input(4), node.input(6), node.input(7)
    left = _shifted(b, node.input(0), node.input(2), 1)
    right = _shifted(b, node.input(3), node.input(5), 0)
    product = matmul(b, left, right, dtypes.int32)
    scales = [_entries(b, a_scale, 1), _entries(b, b_scale, 0), reshape(b, y_scale, ())]
    return _requantised(b, product, scales, reshape(b, y_zero, ()))


def _requantised(b: GraphBuilder, total: Value, scales: Sequence[Value], zero: Value) -> Value:
    """An int32 sum times the input scales over the output scale, plus the output's zero point."""
    first, second, output = (cast(b, scale, dtypes.float32) for scale in scales)
    factor = b("divide", b("multiply", first, second), output)
    ratio = b("multiply", cast(b, total, dtypes.float32), factor)
    return _saturated(b, b("round", ratio), zero, dtype_of(zero))


@operator("ConvInteger")
def conv_integer(b: GraphBuilder, node: Node) -> Value:
    """A convolution of integers less their zero points, in int32."""
    x, weight = node.input(0), node.input(1)
    return _integer_conv(b, node, x, weight, node.optional(2), node.optional(3))


def _integer_conv(
    b: GraphBuilder, node: Node, x: Value, weight: Value, x_zero: Value | None, w_zero: Value | None
) -> Value:
    rank, group = len(shape_of(x)) - 2, node.integer("group", 1)
    given, filters = shape_of(x), shape_of(weight)
    if rank < 1 or len(filters) != rank + 2 or group < 1 or given[1] != filters[1] * group or filters[0] % group:
        raise ModelError(f"input {list(given)}, weight {list(filters)} and group {group} do not fit")
    window = window_of(node, given[2:], kernel_of(node, weight))
    numbers = _shifted(b, x, x_zero, rank)
    return integer_convolution(b, numbers, _shifted(b, weight, w_zero, rank + 1), window, group)


@operator("QLinearConv")
def qlinear_conv(b: GraphBuilder, node: Node) -> Value:
    """A convolution of quantised tensors, quantised again."""
    x, weight, bias = node.input(0), node.input(3), node.optional(8)
    rank = len(shape_of(x)) - 2
    total = _integer_conv(b, node, x, weight, node.input(2), node.input(5))
    if bias is not None:
        total = b("add", total, reshape(b, cast(b, bias, dtypes.int32), (shape_of(bias)[0], *(1,) * rank)))
    scales = [reshape(b, node.input(1), ()), _entries(b, node.input(4), rank), reshape(b, node.input(6), ())]
    return _requantised(b, total, scales, reshape(b, node.input(7), ()))


@operator("DynamicQuantizeLinear")
def dynamic_quantize_linear(b: GraphBuilder, node: Node) -> list[Value]:
    """Quantises to uint8 over the range of the data (which always holds 0); gives the scale and zero point too."""
    x = node.input(0)
    axes = tuple(range(len(shape_of(x))))
    zero = like(b, 0, x)
    high = b("maximum", zero, b("reduce_max", x, axes=axes, keepdims=False))
    low = b("minimum", zero, b("reduce_min", x, axes=axes, keepdims=False))
    scale = b("divide", b("subtract", high, low), like(b, 255, x))
    safe = b("select", b("equal", scale, zero), like(b, 1, x), scale)
    point = b("round", b("negative", b("divide", low, safe)))
    point = _saturated(b, point, None, dtypes.uint8)
    return [_saturated(b, b("round", b("divide", x, safe)), point, dtypes.uint8), scale, point]
