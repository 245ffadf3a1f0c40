"""Functions over data types: conversion, promotion, ranges, classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import DTypeError, UnsupportedError
from oarlock.program.tape import Recorded, apply

if TYPE_CHECKING:
    from oarlock.program.backend import Place
    from oarlock.program.tensor import Tensor

__all__ = [
    "DEFAULT_FLOAT", "FloatInfo", "IntegerInfo", "as_dtype", "as_float", "astype", "broad_dtype", "can_cast", "convert",
    "finfo", "iinfo", "integer_range", "isdtype", "result_type",
]  # fmt: skip

DEFAULT_FLOAT = dtypes.float32
"""The dtype of Python floats, and of integers in functions that give fractions."""


@dataclass(frozen=True, slots=True)
class FloatInfo:
    """Limits of a floating-point dtype, as Python floats."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True, slots=True)
class IntegerInfo:
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def as_dtype(dtype: Any) -> DType:
    """``dtype`` (a DType, a name, ``bool``/``int``/``float``, or a NumPy dtype) as a DType.

    Raises UnsupportedError for complex dtypes, DTypeError for what is no data type at all.
    """
    if isinstance(dtype, DType):
        return dtype
    if dtype is bool:
        return dtypes.bool_
    if dtype is float:
        return DEFAULT_FLOAT
    if dtype is complex or (isinstance(dtype, str) and dtype.startswith("complex")):
        raise UnsupportedError(f"complex numbers are not there yet (asked for {dtype}); use a pair of real tensors")
    if isinstance(dtype, str):
        return dtypes.by_name(dtype)
    try:
        numpy_dtype = np.dtype(dtype)
    except TypeError:
        raise DTypeError(f"{dtype!r} is no data type; there are {', '.join(d.name for d in dtypes.ALL)}") from None
    if numpy_dtype.kind == "c":
        raise UnsupportedError(
            f"complex numbers are not there yet (asked for {numpy_dtype}); use a pair of real tensors"
        )
    return dtypes.from_numpy(numpy_dtype)


def convert(x: Tensor, dtype: DType) -> Tensor:
    """``x`` as ``dtype``; ``x`` itself when it is that already."""
    return x if x._kind.dtype == dtype else apply("convert", x, dtype=dtype)


def as_float(x: Tensor) -> Tensor:
    """``x`` as a float tensor: integers and bool become the default float."""
    return x if x._kind.dtype.is_float else convert(x, DEFAULT_FLOAT)


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """``x`` as ``dtype``: floats become integers by truncation (saturated, NaN gives 0); anything becomes bool by != 0.

    ``copy`` makes no difference, since tensors are values. ``device``: where the result shall be.
    """
    result = convert(x, as_dtype(dtype))
    return result if device is None else result.to(device)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether a dtype, or the dtype of a tensor, becomes ``to`` by promotion alone."""
    source = from_._kind.dtype if isinstance(from_, Recorded) else as_dtype(from_)
    target = as_dtype(to)
    if source == target:
        return True
    if source.kind == "bool":
        return False
    if source.is_integer and target.is_float:
        return False
    return dtypes.promote(source, target) == target


def finfo(type: Any, /) -> FloatInfo:
    """The limits of a floating-point dtype, or of the dtype of a tensor."""
    dtype = type._kind.dtype if isinstance(type, Recorded) else as_dtype(type)
    if not dtype.is_float:
        raise DTypeError(f"finfo: {dtype} is no floating-point dtype; see iinfo")
    info: Any = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    return FloatInfo(dtype.bits, float(info.eps), float(info.max), float(info.min), float(info.smallest_normal), dtype)


def iinfo(type: Any, /) -> IntegerInfo:
    """The limits of an integer dtype, or of the dtype of a tensor."""
    dtype = type._kind.dtype if isinstance(type, Recorded) else as_dtype(type)
    if not dtype.is_integer:
        raise DTypeError(f"iinfo: {dtype} is no integer dtype; see finfo")
    low, high = integer_range(dtype)
    return IntegerInfo(dtype.bits, high, low, dtype)


def integer_range(dtype: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer dtype."""
    if dtype.kind == "uint":
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


_CLASSES: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int",),
    "unsigned integer": ("uint",),
    "integral": ("int", "uint"),
    "real floating": ("float",),
    "complex floating": (),
    "numeric": ("int", "uint", "float"),
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether ``dtype`` is of ``kind``: a dtype, a class such as ``"integral"``, or a tuple of these (any of them)."""
    dtype = as_dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str) and kind in _CLASSES:
        return dtype.kind in _CLASSES[kind]
    if isinstance(kind, str) and not any(d.name == kind for d in dtypes.ALL):
        raise DTypeError(f"isdtype: no class or dtype {kind!r}; classes are {', '.join(_CLASSES)}")
    return bool(dtype == as_dtype(kind))


def broad_dtype(dtype: DType, value: bool | int | float, place: Place | None = None) -> DType:
    """The dtype of a tensor of ``dtype`` combined with a Python scalar, whose own precision does not count."""
    if isinstance(value, bool):
        return dtype
    if isinstance(value, int):
        default = dtypes.int64 if place is None else place.default_int
        return default if dtype.kind == "bool" else dtype
    return dtype if dtype.is_float else DEFAULT_FLOAT


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that tensors, dtypes and Python scalars give together by promotion."""
    found: DType | None = None
    scalars: list[bool | int | float] = []
    for item in arrays_and_dtypes:
        if isinstance(item, (bool, int, float)):
            scalars.append(item)
            continue
        dtype = item._kind.dtype if isinstance(item, Recorded) else as_dtype(item)
        found = dtype if found is None else dtypes.promote(found, dtype)
    if found is None:
        raise DTypeError("result_type needs a tensor or a dtype")
    for value in scalars:
        found = broad_dtype(found, value)
    return found
