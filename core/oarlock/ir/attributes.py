"""Attributes: the compile-time constants of an operation.

An attribute is an immutable Python value: bool, int, float, str, DType, Type, Size, None, a tuple of attributes, or a
``Dense`` array.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ir.sizes import Size
from oarlock.ir.types import Type

__all__ = ["Attribute", "Dense", "attribute_key", "is_attribute"]


_HASHED = 1 << 12
"""How many bytes from each end of an array its hash looks at: weights are large, and seldom alike."""


class Dense:
    """An immutable array of one of Oarlock's dtypes; equal by dtype, shape and bytes (so NaN equals itself)."""

    __slots__ = ("_digest", "array")

    def __init__(self, array: npt.ArrayLike) -> None:
        given = np.asarray(array)
        copy = np.array(given, dtypes.from_numpy(given.dtype).numpy, order="C")
        copy.setflags(write=False)
        self.array: npt.NDArray[Any] = copy
        self._digest: int | None = None

    @property
    def dtype(self) -> DType:
        return dtypes.from_numpy(self.array.dtype)

    def _bytes(self) -> npt.NDArray[np.uint8]:
        return self.array.reshape(-1).view(np.uint8)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Dense)
            and self.array.dtype == other.array.dtype
            and self.array.shape == other.array.shape
            and bool(np.array_equal(self._bytes(), other._bytes()))
        )

    def __hash__(self) -> int:
        if self._digest is None:
            raw = self._bytes()
            ends = (raw[:_HASHED].tobytes(), raw[-_HASHED:].tobytes())
            self._digest = hash((self.array.dtype.name, self.array.shape, ends))
        return self._digest

    def __repr__(self) -> str:
        return f"Dense({self.dtype}, {self.array.shape})"


Attribute: TypeAlias = "bool | int | float | str | None | DType | Type | Size | Dense | tuple[Attribute, ...]"


def is_attribute(value: object) -> bool:
    """Whether ``value`` may be an attribute."""
    if isinstance(value, tuple):
        return all(is_attribute(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str, DType, Type, Size, Dense))


def attribute_key(value: Attribute) -> Hashable:
    """A key that is equal for the same attribute only: Python's ``1 == 1.0 == True``, ``0.0 == -0.0`` and
    ``nan != nan`` do not hold for it."""
    if isinstance(value, tuple):
        return (tuple, *map(attribute_key, value))
    if isinstance(value, float):
        return (float, struct.pack("<d", value))
    return (type(value), value)
