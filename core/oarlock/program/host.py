"""Operators that run on the host by declaration, because the size of their result depends on the data; all counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.program.backend import Place, backend, host_copy
from oarlock.program.calls import kind
from oarlock.program.tape import concrete

if TYPE_CHECKING:
    from oarlock.program.tensor import Tensor

__all__ = ["host_array", "host_function", "host_operations", "put"]

_counts: Counter[str] = Counter()


def host_operations() -> dict[str, int]:
    """How often each operator ran on the host by declaration, in this process, by name."""
    return dict(_counts)


def host_array(x: Tensor) -> npt.NDArray[Any]:
    """The value of ``x`` as a fresh NumPy array."""
    return host_copy(x._settle())


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
