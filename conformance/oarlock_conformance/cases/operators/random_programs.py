"""Random programs whose results are exact: integers, and floats that hold small integers, so that bits must agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ir import Operation, TensorType, Type, Value
from oarlock.ops import ArrayBuilder, tensor
from oarlock_conformance.cases.operators.build import build_function

__all__ = ["random_program"]

_LIMIT = 64
"""Values are kept in [-64, 64], so that sums and products of floats stay exact."""
_MOST = 4096
"""Elements of a value."""


def random_program(random: np.random.Generator) -> tuple[Operation, list[npt.NDArray[Any]]]:
    """A program of 6 to 20 operators on int32 and float32, and operands for it. All of its last values are results."""
    shapes = [_shape(random) for _ in range(3)]
    kinds = [dtypes.float32, dtypes.int32, dtypes.float32]
    operands = [random.integers(-8, 9, shape).astype(kind.numpy) for shape, kind in zip(shapes, kinds, strict=True)]
    types: list[Type] = [TensorType(kind, shape) for shape, kind in zip(shapes, kinds, strict=True)]

    def body(b: ArrayBuilder, *arguments: Value) -> list[Value]:
        values = list(arguments)
        for _ in range(int(random.integers(6, 21))):
            made = _step(b, values, random)
            if made is not None:
                values.append(made)
        unused = [value for value in values[len(arguments) :] if not value.uses]
        return unused[-4:] or [values[-1]]

    return build_function(types, body, "random"), operands


def _shape(random: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(random.choice([1, 2, 3, 4, 5, 7, 8, 13, 16, 31])) for _ in range(int(random.integers(1, 4))))


def _step(b: ArrayBuilder, values: list[Value], random: np.random.Generator) -> Value | None:
    """One more value, or None where the drawn operator does not fit the drawn operands."""
    x = values[int(random.integers(len(values)))]
    makers = (_unary, _binary, _binary, _binary, _select, _reduce, _reduce, _move, _move, _move, _convert)
    made = makers[int(random.integers(len(makers)))](b, x, values, random)
    if made is None or made is x:
        return None
    return made if tensor(made).dtype.kind == "bool" else _clamped(b, made)


def _clamped(b: ArrayBuilder, x: Value) -> Value:
    return b("minimum", b("maximum", x, b.full(-_LIMIT, x)), b.full(_LIMIT, x))


def _numbers(values: list[Value], kind: DType) -> list[Value]:
    return [value for value in values if tensor(value).dtype == kind]


def _unary(b: ArrayBuilder, x: Value, values: list[Value], random: np.random.Generator) -> Value | None:
    if tensor(x).dtype.kind == "bool":
        return b("logical_not", x)
    return b(str(random.choice(["negative", "abs", "sign", "square", "relu"])), x)


def _binary(b: ArrayBuilder, x: Value, values: list[Value], random: np.random.Generator) -> Value | None:
    kind = tensor(x).dtype
    fitting = [y for y in _numbers(values, kind) if _broadcast(x, y) is not None]
    y = fitting[int(random.integers(len(fitting)))]
    if kind.kind == "bool":
        return b(str(random.choice(["logical_and", "logical_or", "logical_xor"])), x, y)
    name = str(random.choice(["add", "subtract", "multiply", "maximum", "minimum", "less", "equal", "greater_equal"]))
    return b(name, x, y)


def _broadcast(x: Value, y: Value) -> tuple[int, ...] | None:
    """The shape that two values broadcast to; None when they do not, or when it is too large."""
    try:
        shape = np.broadcast_shapes(tensor(x).static_shape, tensor(y).static_shape)
    except ValueError:
        return None
    return shape if np.prod(shape) <= _MOST else None


def _select(b: ArrayBuilder, x: Value, values: list[Value], random: np.random.Generator) -> Value | None:
    conditions = [c for c in _numbers(values, dtypes.bool_) if _broadcast(c, x) is not None]
    if not conditions or tensor(x).dtype.kind == "bool":
        return None
    condition = conditions[int(random.integers(len(conditions)))]
    return b("select", condition, x, b.full(int(random.integers(-3, 4)), x))


def _reduce(b: ArrayBuilder, x: Value, values: list[Value], random: np.random.Generator) -> Value | None:
    shape = tensor(x).static_shape
    if not shape:
        return None
    axes = tuple(sorted({int(axis) for axis in random.integers(0, len(shape), int(random.integers(1, 3)))}))
    kinds = (
        ["reduce_max", "reduce_min"] if tensor(x).dtype.kind == "bool" else ["reduce_sum", "reduce_max", "reduce_min"]
    )
    return b(str(random.choice(kinds)), x, axes=axes, keepdims=bool(random.integers(2)))


def _move(b: ArrayBuilder, x: Value, values: list[Value], random: np.random.Generator) -> Value | None:
    shape = tensor(x).static_shape
    if not shape:
        return b("broadcast", x, shape=(5,), dims=())
    which = int(random.integers(7))
    if which == 0:
        return b("transpose", x, permutation=tuple(int(i) for i in random.permutation(len(shape))))
    if which == 1:
        return b("reshape", x, shape=(int(np.prod(shape)),))
    if which == 2:
        starts = tuple(int(random.integers(0, size)) for size in shape)
        steps = tuple(int(random.integers(1, 4)) for _ in shape)
        return b("slice", x, starts=starts, limits=shape, steps=steps)
    if which == 3:
        return b("reverse", x, axes=(int(random.integers(len(shape))),))
    if which == 4 and np.prod(shape) <= _MOST // 4:
        return b("concat", x, x, axis=int(random.integers(len(shape))))
    if which == 5 and np.prod(shape) <= _MOST // 4:
        edges = [tuple(int(n) for n in random.integers(0, 3, len(shape))) for _ in range(2)]
        filler = b.constant(1, tensor(x).dtype)
        return b("pad", x, filler, low=edges[0], high=edges[1], interior=(0,) * len(shape))
    if which == 6 and np.prod(shape) <= _MOST // 4:
        return b("broadcast", x, shape=(3, *shape), dims=tuple(range(1, len(shape) + 1)))
    return None


def _convert(b: ArrayBuilder, x: Value, values: list[Value], random: np.random.Generator) -> Value | None:
    kind = tensor(x).dtype
    return b.convert(x, dtypes.int32 if kind != dtypes.int32 else dtypes.float32)
