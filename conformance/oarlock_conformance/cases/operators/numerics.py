"""How far float results are from the exact ones, in ulp, for the certificate's table of numerics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.ops.bounds import spacing
from oarlock.ops.record import Attributes, Record
from oarlock.ops.tolerance import allowed, exact

__all__ = ["ulp_error", "worse"]

Array = npt.NDArray[Any]


def ulp_error(
    record: Record, operands: Sequence[Array], attributes: Attributes, actual: Sequence[Array]
) -> dict[str, Any] | None:
    """How exact the results of a call are; None where nothing is a finite float with a tolerance.

    ``ulp``, ``allowed`` (in ulp) and ``used`` (the share) belong to the element that used most of what is allowed;
    ``max`` is the largest error in ulp of any element and ``at`` where that is: the operands there, or its place.
    Called with floating-point warnings off.
    """
    worst: dict[str, Any] | None = None
    expected = exact(record, operands, attributes)
    for number, (found, wanted) in enumerate(zip(actual, expected, strict=True)):
        dtype = dtypes.from_numpy(found.dtype)
        if not dtype.is_float or found.size == 0:
            continue
        bound = allowed(record, dtype, wanted, operands, attributes, number)
        wide, got = wanted.astype(np.float64), found.astype(np.float64)
        usable = np.isfinite(wide) & np.isfinite(got) & (bound > 0)
        if not usable.any():
            continue
        unit = spacing(wide, dtype)
        error = np.where(usable, np.abs(got - wide), 0.0)
        used = np.where(usable, error / np.where(bound > 0, bound, 1.0), 0.0)
        at = np.unravel_index(int(np.argmax(used)), used.shape)
        ulps = error / unit
        top = np.unravel_index(int(np.argmax(ulps)), ulps.shape)
        figures = {
            "ulp": float(ulps[at]),
            "allowed": float(bound[at] / unit[at]),
            "used": float(used[at]),
            "max": float(ulps[top]),
            "at": _place(operands, found.shape, tuple(int(i) for i in top)),
        }
        worst = worse(worst, figures)
    return worst


def worse(one: dict[str, Any] | None, other: dict[str, Any] | None) -> dict[str, Any] | None:
    """The figures of two calls together: of the one that used more, with the largest error of both."""
    if one is None or other is None:
        return other if one is None else one
    used, top = (max((one, other), key=lambda figures: figures[key]) for key in ("used", "max"))
    return {**used, "max": top["max"], "at": top["at"]}


def _place(operands: Sequence[Array], shape: tuple[int, ...], at: tuple[int, ...]) -> str:
    """``(1.5, -0.0)`` where the operands have the result's shape, else ``[3, 7]``."""
    if operands and all(x.shape == shape for x in operands):
        return f"({', '.join(repr(x[at].item()) for x in operands)})"
    return str(list(at))
