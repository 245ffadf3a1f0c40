"""The judge of results: exact ones by bits, others against float64 within the bounds of the tolerance table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ops.bounds import BOUNDS as PRIMITIVE_BOUNDS
from oarlock.ops.bounds import PRODUCTS_OF_SUBNORMALS, SIGNLESS, ULPS, Call, largest, least_normal, spacing
from oarlock.ops.composite_bounds import COMPOSITE_BOUNDS
from oarlock.ops.record import Array, Attributes, Record

__all__ = ["allowed", "check", "exact"]

BOUNDS = {**PRIMITIVE_BOUNDS, **COMPOSITE_BOUNDS}

_MOVES = frozenset({"shape", "index", "sort", "random", "bitcast", "constant", "from_scalar", "select"})
"""Families and operators that move values and never flush them."""


def exact(record: Record, operands: Sequence[Array], attributes: Attributes) -> list[Array]:
    """The results that others are measured against.

    Operators with a bound are evaluated on float64 operands (and in extended precision where those are float64
    already) and give float64. All others must be met exactly and give what the reference gives.
    """
    if not _has_bound(record):
        return list(record.reference(operands, attributes))
    return list(record.reference([_double(x) for x in operands], _raised(attributes)))


def allowed(
    record: Record, dtype: DType, expected: Array, operands: Sequence[Array], attributes: Attributes, result: int = 0
) -> Array:
    """The absolute error that each element of result number ``result``, of ``dtype``, may have (float64).

    ``expected`` is that result from ``exact`` for these ``operands`` and ``attributes``. 0 means equal.
    """
    if not dtype.is_float or not _has_bound(record):
        return np.zeros(expected.shape)
    with np.errstate(all="ignore"):
        wide = expected.astype(np.float64)
        ulp = spacing(wide, dtype)
        if record.name in BOUNDS:
            call = Call(record, dtype, wide, [_double(x) for x in operands], _raised(attributes), result)
            inside = np.broadcast_to(np.asarray(BOUNDS[record.name](call), np.float64), wide.shape)
            bound = np.where(inside > 0, inside + 0.5 * ulp, 0.0)
        else:
            bound = ULPS[record.name][{64: 0, 32: 1, 16: 2}[dtype.bits]] * ulp
            if record.name in PRODUCTS_OF_SUBNORMALS:
                least = float(spacing(np.zeros(()), dtype))
                bound = bound + np.where(np.isfinite(wide), 2 * np.abs(_double(operands[0])) * least, 0.0)
        if dtype.bits == 64:  # float64 results are compared with float64, which is itself off by half an ulp
            bound = np.where(bound > 0, bound + 0.5 * ulp, 0.0)
    return np.asarray(bound)


def check(
    record: Record, operands: Sequence[Array], attributes: Attributes, actual: Sequence[Array], *, flush: bool = False
) -> str | None:
    """What is worst about ``actual`` as the results of a call, or None when all is well.

    ``flush`` lets subnormal operands and results of arithmetic count as zero. Never raises for a wrong result.
    """
    wanted = record.reference(operands, attributes)
    if len(actual) != len(wanted):
        return f"{record.name} gave {len(actual)} results, not {len(wanted)}"
    flush = flush and record.family not in _MOVES and record.name not in _MOVES
    cases = [operands, [_flushed(x) for x in operands]] if flush else [operands]
    expected = [exact(record, case, attributes) for case in cases]
    for index, (found, reference) in enumerate(zip(actual, wanted, strict=True)):
        if found.dtype != reference.dtype or found.shape != reference.shape:
            is_, should = (f"{array.dtype} {array.shape}" for array in (found, reference))
            return f"{record.name}: result {index} is {is_}, not {should}"
        verdicts = [
            _judge(record, case, attributes, index, found, results[index], flush)
            for case, results in zip(cases, expected, strict=True)
        ]
        wrong = np.logical_and.reduce([verdict.wrong for verdict in verdicts])
        if wrong.any():
            return _message(record, index, operands, found, verdicts[0], wrong)
    return None


@dataclass(frozen=True, slots=True)
class _Verdict:
    expected: Array
    bound: Array
    wrong: Array


def _judge(
    record: Record,
    operands: Sequence[Array],
    attributes: Attributes,
    index: int,
    found: Array,
    expected: Array,
    flush: bool,
) -> _Verdict:
    dtype = dtypes.from_numpy(found.dtype)
    bound = allowed(record, dtype, expected, operands, attributes, index)
    if not dtype.is_float:
        return _Verdict(expected, bound, np.asarray(found != expected))
    with np.errstate(all="ignore"):
        got, want = found.astype(np.float64), expected.astype(np.float64)
        fine = (got == want) | (np.abs(got - want) <= bound) | (np.isnan(got) & np.isnan(want))
        overflow = (bound > 0) & np.isfinite(want) & (np.abs(want) + bound >= largest(dtype))
        fine |= overflow & np.isinf(got) & (np.signbit(got) == np.signbit(want))
        if flush:
            fine |= (got == 0) & (np.abs(want) < least_normal(dtype) + bound)
        elif _keeps_sign_of_zero(record):
            fine &= (want != 0) | (np.signbit(got) == np.signbit(want))
    return _Verdict(want, bound, np.asarray(~fine))


def _message(
    record: Record, index: int, operands: Sequence[Array], found: Array, verdict: _Verdict, wrong: Array
) -> str:
    with np.errstate(all="ignore"):
        error = np.abs(found.astype(np.float64) - verdict.expected.astype(np.float64))
        excess = np.where(wrong, np.where(np.isnan(error), np.inf, error / np.maximum(verdict.bound, 1e-300)), -1.0)
    at = np.unravel_index(int(np.argmax(excess)), found.shape)
    place = tuple(int(i) for i in at)
    given = ", ".join(str(x[place]) for x in operands if x.shape == found.shape)
    text = f"{record.name}: result {index} at {place} is {found[at]}, expected {verdict.expected[at]}"
    if verdict.bound[at] > 0:
        text += f" within {verdict.bound[at]:.3g} (off by {error[at]:.3g})"
    return f"{text}{f' for ({given})' if given else ''}; {int(wrong.sum())} of {found.size} elements are wrong"


def _has_bound(record: Record) -> bool:
    return record.name in BOUNDS or record.name in ULPS


def _keeps_sign_of_zero(record: Record) -> bool:
    return record.is_primitive and record.tolerance not in ("reduction", "contraction") and record.name not in SIGNLESS


def _double(x: Array) -> Array:
    return x.astype(np.float64) if dtypes.from_numpy(x.dtype).is_float else x


def _raised(attributes: Attributes) -> Attributes:
    return {k: dtypes.float64 if isinstance(v, DType) and v.is_float else v for k, v in attributes.items()}


def _flushed(x: Array) -> Array:
    dtype = dtypes.from_numpy(x.dtype)
    if not dtype.is_float:
        return x
    wide = x.astype(np.float64)
    return np.where(np.abs(wide) < least_normal(dtype), np.copysign(0.0, wide), wide).astype(x.dtype)
