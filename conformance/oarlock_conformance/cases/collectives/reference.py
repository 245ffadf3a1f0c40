"""Values that depend on the rank, and what collectives must make of them: exactly, or within a bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from oarlock.dtypes import DType
from oarlock_conformance.bench import expect_equal
from oarlock_conformance.case import Failure

__all__ = ["check_reduced", "kinds_of", "values_of"]

Values = npt.NDArray[Any]


def kinds_of(dtype: DType, count: int) -> tuple[str, ...]:
    """The reduce kinds of a dtype; the first of them for arrays of 0 and 1, which are about counts and not values."""
    if dtype.kind == "bool":
        kinds: tuple[str, ...] = ("max", "min")
    else:
        kinds = ("sum", "prod", "max", "min", "avg") if dtype.is_float else ("sum", "prod", "max", "min")
    return kinds if count > 1 else kinds[:1]


def values_of(dtype: DType, count: int, rank: int, seed: int = 0) -> Values:
    """``count`` values that no two ranks share: integers over the whole range, floats of both signs."""
    random = np.random.default_rng([seed, rank, count])
    if dtype.kind == "bool":
        return random.integers(0, 2, count, dtype=np.int8).astype(np.bool_)
    if dtype.is_float:
        magnitude: Values = np.exp2(random.uniform(-2, 2, count)) * random.choice([-1.0, 1.0], count)
        return magnitude.astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    whole: Values = random.integers(limits.min, limits.max, count, dtype=dtype.numpy, endpoint=True)
    return whole


def check_reduced(found: Values, operands: Sequence[Values], dtype: DType, kind: str, what: str) -> None:
    """Fail unless ``found`` is the reduction of ``operands``.

    Integers, max and min are exact. A float's sum, product and average of n operands may be off by n - 1 roundings of
    float32 (float64 for float64), and one of the dtype: the order of operands is free.
    """
    if not dtype.is_float or kind in ("max", "min"):
        expect_equal(found, _exact(operands, dtype, kind), what)
        return
    wide = np.stack([np.asarray(operand, np.longdouble) for operand in operands])
    wanted = wide.prod(axis=0) if kind == "prod" else wide.sum(axis=0)
    size = np.abs(wanted) if kind == "prod" else np.abs(wide).sum(axis=0)
    if kind == "avg":
        wanted, size = wanted / len(operands), size / len(operands)
    unit = 2.0**-53 if dtype.bits == 64 else 2.0**-24
    own = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    bound = len(operands) * unit * size + float(own.eps) / 2 * np.abs(wanted) + float(own.smallest_subnormal)
    error = np.abs(np.asarray(found, np.longdouble) - wanted)
    wrong = np.flatnonzero(~(error.reshape(-1) <= bound.reshape(-1)))
    if wrong.size:
        at = int(wrong[0])
        raise Failure(
            f"{what}: element {at} is {found.reshape(-1)[at]}, expected {wanted.reshape(-1)[at]:.9g} within "
            f"{float(bound.reshape(-1)[at]):.3g}; {wrong.size} of {found.size} elements are wrong"
        )


def _exact(operands: Sequence[Values], dtype: DType, kind: str) -> Values:
    """Max and min as they are; sums and products of integers modulo 2^64, then cut to the dtype's bits."""
    stacked = np.stack(operands)
    if kind in ("max", "min"):
        order = stacked.astype(np.float64) if dtype.is_float else stacked
        best: Values = order.max(axis=0) if kind == "max" else order.min(axis=0)
        return best.astype(dtype.numpy)
    wide = stacked.astype(np.int64).view(np.uint64) if dtype.is_signed else stacked.astype(np.uint64)
    total: Values = wide.sum(axis=0, dtype=np.uint64) if kind == "sum" else wide.prod(axis=0, dtype=np.uint64)
    return total.astype(dtype.numpy)
