"""What many operators' functions need: shapes, axes, broadcasting, conversion of indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock.ops.record import tensor
from oarlock_onnx.builder import GraphBuilder

__all__ = [
    "axes_of", "axis_of", "broadcast_shape", "broadcast_together", "cast", "dtype_of", "expand", "fill", "gather_axis",
    "index32", "like", "matmul", "numbers", "pad_axes", "reduce", "reshape", "scalar", "shape_of",
    "slice_axis", "transpose", "unsqueeze", "wide",
]  # fmt: skip

Array = npt.NDArray[Any]


def shape_of(value: Value) -> tuple[int, ...]:
    """The (concrete) shape."""
    return tensor(value).static_shape


def dtype_of(value: Value) -> DType:
    """The dtype."""
    return tensor(value).dtype


def axis_of(axis: int, rank: int, what: str = "axis") -> int:
    """``axis`` counted from the front; raises ModelError outside [-rank, rank)."""
    if not -rank <= axis < rank:
        raise ModelError(f"{what} {axis} is outside [{-rank}, {rank - 1}]")
    return axis % rank


def axes_of(axes: Sequence[int], rank: int, what: str = "axis") -> tuple[int, ...]:
    """Axes counted from the front; raises ModelError for one outside the rank or given twice."""
    found = tuple(axis_of(axis, rank, what) for axis in axes)
    if len(set(found)) != len(found):
        raise ModelError(f"{what} {list(axes)} names one axis twice")
    return found


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that shapes broadcast to; raises ModelError when they do not."""
    try:
        return np.broadcast_shapes(*(tuple(shape) for shape in shapes))
    except ValueError:
        raise ModelError(f"shapes {' and '.join(str(list(shape)) for shape in shapes)} do not broadcast") from None


def cast(b: GraphBuilder, value: Value, dtype: DType) -> Value:
    """``value`` as ``dtype``."""
    return b.convert(value, dtype)


def scalar(b: GraphBuilder, value: float | int | bool, dtype: DType) -> Value:
    """A constant of no dimensions, to broadcast."""
    return b.constant(np.asarray(value), dtype)


def like(b: GraphBuilder, value: float | int | bool, other: Value) -> Value:
    """A constant of no dimensions in the dtype of ``other``."""
    return scalar(b, value, dtype_of(other))


def fill(b: GraphBuilder, value: Value, shape: Sequence[int]) -> Value:
    """A tensor of ``shape`` filled with the value of no dimensions."""
    return b("broadcast", value, shape=tuple(shape), dims=())


def reshape(b: GraphBuilder, value: Value, shape: Sequence[int]) -> Value:
    """``value`` in another shape of the same size."""
    wanted = tuple(shape)
    if wanted == shape_of(value):
        return value
    if math.prod(wanted) != math.prod(shape_of(value)):
        raise ModelError(f"cannot reshape {list(shape_of(value))} to {list(wanted)}")
    return b("reshape", value, shape=wanted)


def unsqueeze(b: GraphBuilder, value: Value, axes: Sequence[int]) -> Value:
    """``value`` with dimensions of size 1 at ``axes`` of the result."""
    shape = list(shape_of(value))
    for axis in sorted(axes):
        shape.insert(axis, 1)
    return reshape(b, value, shape)


def transpose(b: GraphBuilder, value: Value, permutation: Sequence[int]) -> Value:
    """``value`` with its dimensions permuted."""
    if tuple(permutation) == tuple(range(len(shape_of(value)))):
        return value
    return b("transpose", value, permutation=tuple(permutation))


def expand(b: GraphBuilder, value: Value, shape: Sequence[int]) -> Value:
    """``value`` broadcast to ``shape`` by NumPy's rules."""
    given, wanted = shape_of(value), tuple(shape)
    if given == wanted:
        return value
    if broadcast_shape(given, wanted) != wanted:
        raise ModelError(f"{list(given)} does not broadcast to {list(wanted)}")
    return b("broadcast", value, shape=wanted, dims=tuple(range(len(wanted) - len(given), len(wanted))))


def broadcast_together(b: GraphBuilder, *values: Value) -> list[Value]:
    """All values in the shape that they broadcast to."""
    shape = broadcast_shape(*(shape_of(value) for value in values))
    return [expand(b, value, shape) for value in values]


def slice_axis(b: GraphBuilder, value: Value, axis: int, start: int, limit: int, step: int = 1) -> Value:
    """``value[start:limit:step]`` along one axis, 0 <= start <= limit <= dim."""
    shape = shape_of(value)
    if (start, limit, step) == (0, shape[axis], 1):
        return value
    starts, limits, steps = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis], limits[axis], steps[axis] = start, limit, step
    return b("slice", value, starts=tuple(starts), limits=tuple(limits), steps=tuple(steps))


