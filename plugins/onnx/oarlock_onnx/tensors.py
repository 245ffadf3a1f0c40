"""TensorProto to NumPy: every size is checked before memory is taken, external data stays in the model's folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import ModelError
from oarlock_onnx.limits import check_size

__all__ = ["dtype_of", "onnx_type_of", "to_array", "type_name"]

Array = npt.NDArray[Any]

_DTYPES: dict[int, DType] = {
    TensorProto.BOOL: dtypes.bool_,
    TensorProto.INT8: dtypes.int8,
    TensorProto.INT16: dtypes.int16,
    TensorProto.INT32: dtypes.int32,
    TensorProto.INT64: dtypes.int64,
    TensorProto.UINT8: dtypes.uint8,
    TensorProto.UINT16: dtypes.uint16,
    TensorProto.UINT32: dtypes.uint32,
    TensorProto.UINT64: dtypes.uint64,
    TensorProto.FLOAT16: dtypes.float16,
    TensorProto.BFLOAT16: dtypes.bfloat16,
    TensorProto.FLOAT: dtypes.float32,
    TensorProto.DOUBLE: dtypes.float64,
}
_ONNX_TYPES = {dtype: number for number, dtype in _DTYPES.items()}

_FIELDS: dict[str, str] = {
    "float32": "float_data",
    "float64": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
}
"""The typed field of a TensorProto by dtype; the others use int32_data."""


def type_name(number: int) -> str:
    """The name of an ONNX element type, also of an unknown one."""
    names: dict[int, str] = {value: name for name, value in TensorProto.DataType.items()}
    return names.get(number, f"number {number}").lower()


def dtype_of(number: int, what: str) -> DType:
    """The dtype of an ONNX element type; raises ModelError for one that is not supported."""
    dtype = _DTYPES.get(number)
    if dtype is None:
        raise ModelError(f"{what}: element type {type_name(number)} is not supported")
    return dtype


def onnx_type_of(dtype: DType) -> int:
    """The ONNX element type of a dtype."""
    return _ONNX_TYPES[dtype]


def to_array(proto: TensorProto, folder: Path | None, what: str) -> Array:
    """The values of ``proto`` (read-only); ``folder`` is where external data may lie (None: nowhere).

    Raises ModelError for data that does not fit its shape, and for external data outside ``folder``.
    """
    dtype = dtype_of(proto.data_type, what)
    shape = tuple(proto.dims)
    count = check_size(what, shape, dtype)
    if proto.HasField("segment"):
        raise ModelError(f"{what}: tensors in segments are not supported")
    if proto.data_location == TensorProto.EXTERNAL:
        raw = _external(proto, folder, count * dtype.itemsize, what)
        array = _from_bytes(raw, dtype, count, what)
    elif proto.HasField("raw_data"):
        array = _from_bytes(proto.raw_data, dtype, count, what)
    else:
        array = _from_field(proto, dtype, count, what)
    array = array.reshape(shape)
    array.setflags(write=False)
    return array


def _from_bytes(raw: bytes, dtype: DType, count: int, what: str) -> Array:
    if len(raw) != count * dtype.itemsize:
        raise ModelError(f"{what}: {len(raw)} bytes of data, its shape needs {count * dtype.itemsize}")
    if dtype == dtypes.bool_:
        truth: Array = np.frombuffer(raw, np.uint8) != 0
        return truth
    return np.frombuffer(raw, dtype.numpy.newbyteorder("<")).astype(dtype.numpy, copy=False)


def _from_field(proto: TensorProto, dtype: DType, count: int, what: str) -> Array:
    name = _FIELDS.get(dtype.name, "int32_data")
    data = getattr(proto, name)
    if len(data) != count:
        raise ModelError(f"{what}: {len(data)} values in {name}, its shape needs {count}")
    if dtype in (dtypes.float16, dtypes.bfloat16):
        return np.array(data, np.int32).astype(np.uint16).view(dtype.numpy)
    wide = {"int32_data": np.int32, "int64_data": np.int64, "uint64_data": np.uint64}.get(name)
    return np.array(data, wide if wide is not None else dtype.numpy).astype(dtype.numpy, copy=False)


def _external(proto: TensorProto, folder: Path | None, nbytes: int, what: str) -> bytes:
    fields = {entry.key: entry.value for entry in proto.external_data}
    if folder is None:
        raise ModelError(f"{what}: its data is external, but the model was given as bytes; load it from a file")
    path = _inside(folder, fields.get("location", ""), what)
    offset = _whole(fields.get("offset", "0"), f"{what}: offset")
    length = _whole(fields.get("length", str(nbytes)), f"{what}: length")
    if length != nbytes:
        raise ModelError(f"{what}: {length} bytes of external data, its shape needs {nbytes}")
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ModelError(f"{what}: external data {path.name} is no regular file")
            if offset + length > status.st_size:
                raise ModelError(f"{what}: external data ends at {offset + length}, {path.name} at {status.st_size}")
            file.seek(offset)
            return file.read(length)
    except OSError as error:
        raise ModelError(f"{what}: cannot read external data {path.name}: {error.strerror}") from error


def _inside(folder: Path, location: str, what: str) -> Path:
    """The file that ``location`` names; raises ModelError unless it lies below ``folder``, links resolved."""
    parts = location.replace("\\", "/").split("/")
    if not location or "\0" in location or Path(location).is_absolute() or ".." in parts:
        raise ModelError(f"{what}: external data {location!r} does not lie in the model's folder")
    root = folder.resolve()
    try:
        path = (root / location).resolve()
    except (OSError, RuntimeError) as error:
        raise ModelError(f"{what}: cannot read external data {location!r}: {error}") from error
    if root not in path.parents:
        raise ModelError(f"{what}: external data {location!r} does not lie in the model's folder")
    return path


def _whole(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ModelError(f"{what} {text!r} is no usable number")
    return int(text)
