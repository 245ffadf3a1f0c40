"""Comparison and choice: the six comparisons and select."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ir import TensorType, traits
from oarlock.ops.inference import broadcast_shapes, check_dtype, elementwise, same_dtypes
from oarlock.ops.numerics import quiet, widen
from oarlock.ops.record import Array, Attributes, Record
from oarlock.ops.sampling import PAIRS, binary_samples, sample, specials, values

__all__ = ["COMPARE"]

TRAITS = frozenset({traits.PURE, traits.ELEMENTWISE})


def _compare(name: str, summary: str, function: Callable[..., Any], commutative: bool = False) -> Record:
    @quiet
    def reference(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
        return (function(widen(operands[0]), widen(operands[1])),)

    return Record(
        name,
        "compare",
        summary,
        ("x", "y"),
        elementwise(name, dtypes.ALL, dtypes.bool_),
        reference,
        traits=TRAITS | ({traits.COMMUTATIVE} if commutative else frozenset()),
        samples=binary_samples(),
    )


def _infer_select(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    check_dtype("select", "the condition", types[0].dtype, (dtypes.bool_,))
    dtype = same_dtypes("select", types[1:])
    return (TensorType(dtype, broadcast_shapes("select", *(t.shape for t in types))),)


@quiet
def _select(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    return (np.where(*operands),)


def _select_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    calls = [
        sample(values(dtypes.bool_, rng, left), values(dtype, rng, left), values(dtype, rng, right))
        for left, right in PAIRS
    ]
    special = specials(dtype)
    calls.append(sample(values(dtypes.bool_, rng, special.shape), special, special[::-1].copy()))
    calls.append(sample(values(dtypes.bool_, rng, (5, 1)), values(dtype, rng, (3,)), values(dtype, rng, (2, 1, 1))))
    return calls


COMPARE: tuple[Record, ...] = (
    _compare("equal", "Whether x = y; False where either is NaN.", np.equal, commutative=True),
    _compare("not_equal", "Whether x differs from y; True where either is NaN.", np.not_equal, commutative=True),
    _compare("less", "Whether x < y; False where either is NaN.", np.less),
    _compare("less_equal", "Whether x <= y; False where either is NaN.", np.less_equal),
    _compare("greater", "Whether x > y; False where either is NaN.", np.greater),
    _compare("greater_equal", "Whether x >= y; False where either is NaN.", np.greater_equal),
    Record(
        "select",
        "compare",
        "x where the condition holds, else y; all three broadcast.",
        ("condition", "x", "y"),
        _infer_select,
        _select,
        traits=TRAITS,
        samples=_select_samples,
    ),
)
"""Their records."""
