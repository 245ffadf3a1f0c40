"""Attributes: the compile-time constants of an operation.

An attribute is an immutable Python value: bool, int, float, str, DType, Type, Size, None, a tuple of attributes, or a
``Dense`` array.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ir.sizes import Size
from oarlock.ir.types import Type

__all__ = ["Attribute", "Dense", "is_attribute"]


class Dense:
    """An immutable array of one of Oarlock's dtypes; equal by dtype, shape and bytes (so NaN equals itself)."""

    __slots__ = ("_digest", "array")

    def __init__(self, array: npt.ArrayLike) -> None:
        copy = np.array(array, order="C")
        dtypes.from_numpy(copy.dtype)
        copy.setflags(write=False)
        self.array: npt.NDArray[Any] = copy
        self._digest: int | None = None

    @property
    def dtype(self) -> DType:
        return dtypes.from_numpy(self.array.dtype)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Dense)
            and self.array.dtype == other.array.dtype
            and self.array.shape == other.array.shape
            and self.array.tobytes() == other.array.tobytes()
        )

    def __hash__(self) -> int:
        if self._digest is None:
            self._digest = hash((self.array.dtype.str, self.array.shape, self.array.tobytes()))
        return self._digest

    def __repr__(self) -> str:
        return f"Dense({self.dtype}, {self.array.shape})"


Attribute: TypeAlias = "bool | int | float | str | None | DType | Type | Size | Dense | tuple[Attribute, ...]"


def is_attribute(value: object) -> bool:
    """Whether ``value`` may be an attribute."""
    if isinstance(value, tuple):
        return all(is_attribute(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str, DType, Type, Size, Dense))
