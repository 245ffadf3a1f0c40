"""Exchange with other array libraries by DLPack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from oarlock.errors import UnsupportedError
from oarlock.program.host import host_array
from oarlock.program.host import host_view as own_view

if TYPE_CHECKING:
    from oarlock.program.tensor import Tensor

__all__ = ["HOST", "export", "from_dlpack", "host_view"]

HOST = (1, 0)
"""DLPack's device type and number for the memory of the host."""


def export(
    x: Tensor,
    stream: Any,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """A capsule with a host copy of x; with ``copy=False`` its own memory, read-only, which takes DLPack 1.0.

    Raises BufferError for another device, for ``copy=False`` where the host cannot read the memory, for bfloat16.
    """
    if stream is not None:
        raise BufferError(f"stream is {stream!r}; the export is memory of the host, which has no streams: pass None")
    if dl_device is not None and tuple(dl_device) != HOST:
        raise BufferError(f"export to DLPack device {dl_device} is not there yet; only to the host, {HOST}")
    if x._kind.dtype.name == "bfloat16":
        raise BufferError("bfloat16 cannot be exported yet; convert with x.astype(ol.float32)")
    if copy is False:
        view = own_view(x)
        if view is None:
            raise BufferError(f"the host cannot read the memory of {x._place.name}; leave out copy=False")
        return view.__dlpack__(max_version=max_version)
    return host_array(x).__dlpack__(max_version=max_version)


def host_view(obj: Any) -> npt.NDArray[Any]:
    """What speaks DLPack as a NumPy array; raises UnsupportedError when NumPy cannot read it."""
    try:
        return np.from_dlpack(obj)
    except (BufferError, RuntimeError, TypeError, ValueError) as first:
        if obj.__dlpack_device__() == HOST:
            raise UnsupportedError(f"from_dlpack: {type(obj).__name__} cannot be read: {first}") from first
    try:
        return np.from_dlpack(obj, device="cpu", copy=True)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UnsupportedError(
            f"from_dlpack: {type(obj).__name__} lives on DLPack device {obj.__dlpack_device__()} and gives no copy on "
            f"the host ({error}): move it to the host first"
        ) from error


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor with the values of ``x``, an array of another library. The data is copied; ``copy=False`` refuses that.

    Raises BufferError for ``copy=False``, UnsupportedError for memory or dtypes that cannot be read.
    """
    from oarlock.program.creation import asarray
    from oarlock.program.tape import Recorded

    if isinstance(x, Recorded):
        return asarray(x, device=device, copy=copy)
    if copy is False:
        raise BufferError("from_dlpack: foreign memory cannot be used without a copy yet; leave out copy=False")
    if not hasattr(x, "__dlpack__"):
        raise UnsupportedError(f"from_dlpack: {type(x).__name__} does not speak DLPack; use ol.asarray")
    return asarray(host_view(x), device=device)