def pad_axes(
    b: GraphBuilder, value: Value, low: Sequence[int], high: Sequence[int], filler: Value, interior: Sequence[int] = ()
) -> Value:
    """``value`` padded with the value of no dimensions; negative amounts cut."""
    shape = shape_of(value)
    inside = tuple(interior) or (0,) * len(shape)
    if any(inside):
        value = b("pad", value, filler, low=(0,) * len(shape), high=(0,) * len(shape), interior=inside)
        shape = shape_of(value)
    starts = tuple(min(max(0, -amount), dim) for amount, dim in zip(low, shape, strict=True))
    limits = tuple(max(start, dim - max(0, -amount)) for start, amount, dim in zip(starts, high, shape, strict=True))
    if any(starts) or limits != shape:
        value = b("slice", value, starts=starts, limits=limits, steps=(1,) * len(shape))
    lows, highs = tuple(max(0, n) for n in low), tuple(max(0, n) for n in high)
    if not any(lows) and not any(highs):
        return value
    return b("pad", value, filler, low=lows, high=highs, interior=(0,) * len(shape))


def numbers(b: GraphBuilder, count: int, rank: int, axis: int, step: int = 1) -> Value:
    """0, ``step``, 2 ``step`` ... as int32 along ``axis`` of ``rank`` dimensions, the others of size 1."""
    shape = [1] * rank
    shape[axis] = count
    found = b("iota", shape=tuple(shape), axis=axis, dtype=dtypes.int32)
    return found if step == 1 else b("multiply", found, scalar(b, step, dtypes.int32))


def index32(b: GraphBuilder, indices: Value, size: int) -> Value:
    """Indices into a dimension of ``size``, as int32, negative ones counted from the end."""
    if dtype_of(indices).kind not in ("int", "uint"):
        raise ModelError(f"indices are {dtype_of(indices)}, they must be integers")
    small = cast(b, indices, dtypes.int32)
    negative = b("less", small, scalar(b, 0, dtypes.int32))
    return b("select", negative, b("add", small, scalar(b, size, dtypes.int32)), small)


def gather_axis(b: GraphBuilder, value: Value, indices: npt.ArrayLike, axis: int) -> Value:
    """``value`` at known indices along ``axis``."""
    return b("gather", value, b.constant(np.asarray(indices, np.int32)), axis=axis)


def reduce(b: GraphBuilder, kind: str, value: Value, axes: Sequence[int], keepdims: bool = True) -> Value:
    """``reduce_<kind>``; no axes: ``value`` itself."""
    if not axes:
        return value
    return b("reduce_" + kind, value, axes=tuple(axes), keepdims=keepdims)


def wide(dtype: DType) -> DType:
    """The dtype to compute in: float32 for 16-bit floats."""
    return dtypes.float32 if dtype.is_float and dtype.bits == 16 else dtype


def matmul(b: GraphBuilder, left: Value, right: Value, dtype: DType | None = None) -> Value:
    """NumPy's matmul: vectors, matrices, broadcast batches."""
    shape_l, shape_r = shape_of(left), shape_of(right)
    if not shape_l or not shape_r:
        raise ModelError("a matrix product takes no tensors without dimensions")
    if len(shape_l) == 1:
        left = reshape(b, left, (1, *shape_l))
    if len(shape_r) == 1:
        right = reshape(b, right, (*shape_r, 1))
    (*batch_l, rows, inner), (*batch_r, inner_r, columns) = shape_of(left), shape_of(right)
    if inner != inner_r:
        raise ModelError(f"{list(shape_l)} and {list(shape_r)} do not fit a matrix product")
    batch = broadcast_shape(batch_l, batch_r)
    if not batch_r:
        product = _dot(b, reshape(b, left, (math.prod(batch_l) * rows, inner)), right, 0, dtype)
    else:
        left = expand(b, left, (*batch, rows, inner))
        right = expand(b, right, (*batch, inner, columns))
        product = _dot(b, left, right, len(batch), dtype)
    shape = (*batch, *((rows,) if len(shape_l) > 1 else ()), *((columns,) if len(shape_r) > 1 else ()))
    return reshape(b, product, shape)


def _dot(b: GraphBuilder, left: Value, right: Value, batch: int, dtype: DType | None) -> Value:
    axes = tuple(range(batch))
    return b(
        "dot_general",
        left,
        right,
        batch=(axes, axes),
        contract=((batch + 1,), (batch,)),
        dtype=dtype or dtype_of(left),
    )
