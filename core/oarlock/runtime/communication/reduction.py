"""Reductions on the host, of what the ranks of a group have sent: in the order of ranks, rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from oarlock.dtypes import DType, float32
from oarlock.errors import DTypeError, UnsupportedError
from oarlock.hal import ReduceKind

__all__ = ["Kind", "check_kind", "combine"]

Kind: TypeAlias = ReduceKind | Literal["avg"]
"""How values are combined; "avg" divides the sum by the number of ranks."""

_FUNCTIONS: dict[str, np.ufunc] = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "avg": np.add,
}  # fmt: skip


def check_kind(kind: str, dtype: DType) -> None:
    """Raise UnsupportedError for an unknown kind, DTypeError for one that ``dtype`` does not have."""
    if kind not in _FUNCTIONS:
        raise UnsupportedError(f"no reduce kind {kind!r}; there are {', '.join(_FUNCTIONS)}")
    if dtype.kind == "bool" and kind not in ("max", "min"):
        raise DTypeError(f"bool has no {kind}: use max (any) or min (all), or convert with x.astype(ol.int32)")
    if kind == "avg" and not dtype.is_float:
        raise DTypeError(f"{dtype} has no avg: use sum, or convert with x.astype(ol.float32)")


def combine(values: Sequence[npt.NDArray[Any]], dtype: DType, kind: Kind) -> npt.NDArray[Any]:
    """Combine arrays of ``dtype``, one a rank, element by element: ``((v0 + v1) + v2) + ...``.

    float16 and bfloat16 are combined in float32 and rounded once; integers wrap; NaN wins in max and min.
    """
    wide = float32 if dtype.is_float and dtype.bits == 16 else dtype
    function = _FUNCTIONS[kind]
    result = values[0].astype(wide.numpy)
    with np.errstate(all="ignore"):
        for other in values[1:]:
            function(result, other.astype(wide.numpy, copy=False), out=result)
        if kind == "avg":
            result /= result.dtype.type(len(values))
        return result.astype(dtype.numpy, copy=False)
