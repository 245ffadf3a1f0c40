"""Values between host and device, and the operators that run on the host by declaration: data-dependent sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.program.backend import Place, backend
from oarlock.program.calls import Number, kind
from oarlock.program.tape import concrete

if TYPE_CHECKING:
    from oarlock.program.tensor import Tensor

__all__ = ["host_array", "host_function", "host_operations", "host_view", "moved", "put"]

_counts: Counter[str] = Counter()


def host_operations() -> dict[str, int]:
    """How often each operator ran on the host by declaration, in this process, by name."""
    return dict(_counts)


def host_array(x: Tensor) -> npt.NDArray[Any]:
    """The value of ``x`` as a fresh NumPy array."""
    data = x._settle()
    if type(data) is Number:
        return np.asarray(data.value).astype(x._kind.dtype.numpy)
    return np.asarray(backend().get(data))


def host_view(x: Tensor) -> npt.NDArray[Any] | None:
    """The memory of ``x`` itself, read-only; None where the host cannot read it."""
    data = x._settle()
    if type(data) is Number:
        view = host_array(x)
        view.setflags(write=False)
        return view
    return backend().host_view(data)


def moved(x: Tensor, where: Place) -> Tensor:
    """A copy of ``x`` on another place; raises UnsupportedError when that does not store its dtype."""
    where.check_stores(x._kind.dtype, f"tensor from {x._place.name}")
    data = x._settle()
    return concrete(x._kind, where, data if type(data) is Number else backend().move(data, where.device))


def put(place: Place, array: npt.NDArray[Any]) -> Tensor:
    """A copy of ``array`` on ``place``; raises UnsupportedError when it does not store the dtype."""
    dtype = dtypes.from_numpy(array.dtype)
    place.check_stores(dtype, "array from the host")
    own = np.ascontiguousarray(array, dtype=dtype.numpy).reshape(array.shape)
    return concrete(kind(dtype, array.shape), place, backend().put(place.device, own))


def host_function(
    name: str, function: Callable[..., Sequence[npt.NDArray[Any]]], *operands: Tensor, indices: Sequence[int] = ()
) -> tuple[Tensor, ...]:
    """Apply ``function`` to the operands' values on the host, and put what it gives back on their device.

    ``indices`` are the results that become the device's default integer.
    """
    place = operands[0]._place
    _counts[name] += 1
    results = function(*[host_array(x) for x in operands])
    integer = place.default_int.numpy
    return tuple(put(place, r.astype(integer) if i in indices else r) for i, r in enumerate(results))
