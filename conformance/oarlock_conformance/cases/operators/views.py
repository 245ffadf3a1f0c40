"""Ways to lie in memory: how an operand is stored, and the operators that read it back as it is meant.

Each view stores more or other elements than the operand has, so that a kernel which ignores offset, step, direction
or order reads values that are not the operand's.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from oarlock.ir import Value
from oarlock.ops import ArrayBuilder

__all__ = ["VIEWS", "View", "constant_rows", "read", "store"]

Array = npt.NDArray[Any]
View: TypeAlias = Literal["plain", "reversed", "strided", "offset", "transposed", "broadcast"]
VIEWS: tuple[View, ...] = get_args(View)

_STEP = 2
_START = 2


def store(x: Array, view: View) -> Array:
    """What is put in memory for ``x`` to be read through ``view``: 0-d operands as they are."""
    if x.ndim == 0 or view == "plain":
        return x
    if view == "reversed":
        return np.ascontiguousarray(x[(slice(None, None, -1),) * x.ndim])
    if view == "transposed":
        return np.ascontiguousarray(x.T)
    if view == "broadcast":
        return np.ascontiguousarray(x[..., :1]) if constant_rows(x) else x
    more = tuple((1 if view == "offset" else _STEP) * size + _START for size in x.shape)
    held = np.full(more, True) if x.dtype == np.bool_ else _garbage(more, x.dtype)
    held[_cut(x.shape, view)] = x
    return held


def read(b: ArrayBuilder, stored: Value, x: Array, view: View) -> Value:
    """``x`` again, from what ``store`` made of it."""
    if x.ndim == 0 or view == "plain":
        return stored
    if view == "reversed":
        return b("reverse", stored, axes=tuple(range(x.ndim)))
    if view == "transposed":
        return b("transpose", stored, permutation=tuple(reversed(range(x.ndim))))
    if view == "broadcast":
        return b("broadcast", stored, shape=x.shape, dims=tuple(range(x.ndim))) if constant_rows(x) else stored
    cut = _cut(x.shape, view)
    return b(
        "slice",
        stored,
        starts=tuple(part.start for part in cut),
        limits=tuple(part.stop for part in cut),
        steps=tuple(part.step for part in cut),
    )


def constant_rows(x: Array) -> bool:
    """Whether every row holds one value only, so that it may be stored once."""
    return bool(x.size) and x[..., :1].repeat(x.shape[-1], -1).tobytes() == x.tobytes()


def _garbage(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Values that nothing may depend on: large integers, NaN."""
    return np.full((*shape, dtype.itemsize), 0x7F, np.uint8).view(dtype).reshape(shape)


def _cut(shape: tuple[int, ...], view: View) -> tuple[slice, ...]:
    """The part of what is stored that is the operand."""
    if view == "offset":
        return tuple(slice(_START, _START + size, 1) for size in shape)
    return tuple(slice(1, 1 + _STEP * size, _STEP) for size in shape)
