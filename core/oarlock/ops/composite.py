"""What composite records share: 16-bit floats computed in float32 and rounded once, and the frame of a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ir import Attribute, Trait, Value, traits
from oarlock.ops.numerics import Reference, narrow, precise, quiet
from oarlock.ops.record import Array, ArrayBuilder, Attributes, Infer, Record, Tolerance, tensor
from oarlock.ops.sampling import Samples

__all__ = ["Decompose", "ELEMENTWISE", "composite", "in_single", "number", "wide_reference"]

Decompose = Callable[[ArrayBuilder, Sequence[Value], Attributes], Sequence[Value]]

ELEMENTWISE = frozenset({traits.PURE, traits.ELEMENTWISE})


def in_single(decompose: Decompose) -> Decompose:
    """``decompose`` with 16-bit floats converted to float32 first, and its float results converted back once."""

    def wrapped(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
        dtype = next((tensor(x).dtype for x in operands if tensor(x).dtype.is_float), dtypes.float32)
        if dtype.bits != 16:
            return decompose(b, operands, attributes)
        lifted = [b.convert(x, dtypes.float32) if tensor(x).dtype.is_float else x for x in operands]
        results = decompose(b, lifted, attributes)
        return [b.convert(r, dtype) if tensor(r).dtype.is_float else r for r in results]

    return wrapped


def wide_reference(function: Callable[[Sequence[Array], Attributes], Sequence[Any]]) -> Reference:
    """A reference in float64 (extended for float64) whose float results are rounded once to the operands' dtype."""

    @quiet
    def evaluate(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
        lifted = [precise(x) for x in operands]
        dtype = next((x.dtype for x, y in zip(operands, lifted, strict=True) if x.dtype != y.dtype), None)
        results = [np.asarray(result) for result in function(lifted, attributes)]
        return [narrow(r, dtype) if dtype is not None and r.dtype.kind == "f" else r for r in results]

    return evaluate


def composite(
    name: str,
    family: str,
    summary: str,
    operands: str,
    infer: Infer,
    reference: Reference,
    decompose: Decompose,
    samples: Samples,
    *,
    attributes: Mapping[str, type | tuple[type, ...]] | None = None,
    optional: Sequence[str] = (),
    dtypes: tuple[DType, ...] = dtypes.ALL,
    tolerance: Tolerance = "exact",
    traits: frozenset[Trait] = frozenset({traits.PURE}),
    results: int = 1,
) -> Record:
    """A composite record; ``operands`` are names separated by spaces."""
    return Record(
        name,
        family,
        summary,
        tuple(operands.split()),
        infer,
        reference,
        attributes=attributes or {},
        optional=frozenset(optional),
        results=results,
        dtypes=dtypes,
        decompose=decompose,
        tolerance=tolerance,
        traits=traits,
        samples=samples,
    )


def number(attributes: Attributes, key: str, default: float | None = None) -> float:
    """The float attribute ``key``, or ``default`` where absent."""
    value: Attribute = attributes.get(key, default)
    assert isinstance(value, (int, float))
    return float(value)
