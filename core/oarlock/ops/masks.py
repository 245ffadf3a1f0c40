"""Composite operators that compare positions: one_hot and the triangles of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import ShapeError
from oarlock.ir import TensorType, Value
from oarlock.ops.composite import composite
from oarlock.ops.inference import INTEGERS, axis_of, dtype_of, int_of
from oarlock.ops.numerics import quiet
from oarlock.ops.record import Array, ArrayBuilder, Attributes, Record, tensor
from oarlock.ops.sampling import sample, values
from oarlock.ops.selection import around, widened

__all__ = ["MASKS"]


def _infer_one_hot(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (indices,) = types
    depth = int_of("one_hot", attributes, "depth", least=0)
    axis = axis_of("one_hot", attributes, indices.rank + 1)
    return (TensorType(dtype_of(attributes), (*indices.shape[:axis], depth, *indices.shape[axis:])),)


def _emit_one_hot(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    indices = widened(b, operands[0])
    axis, depth = cast(int, attributes["axis"]), cast(int, attributes["depth"])
    shape = tensor(indices).shape
    full = (*shape[:axis], depth, *shape[axis:])
    repeated = b("broadcast", indices, shape=full, dims=tuple(i for i in range(len(full)) if i != axis))
    place = b("iota", shape=full, axis=axis, dtype=tensor(indices).dtype)
    return (b.convert(b("equal", repeated, place), dtype_of(attributes)),)


@quiet
def _one_hot(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    axis, depth = cast(int, attributes["axis"]), cast(int, attributes["depth"])
    line = np.arange(depth).reshape(-1, *[1] * (operands[0].ndim - axis))
    return ((np.expand_dims(operands[0], axis) == line).astype(dtype_of(attributes).numpy),)


def _infer_triangle(name: str) -> Any:
    def infer(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        if types[0].rank < 2:
            raise ShapeError(f"{name}: the operand is {types[0]}, but needs two axes")
        int_of(name, attributes, "k")
        return (types[0],)

    return infer


def _emit_triangle(upper: bool) -> Any:
    def emit(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
        (x,) = operands
        shape = tensor(x).shape
        column = b("iota", shape=shape[-2:], axis=1, dtype=dtypes.int32)
        diagonal = b(
            "add", b("iota", shape=shape[-2:], axis=0, dtype=dtypes.int32), b.full(cast(int, attributes["k"]), column)
        )
        mask = b("greater_equal" if upper else "less_equal", column, diagonal)
        return (b("select", mask, x, b.full(0, x)),)

    return emit


def _one_hot_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    return [
        sample(around(rng, depth, shape, dtype), depth=depth, axis=axis, dtype=result)
        for shape, depth, axis in (((), 3, 0), ((5,), 4, 1), ((5,), 4, 0), ((3, 2), 5, 1), ((0,), 3, 1), ((7,), 127, 1))
        for result in (dtypes.float32, dtypes.bool_, dtype)
    ]


def _triangle_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    return [
        sample(values(dtype, rng, shape), k=k)
        for shape in ((3, 5), (2, 5, 3), (1, 1), (0, 3), (33, 17))
        for k in (0, 1, -2)
    ]


MASKS: tuple[Record, ...] = (
    composite(
        "one_hot", "index",
        "1 where the place on a new axis of size depth equals the index, else 0; all 0 for an index outside.",
        "indices", _infer_one_hot, _one_hot, _emit_one_hot, _one_hot_samples,
        attributes={"depth": int, "axis": int, "dtype": DType}, dtypes=INTEGERS,
    ),
    composite(
        "tril", "index", "The lower triangle of the last two axes: up to diagonal k, zeros above.", "x",
        _infer_triangle("tril"), quiet(lambda x, a: (np.tril(x[0], cast(int, a["k"])),)), _emit_triangle(False),
        _triangle_samples, attributes={"k": int},
    ),
    composite(
        "triu", "index", "The upper triangle of the last two axes: from diagonal k on, zeros below.", "x",
        _infer_triangle("triu"), quiet(lambda x, a: (np.triu(x[0], cast(int, a["k"])),)), _emit_triangle(True),
        _triangle_samples, attributes={"k": int},
    ),
)  # fmt: skip
"""Their records."""
