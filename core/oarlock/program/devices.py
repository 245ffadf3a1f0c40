"""Devices for users: opening by name, listing, waiting; and what the namespace says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.program.backend import DeviceLike, backend, place
from oarlock.program.dtype_functions import DEFAULT_FLOAT, isdtype
from oarlock.program.fast import ready
from oarlock.program.tape import flush_thread

__all__ = ["NamespaceInfo", "__array_namespace_info__", "device", "devices", "synchronize"]


def device(name: str | None = None) -> DeviceLike:
    """The device called ``name`` (``"adapter:index"``, index 0 when left out); None: the default one.

    Raises DeviceNotFoundError that lists what there is, and why the rest is missing.
    """
    return place(name).device


def devices() -> list[str]:
    """The names of all devices that can be used."""
    return list(backend().device_names())


def synchronize(device: Any = None) -> None:
    """Run what this thread has recorded, and wait until ``device`` (None: each that this process has open) is done.

    Raises the first failure of the work waited for.
    """
    done: Any = ready.synchronize is not None and ready.synchronize(device)
    if done is True:
        return
    failure: Exception | None = flush_thread() if done is False else done
    waited: Sequence[DeviceLike] = backend().open_devices() if device is None else [place(device).device]
    for one in waited:
        backend().synchronize(one)
    if failure is not None:
        raise failure


class NamespaceInfo:
    """What the namespace offers, in the form that the array API standard gives it."""

    def capabilities(self) -> dict[str, Any]:
        """Masks as indices and data-dependent shapes are there (on the host); ranks are not limited."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> DeviceLike:
        """The device that tensors are made on when none is named."""
        return place().device

    def devices(self) -> list[DeviceLike]:
        """All devices, opened."""
        return [place(name).device for name in devices()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The dtypes of Python floats, integers and indices on ``device``."""
        where = place(device)
        return {"real floating": DEFAULT_FLOAT, "integral": where.default_int, "indexing": where.default_int}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The dtypes of the standard that ``device`` stores, of ``kind`` when it is given; not float16 and bfloat16."""
        where = place(device)
        stored = [d for d in dtypes.ALL if where.stores(d) and not (d.is_float and d.bits == 16)]
        return {d.name: d for d in stored if kind is None or isdtype(d, kind)}


def __array_namespace_info__() -> NamespaceInfo:
    """See ``NamespaceInfo``."""
    return NamespaceInfo()
