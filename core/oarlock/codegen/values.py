"""Static facts about array values and operations that lowering asks for all the time."""

from __future__ import annotations

import math

from oarlock import dtypes
from oarlock.ir import Dense, Operation, Value
from oarlock.ops import tensor

__all__ = ["ints", "numel", "shape_of", "splat_value"]


def shape_of(value: Value) -> tuple[int, ...]:
    """The static shape of an array value."""
    return tensor(value).static_shape


def splat_value(value: Value) -> bool | int | float | None:
    """The number that fills a constant tensor, or None when it is no constant or holds different ones."""
    op = value.defining_op
    if op is None or op.name != "array.constant":
        return None
    dense = op.attributes["value"]
    assert isinstance(dense, Dense)
    flat = dense.array.reshape(-1)
    if flat.size == 0:
        return None
    if flat.size > 1 and flat.tobytes() != flat[:1].tobytes() * flat.size:
        return None
    number = flat[0].item() if dense.dtype != dtypes.bfloat16 else float(flat[0])
    assert isinstance(number, (bool, int, float))
    return number


def numel(value: Value) -> int:
    """The number of elements of an array value."""
    return math.prod(shape_of(value))


def ints(op: Operation, name: str) -> tuple[int, ...]:
    """An attribute that is a tuple of ints."""
    value = op.attributes[name]
    assert isinstance(value, tuple)
    return value  # type: ignore[return-value]
