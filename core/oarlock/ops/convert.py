"""Changing the dtype: by value (convert) and by bits (bitcast); entering the array world (constant, from_scalar)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import DTypeError
from oarlock.ir import Dense, TensorType, traits
from oarlock.ops.inference import dtype_of
from oarlock.ops.numerics import narrow, quiet
from oarlock.ops.record import Array, Attributes, Record
from oarlock.ops.sampling import sample, specials, uniform, values

__all__ = ["CONVERT", "converted"]


def converted(x: Array, dtype: DType) -> Array:
    """``x`` as ``dtype``: floats to integers truncate and saturate, NaN gives 0; integers wrap; bool is x != 0."""
    source = dtypes.from_numpy(x.dtype)
    if dtype.kind == "bool":
        return np.asarray(x != 0)
    if source.is_float and dtype.is_integer:
        return _saturated(x.astype(np.float64), dtype)
    if source.is_integer and dtype == dtypes.bfloat16:
        return narrow(_odd_double(x), dtype.numpy)
    return narrow(x, dtype.numpy) if dtype.is_float else x.astype(dtype.numpy)


def _saturated(x: Array, dtype: DType) -> Array:
    limits = np.iinfo(dtype.numpy)
    inside = (x > float(limits.min) - 1) & (x < float(limits.max) + 1)
    result = np.where(inside, x, 0.0).astype(np.int64 if dtype.kind == "int" else np.uint64).astype(dtype.numpy)
    result = np.where(x >= float(limits.max) + (dtype.bits < 64), np.asarray(limits.max, dtype.numpy), result)
    return np.where(x <= float(limits.min), np.asarray(limits.min, dtype.numpy), result)


def _odd_double(x: Array) -> Array:
    """Integers as float64, odd in the last bit where a bit is lost, so that a later rounding is right."""
    if x.dtype.itemsize < 8:
        return x.astype(np.float64)
    low, last = x.dtype.type(2047), x.dtype.type(2048)
    sticky = (x & ~low) | np.where((x & low) != 0, last, x.dtype.type(0))
    return np.where(np.abs(x.astype(np.float64)) >= 2.0**53, sticky, x).astype(np.float64)


def _infer_convert(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    return (TensorType(dtype_of(attributes), types[0].shape),)


def _infer_bitcast(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    source, target = types[0].dtype, dtype_of(attributes)
    if source.bits != target.bits or dtypes.bool_ in (source, target):
        raise DTypeError(
            f"bitcast: {source} has no bits in common with {target}: widths must be equal, and neither bool"
        )
    return (TensorType(target, types[0].shape),)


def _convert_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    calls = []
    for target in dtypes.ALL:
        calls += [sample(values(dtype, rng, (65,)), dtype=target), sample(specials(dtype), dtype=target)]
        if dtype.is_float:
            calls.append(sample(uniform(dtype, rng, (33,), -300.0, 300.0), dtype=target))
    return [*calls, *(sample(values(dtype, rng, shape), dtype=dtypes.float32) for shape in ((), (0,), (2, 3, 5)))]


def _bitcast_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    targets = [t for t in dtypes.ALL if t.bits == dtype.bits and t != dtypes.bool_]
    return [
        sample(x, dtype=target)
        for target in targets
        for x in (values(dtype, rng, (65,)), specials(dtype), values(dtype, rng, ()), values(dtype, rng, (0, 2)))
    ]


def _infer_constant(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    value = attributes["value"]
    assert isinstance(value, Dense)
    return (TensorType(value.dtype, value.array.shape),)


@quiet
def _constant(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    value = attributes["value"]
    assert isinstance(value, Dense)
    return (value.array,)


CONVERT: tuple[Record, ...] = (
    Record(
        "convert",
        "convert",
        "The same value in another dtype: rounds to nearest even; floats to integers truncate and saturate, NaN "
        "gives 0; integers wrap; bool is x != 0.",
        ("x",),
        _infer_convert,
        quiet(lambda operands, attributes: (converted(operands[0], dtype_of(attributes)),)),
        attributes={"dtype": DType},
        traits=frozenset({traits.PURE, traits.ELEMENTWISE}),
        samples=_convert_samples,
    ),
    Record(
        "bitcast",
        "convert",
        "The same bits as another dtype of the same width.",
        ("x",),
        _infer_bitcast,
        quiet(lambda operands, attributes: (operands[0].view(dtype_of(attributes).numpy),)),
        attributes={"dtype": DType},
        dtypes=tuple(d for d in dtypes.ALL if d != dtypes.bool_),
        traits=frozenset({traits.PURE, traits.ELEMENTWISE}),
        samples=_bitcast_samples,
    ),
    Record(
        "constant",
        "convert",
        "An array known when the program is built.",
        (),
        _infer_constant,
        _constant,
        attributes={"value": Dense},
        traits=frozenset({traits.PURE, traits.CONSTANT}),
        samples=lambda dtype, rng: [
            sample(value=Dense(x))
            for x in (*(values(dtype, rng, s) for s in ((), (3,), (0, 2), (2, 5))), specials(dtype))
        ],
    ),
    Record(
        "from_scalar",
        "convert",
        "A run-time scalar as a 0-d tensor.",
        ("scalar",),
        lambda types, attributes: types,
        quiet(lambda operands, attributes: operands),
        samples=lambda dtype, rng: [sample(np.asarray(x)) for x in specials(dtype)],
        scalars=True,
    ),
)
"""Their records."""
