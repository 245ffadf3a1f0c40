"""Element-wise arithmetic, comparison, logic and conversion."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder
from oarlock_onnx.node import Node
from oarlock_onnx.operators.common import cast, dtype_of, like, reshape, scalar, shape_of
from oarlock_onnx.registry import operator
from oarlock_onnx.tensors import dtype_of as onnx_dtype

__all__: list[str] = []

_UNARY = {
    "Ceil": "ceil", "Round": "round", "Floor": "floor", "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Sin": "sin",
    "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh",
    "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh", "Erf": "erf", "Not": "bitwise_invert",
    "BitwiseNot": "bitwise_invert", "IsNaN": "isnan", "Neg": "negative", "Sign": "sign", "Abs": "abs",
}  # fmt: skip
_BINARY = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "And": "bitwise_and", "Or": "bitwise_or", "Xor": "bitwise_xor",
    "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "Equal": "equal",
    "Greater": "greater", "Less": "less", "GreaterOrEqual": "greater_equal", "LessOrEqual": "less_equal",
}  # fmt: skip
_INTEGER_SELF = frozenset({"Ceil", "Round", "Floor"})


@operator(*_UNARY)
def unary(b: GraphBuilder, node: Node) -> Value:
    """One primitive, the same in all versions."""
    x = node.input(0)
    if dtype_of(x).kind == "uint" and node.op_type in ("Abs", "Sign"):
        return x if node.op_type == "Abs" else b("minimum", x, like(b, 1, x))
    if dtype_of(x).is_integer and node.op_type in _INTEGER_SELF:
        return x
    if dtype_of(x).is_integer and node.op_type == "Erf":
        return cast(b, b("erf", cast(b, x, dtypes.float64)), dtype_of(x))
    return b(_UNARY[node.op_type], x)


@operator("Identity")
def identity(b: GraphBuilder, node: Node) -> Value | tuple[Value, ...] | None:
    """The input, of any kind."""
    return node.item(0)


@operator("Reciprocal")
def reciprocal(b: GraphBuilder, node: Node) -> Value:
    """1 / x."""
    x = node.input(0)
    return b("divide", like(b, 1, x), x)


@operator("IsInf")
def is_inf(b: GraphBuilder, node: Node) -> Value:
    """Whether infinite, of the signs asked for."""
    x = node.input(0)
    up = b("equal", x, like(b, np.inf, x))
    down = b("equal", x, like(b, -np.inf, x))
    positive, negative = node.flag("detect_positive", True), node.flag("detect_negative", True)
    if positive and negative:
        return b("bitwise_or", up, down)
    if positive:
        return up
    return down if negative else b("bitwise_and", up, down)


def operands(b: GraphBuilder, node: Node) -> tuple[Value, Value]:
    """The two operands; before version 7 the second is broadcast only when asked, at an axis."""
    x, y = node.input(0), node.input(1)
    if node.version < 7 and shape_of(x) != shape_of(y):
        if not node.flag("broadcast"):
            raise ModelError(f"shapes {list(shape_of(x))} and {list(shape_of(y))} differ")
        if node.has("axis"):
            rank, size = len(shape_of(x)), len(shape_of(y))
            axis = node.integer("axis")
            axis = axis + rank if axis < 0 else axis
            y = reshape(b, y, (*shape_of(y), *(1,) * (rank - axis - size)))
    return x, y


@operator(*_BINARY)
def binary(b: GraphBuilder, node: Node) -> Value:
    """One primitive on two operands."""
    x, y = operands(b, node)
    return b(_BINARY[node.op_type], x, y)


@operator("Div")
def div(b: GraphBuilder, node: Node) -> Value:
    """Division; integers truncate towards zero."""
    x, y = operands(b, node)
    kind = dtype_of(x)
    if kind.is_float:
        return b("divide", x, y)
    if kind.kind == "uint":
        return b("floor_divide", x, y)
    return b("floor_divide", b("subtract", x, b("trunc_remainder", x, y)), y)


@operator("Mod")
def mod(b: GraphBuilder, node: Node) -> Value:
    """Remainder with the sign of the divisor, or (``fmod``) of the dividend."""
    x, y = node.input(0), node.input(1)
    return b("trunc_remainder" if node.flag("fmod") else "remainder", x, y)


@operator("Pow")
def power(b: GraphBuilder, node: Node) -> Value:
    """x to the y, in the dtype of x."""
    x, y = operands(b, node)
    return power_of(b, x, y)


def power_of(b: GraphBuilder, x: Value, y: Value) -> Value:
    """x to the y where the dtypes may differ; the result has the dtype of x."""
    kind, other = dtype_of(x), dtype_of(y)
    exponent = b.peek(y)
    if exponent is not None and exponent.size == 1 and kind.is_float:
        base = x if len(shape_of(y)) <= len(shape_of(x)) else reshape(b, x, (1,) * len(shape_of(y)))
        if float(exponent.reshape(())) == 2.0:
            return b("multiply", base, base)
    if kind == other:
        return b("power", x, y)
    if kind.is_float:
        common = kind if not (other.is_float and other.bits > kind.bits) else other
    elif other.is_float:
        common = dtypes.float64 if kind.bits > 16 else other
    else:
        common = dtypes.promote(kind, other)
        common = dtypes.int64 if common.is_float else common
    return cast(b, b("power", cast(b, x, common), cast(b, y, common)), kind)


@operator("BitShift")
def bit_shift(b: GraphBuilder, node: Node) -> Value:
    """Shift left or right; a shift below zero counts as one past the width."""
    x, y = node.input(0), node.input(1)
    direction = node.string("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise ModelError(f"direction {direction!r}: it is LEFT or RIGHT")
    if dtype_of(y).kind == "int":
        past = like(b, dtype_of(x).bits, y)
        y = b("select", b("less", y, like(b, 0, y)), past, y)
    return b("left_shift" if direction == "LEFT" else "right_shift", x, y)


@operator("Max", "Min", "Sum", "Mean")
def variadic(b: GraphBuilder, node: Node) -> Value:
    """A fold over any number of operands."""
    values = node.all_inputs()
    name = {"Max": "maximum", "Min": "minimum"}.get(node.op_type, "add")
    total = fold(lambda x, y: b(name, x, y), values)
    if node.op_type != "Mean":
        return total
    return b("divide", total, like(b, len(values), total))


@operator("Where")
def where(b: GraphBuilder, node: Node) -> Value:
    """Elements of one or the other by a condition."""
    return b("select", node.input(0), node.input(1), node.input(2))


@operator("Clip")
def clip(b: GraphBuilder, node: Node) -> Value:
    """min(max, max(min, x)), either bound optional: attributes before version 11, then inputs."""
    x = node.input(0)
    low, high = _bounds(b, node, x)
    if low is not None:
        x = b("maximum", x, low)
    return x if high is None else b("minimum", x, high)


def _bounds(b: GraphBuilder, node: Node, x: Value) -> Sequence[Value | None]:
    if node.version >= 11:
        found = [node.optional(1), node.optional(2)]
        return [None if bound is None else reshape(b, bound, ()) for bound in found]
    return [like(b, node.real(name), x) if node.has(name) else None for name in ("min", "max")]


@operator("Cast")
def cast_to(b: GraphBuilder, node: Node) -> Value:
    """Conversion; before version 6 ``to`` is a name."""
    if node.version < 6:
        return convert(b, node.input(0), _by_old_name(node.string("to")))
    return convert(b, node.input(0), onnx_dtype(node.integer("to"), "to"))


def _by_old_name(name: str) -> DType:
    old = {"FLOAT": "float32", "DOUBLE": "float64"}.get(name, name.lower())
    return dtypes.by_name(old)


@operator("CastLike")
def cast_like(b: GraphBuilder, node: Node) -> Value:
    """Conversion to the dtype of the second input."""
    return convert(b, node.input(0), dtype_of(node.input(1)))


def convert(b: GraphBuilder, x: Value, dtype: DType) -> Value:
    """ONNX's Cast: what is out of range of an integer is undefined there, and saturates here."""
    return cast(b, x, dtype)


@operator("BitCast")
def bit_cast(b: GraphBuilder, node: Node) -> Value:
    """The same bits as another dtype of the same width."""
    x, to = node.input(0), onnx_dtype(node.integer("to"), "to")
    kind = dtype_of(x)
    if kind.bits != to.bits:
        raise ModelError(f"cannot reinterpret {kind} as {to}: their widths differ")
    if kind == to:
        return x
    if to == dtypes.bool_:
        bits = x if kind == dtypes.uint8 else b("bitcast", x, dtype=dtypes.uint8)
        return b("not_equal", bits, scalar(b, 0, dtypes.uint8))
    if kind == dtypes.bool_:
        bits = cast(b, x, dtypes.uint8)
        return bits if to == dtypes.uint8 else b("bitcast", bits, dtype=to)
    return b("bitcast", x, dtype=to)
