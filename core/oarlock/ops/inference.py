"""Checks and shape rules that the inference of several operators shares; every message names operator and operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import DTypeError, ShapeError
from oarlock.ir import Dim, TensorType
from oarlock.ops.record import Attributes, Infer

__all__ = [
    "BITS", "FLOATS", "INTEGERS", "NUMERIC", "axes_of", "axis_of", "broadcast_shapes", "check_dtype", "dtype_of",
    "elementwise", "flag_of", "int_of", "ints_of", "pairs_of", "same_dtypes", "static_shape", "window_size",
]  # fmt: skip

FLOATS: tuple[DType, ...] = tuple(d for d in dtypes.ALL if d.is_float)
INTEGERS: tuple[DType, ...] = tuple(d for d in dtypes.ALL if d.is_integer)
NUMERIC: tuple[DType, ...] = INTEGERS + FLOATS
BITS: tuple[DType, ...] = (dtypes.bool_, *INTEGERS)


def check_dtype(name: str, operand: str, dtype: DType, allowed: Sequence[DType]) -> None:
    """Raise DTypeError when ``dtype`` is not one of ``allowed``."""
    if dtype not in allowed:
        raise DTypeError(
            f"{name}: {operand} is {dtype}, but may be {', '.join(d.name for d in allowed)}: convert it first"
        )


def same_dtypes(name: str, types: Sequence[TensorType]) -> DType:
    """The one dtype of ``types``; raises DTypeError when they differ."""
    if len({t.dtype for t in types}) != 1:
        found = ", ".join(str(t.dtype) for t in types)
        raise DTypeError(f"{name}: operands have dtypes {found}, which must be equal: convert them first")
    return types[0].dtype


def _joined(name: str, left: Dim, right: Dim, shapes: Sequence[tuple[Dim, ...]]) -> Dim:
    if left == right or right == 1:
        return left
    if left == 1:
        return right
    listed = " and ".join(f"({', '.join(map(str, shape))})" for shape in shapes)
    if isinstance(left, int) and isinstance(right, int):
        raise ShapeError(f"{name}: shapes {listed} do not broadcast: {left} meets {right}")
    raise ShapeError(
        f"{name}: shapes {listed}: cannot tell whether {left} and {right} are equal; use one size for both"
    )


def broadcast_shapes(name: str, *shapes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The shape that ``shapes`` broadcast to by NumPy's rules; raises ShapeError when they do not."""
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, rank - len(shape)):
            result[axis] = _joined(name, result[axis], dim, shapes)
    return tuple(result)


def elementwise(name: str, allowed: Sequence[DType], result: DType | None = None) -> Infer:
    """Inference of an element-wise operator: equal dtypes out of ``allowed``, broadcast shapes, dtype ``result``."""

    def infer(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        dtype = same_dtypes(name, types)
        check_dtype(name, "the operand", dtype, allowed)
        return (TensorType(result or dtype, broadcast_shapes(name, *(t.shape for t in types))),)

    return infer


def static_shape(name: str, operand: str, kind: TensorType, start: int = 0) -> tuple[int, ...]:
    """The shape from axis ``start`` on as ints; raises ShapeError when it is symbolic."""
    dims = kind.shape[start:]
    if not all(isinstance(dim, int) for dim in dims):
        what = "the shape" if start == 0 else f"the shape from axis {start} on"
        raise ShapeError(f"{name}: {operand} is {kind}, but {what} must be known here: specialise it")
    return cast("tuple[int, ...]", dims)


def int_of(name: str, attributes: Attributes, key: str, least: int | None = None) -> int:
    """The integer attribute ``key``; raises ShapeError below ``least``."""
    value = attributes[key]
    if not isinstance(value, int) or (least is not None and value < least):
        raise ShapeError(f"{name}: {key} is {value!r}, not an integer{'' if least is None else f' >= {least}'}")
    return value


def flag_of(attributes: Attributes, key: str) -> bool:
    """The boolean attribute ``key``, False where absent."""
    return bool(attributes.get(key, False))


def dtype_of(attributes: Attributes, key: str = "dtype") -> DType:
    """The dtype attribute ``key``."""
    return cast(DType, attributes[key])


def ints_of(
    name: str, attributes: Attributes, key: str, count: int | None = None, least: int | None = None
) -> tuple[int, ...]:
    """The attribute ``key`` as a tuple of ``count`` integers, each >= ``least``; raises ShapeError otherwise."""
    value = attributes[key]
    if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
        raise ShapeError(f"{name}: {key} is {value!r}, not a tuple of integers")
    items = cast("tuple[int, ...]", value)
    if count is not None and len(items) != count:
        raise ShapeError(f"{name}: {key} is {items}, but {count} numbers are needed")
    if least is not None and any(item < least for item in items):
        raise ShapeError(f"{name}: {key} is {items}, but its numbers must be >= {least}")
    return items


def axis_of(name: str, attributes: Attributes, rank: int, key: str = "axis") -> int:
    """The attribute ``key`` as an axis in [0, rank); raises ShapeError otherwise."""
    axis = int_of(name, attributes, key)
    if not 0 <= axis < rank:
        raise ShapeError(f"{name}: {key} is {axis}, outside [0, {rank}): count negative axes from the end first")
    return axis


def axes_of(name: str, attributes: Attributes, rank: int, key: str = "axes") -> tuple[int, ...]:
    """The attribute ``key`` as distinct axes in [0, rank); raises ShapeError otherwise."""
    axes = ints_of(name, attributes, key)
    if len(set(axes)) != len(axes) or any(not 0 <= axis < rank for axis in axes):
        raise ShapeError(f"{name}: {key} is {axes}, but must be distinct numbers in [0, {rank})")
    return axes


def pairs_of(name: str, attributes: Attributes, key: str, count: int) -> tuple[tuple[int, int], ...]:
    """The attribute ``key`` as ``count`` pairs (low, high) of numbers >= 0; raises ShapeError otherwise."""
    value = attributes[key]
    ok = isinstance(value, tuple) and len(value) == count
    if ok:
        pairs = cast("tuple[tuple[int, int], ...]", value)
        if all(isinstance(p, tuple) and len(p) == 2 and all(isinstance(i, int) and i >= 0 for i in p) for p in pairs):
            return pairs
    raise ShapeError(f"{name}: {key} is {value!r}, but must be {count} pairs (low, high) of numbers >= 0")


def window_size(
    name: str, dim: Dim, window: int, stride: int, padding: tuple[int, int], dilation: int, what: str
) -> int:
    """How many positions a window takes along a dimension; raises ShapeError when it does not fit once."""
    if not isinstance(dim, int):
        raise ShapeError(f"{name}: {what} has symbolic size {dim}, but must be known here: specialise it")
    room = dim + padding[0] + padding[1] - ((window - 1) * dilation + 1)
    if room < 0:
        raise ShapeError(
            f"{name}: a window of {window} (dilation {dilation}) does not fit {what} of size {dim} padded by {padding}"
        )
    return room // stride + 1
