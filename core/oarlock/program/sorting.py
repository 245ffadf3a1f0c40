"""Sorting, and the sets of distinct values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from oarlock.program.elementwise import positive
from oarlock.program.host import host_function
from oarlock.program.manipulation import one_axis
from oarlock.program.tape import apply_many

if TYPE_CHECKING:
    from oarlock.program.tensor import Tensor

__all__ = [
    "UniqueAll", "UniqueCounts", "UniqueInverse", "argsort", "sort", "unique_all", "unique_counts", "unique_inverse",
    "unique_values",
]  # fmt: skip


Array: TypeAlias = npt.NDArray[Any]


class UniqueAll(NamedTuple):
    """Distinct values, where each first stands, which one each element is, and how often each occurs."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Distinct values, and how often each occurs."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Distinct values, and which one each element is."""

    values: Tensor
    inverse_indices: Tensor


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """x sorted along ``axis``, NaN last. It is always stable, whatever ``stable`` asks."""
    if not x._kind.shape:
        return positive(x)
    return apply_many("sort", x, axis=one_axis("sort", axis, x), descending=bool(descending))[0]


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices that sort x along ``axis``, NaN last. It is always stable, whatever ``stable`` asks."""
    if not x._kind.shape:
        from oarlock.program.creation import zeros_like

        return zeros_like(x, dtype=x._place.default_int)
    dtype = x._place.default_int
    return apply_many("sort", x, axis=one_axis("argsort", axis, x), descending=bool(descending), dtype=dtype)[1]


def _unique(x: Array) -> tuple[Array, ...]:
    values, indices, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    return values, indices, inverse.reshape(x.shape), counts


def unique_all(x: Tensor, /) -> UniqueAll:
    """Distinct values in rising order with indices, inverse and counts. Runs on the host: the size depends on the data.

    Every NaN is distinct.
    """
    found = host_function("unique_all", _unique, x, indices=(1, 2, 3))
    return UniqueAll(*found)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Distinct values in rising order with counts. Runs on the host: the size depends on the data."""
    values, counts = host_function("unique_counts", lambda a: (_unique(a)[0], _unique(a)[3]), x, indices=(1,))
    return UniqueCounts(values, counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Distinct values in rising order, and which one each element is. Runs on the host, as the size depends on data."""
    values, inverse = host_function("unique_inverse", lambda a: (_unique(a)[0], _unique(a)[2]), x, indices=(1,))
    return UniqueInverse(values, inverse)


def unique_values(x: Tensor, /) -> Tensor:
    """Distinct values in rising order. Runs on the host: the size depends on the data."""
    return host_function("unique_values", lambda a: (_unique(a)[0],), x)[0]
