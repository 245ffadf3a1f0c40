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

__all__ = ["ulp_error"]

Array = npt.NDArray[Any]


def ulp_error(
    record: Record, operands: Sequence[Array], attributes: Attributes, actual: Sequence[Array]
) -> dict[str, float] | None:
    """The element that used most of what is allowed: ``{"ulp": its error, "allowed": in ulp, "used": the share}``.

    None where nothing is a finite float with a tolerance. Called with floating-point warnings off.
    """
    worst: dict[str, float] | None = None
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
        if worst is None or used[at] > worst["used"]:
            worst = {
                "ulp": float(error[at] / unit[at]),
                "allowed": float(bound[at] / unit[at]),
                "used": float(used[at]),
            }
    return worst
