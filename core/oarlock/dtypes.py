"""The one table of data types: names, sizes, NumPy equivalents, promotion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np

from oarlock.errors import DTypeError

__all__ = [
    "ALL", "DType", "Kind", "bfloat16", "bool_", "by_name", "float16", "float32", "float64", "from_numpy",
    "int8", "int16", "int32", "int64", "promote", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip

Kind = Literal["bool", "int", "uint", "float"]


@dataclass(frozen=True, slots=True)
class DType:
    """A data type: ``name``, ``kind``, width in ``bits`` (8 for bool: one byte a value on the host)."""

    name: str
    kind: Kind
    bits: int

    @property
    def itemsize(self) -> int:
        """Bytes that one value takes on the host."""
        return self.bits // 8

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy data type (``ml_dtypes.bfloat16`` for bfloat16)."""
        return _NUMPY[self.name]

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        return self.kind in ("int", "float")

    def __repr__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name


bool_ = DType("bool", "bool", 8)
int8 = DType("int8", "int", 8)
int16 = DType("int16", "int", 16)
int32 = DType("int32", "int", 32)
int64 = DType("int64", "int", 64)
uint8 = DType("uint8", "uint", 8)
uint16 = DType("uint16", "uint", 16)
uint32 = DType("uint32", "uint", 32)
uint64 = DType("uint64", "uint", 64)
float16 = DType("float16", "float", 16)
bfloat16 = DType("bfloat16", "float", 16)
float32 = DType("float32", "float", 32)
float64 = DType("float64", "float", 64)

ALL: tuple[DType, ...] = (
    bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64,
)  # fmt: skip

_BY_NAME = {dtype.name: dtype for dtype in ALL}
_NUMPY: dict[str, np.dtype[Any]] = {
    dtype.name: np.dtype(ml_dtypes.bfloat16) if dtype.name == "bfloat16" else np.dtype(dtype.name) for dtype in ALL
}
_FROM_NUMPY = {numpy: _BY_NAME[name] for name, numpy in _NUMPY.items()}


def by_name(name: str) -> DType:
    """The data type called ``name``; raises DTypeError for an unknown one."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise DTypeError(f"no data type {name!r}; there are {', '.join(_BY_NAME)}") from None


def from_numpy(dtype: Any) -> DType:
    """The data type of a NumPy dtype (any byte order); raises DTypeError where there is none."""
    numpy_dtype = np.dtype(dtype)
    found = _FROM_NUMPY.get(numpy_dtype) or _FROM_NUMPY.get(numpy_dtype.newbyteorder("="))
    if found is None:
        raise DTypeError(f"NumPy's {numpy_dtype} has no equivalent; there are {', '.join(_BY_NAME)}")
    return found


def promote(left: DType, right: DType) -> DType:
    """The common type of two, by the array API standard's table, extended so that every pair has one.

    Beyond the standard: bool gives way to the other type; an integer with a float gives the float; uint64 with a
    signed integer gives float64; float16 with bfloat16 gives float32.
    """
    if left == right:
        return left
    if left.kind == "bool":
        return right
    if right.kind == "bool":
        return left
    if left.is_float or right.is_float:
        if left.is_float and right.is_float:
            if left.bits == right.bits:
                return float32
            return left if left.bits > right.bits else right
        return left if left.is_float else right
    if left.kind == right.kind:
        return left if left.bits > right.bits else right
    signed, unsigned = (left, right) if left.kind == "int" else (right, left)
    if signed.bits > unsigned.bits:
        return signed
    if unsigned.bits == 64:
        return float64
    return by_name(f"int{unsigned.bits * 2}")
