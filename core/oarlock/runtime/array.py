"""Typed arrays on a device, and their conversion to and from NumPy across host and storage data types."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import UnsupportedError
from oarlock.runtime.opening import open_devices
from oarlock.runtime.transfer import copy_across

if TYPE_CHECKING:
    from oarlock.runtime.device import Device
    from oarlock.runtime.memory import Buffer
    from oarlock.runtime.stream import Stream

__all__ = ["DeviceArray", "empty", "from_numpy", "storage_of", "to_numpy", "to_storage", "transfer"]


@dataclass(slots=True, eq=False)  # never changed; frozen ones take three times as long to make
class DeviceArray:
    """Contiguous row-major values on a device: ``shape`` of ``dtype``, ``offset_bytes`` into ``buffer``.

    The buffer holds them in the device's storage dtype: ``size * storage.itemsize`` bytes.
    """

    device: Device
    buffer: Buffer
    offset_bytes: int
    dtype: DType
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def storage(self) -> DType:
        """The physical dtype on the device."""
        return self.device.target.storage_of(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return self.size * self.storage.itemsize

    def numpy(self) -> np.ndarray[Any, Any]:
        """The values on the host; see ``to_numpy``."""
        return to_numpy(self)


def storage_of(device: Device, dtype: DType, where: str = "") -> DType:
    """The physical dtype for ``dtype`` on ``device``.

    Raises UnsupportedError that names the nearest dtype there is and the open devices that store it. ``where`` says
    what needed it, such as ``"operator add, argument 1"``.
    """
    target = device.target
    if target.stores(dtype):
        return target.storage_of(dtype)
    nearest = _nearest(device, dtype)
    others = ", ".join(other.name for other in open_devices() if other.target.stores(dtype))
    text = f"{device.name} does not store {dtype}"
    text += f" ({where})." if where else "."
    if nearest is not None:
        text += f" Nearest it does: {nearest}. Convert with x.astype(ol.{nearest}), or choose"
    else:
        text += " Choose"
    raise UnsupportedError(f"{text} a device with {dtype}: {others or 'see `oarlock devices`'}")


def empty(device: Device, dtype: DType, shape: tuple[int, ...], label: str = "") -> DeviceArray:
    """An array with undefined content."""
    nbytes = math.prod(shape) * storage_of(device, dtype).itemsize
    return DeviceArray(device, device.allocate(nbytes, label=label), 0, dtype, tuple(shape))


def from_numpy(array: np.ndarray[Any, Any], device: Device, stream: Stream | None = None) -> DeviceArray:
    """Copy a NumPy array (any strides and byte order) to ``device``."""
    dtype = dtypes.from_numpy(array.dtype)
    result = empty(device, dtype, array.shape)
    device.copy_in(result.buffer, 0, to_storage(array, dtype, result.storage), stream)
    return result


def to_numpy(array: DeviceArray, stream: Stream | None = None) -> np.ndarray[Any, Any]:
    """Copy an array to the host, waiting for the work before it; raises that work's failure."""
    storage = array.storage
    held = np.empty(array.size, storage.numpy)
    lane = array.device.current_stream if stream is None else stream
    array.device.copy_out(held, array.buffer, array.offset_bytes, lane)
    lane.synchronize()
    return from_storage(held, array.dtype, storage).reshape(array.shape)


def transfer(array: DeviceArray, device: Device) -> DeviceArray:
    """A copy of ``array`` on any device, of any adapter; waits for the work before it."""
    if array.device is device or array.storage != storage_of(device, array.dtype):
        return from_numpy(to_numpy(array), device)
    result = empty(device, array.dtype, array.shape)
    copy_across(result.buffer, 0, array.buffer, array.offset_bytes, array.nbytes)
    return result


def to_storage(array: np.ndarray[Any, Any], dtype: DType, storage: DType) -> np.ndarray[Any, Any]:
    """The same values as ``storage``, flat: the same bits where the widths agree, else converted."""
    values = np.ascontiguousarray(array, dtype=dtype.numpy).reshape(-1)
    if storage == dtype:
        return values
    if storage.bits == dtype.bits:
        return values.view(storage.numpy)
    with np.errstate(invalid="ignore"):  # signalling NaN become quiet
        return values.astype(storage.numpy)


def from_storage(held: np.ndarray[Any, Any], dtype: DType, storage: DType) -> np.ndarray[Any, Any]:
    """The inverse of ``to_storage``."""
    if dtype.kind == "bool":
        truth: np.ndarray[Any, Any] = (held.view(np.uint8) if storage.kind == "bool" else held) != 0
        return truth
    if storage == dtype:
        return held
    if storage.bits == dtype.bits:
        return held.view(dtype.numpy)
    with np.errstate(invalid="ignore"):
        return held.astype(dtype.numpy)


def _nearest(device: Device, dtype: DType) -> DType | None:
    """The stored dtype of the same kind with the nearest width."""
    same = [other for other in dtypes.ALL if other.kind == dtype.kind and device.target.stores(other)]
    return min(same, key=lambda other: abs(other.bits - dtype.bits), default=None)
