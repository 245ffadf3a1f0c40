"""Operands for samples: ordinary values, special values, and the shapes at which implementations go wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from ml_dtypes import finfo

from oarlock.dtypes import DType
from oarlock.ir import Attribute
from oarlock.ops.record import Array, Sample

__all__ = [
    "PAIRS", "SHAPES", "Samples", "binary_samples", "sample", "small", "specials", "unary_samples", "uniform", "values",
]  # fmt: skip

Samples = Callable[[DType, np.random.Generator], Sequence[Sample]]

SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (7,), (64, 17), (3, 0, 2), (255,), (2, 3, 5))
"""0-d, empty, one, prime, past a block, empty inside, a block less one, several dimensions."""

PAIRS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((), ()), ((7,), ()), ((0,), (1,)), ((257,), (257,)), ((4, 1, 3), (2, 1)), ((5, 3), (3,)), ((1, 13), (11, 1)),
)  # fmt: skip
"""Shapes that broadcast in every way."""


def sample(*operands: Array, **attributes: Attribute) -> Sample:
    """A Sample of these operands and attributes."""
    return Sample(tuple(operands), attributes)


def values(dtype: DType, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Ordinary values: integers over the whole range, floats normal over a few powers of two."""
    if dtype.kind == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        return np.asarray(rng.integers(limits.min, limits.max, shape, dtype=dtype.numpy, endpoint=True))
    scale = np.exp2(rng.integers(-3, 4, shape).astype(np.float64))
    return np.asarray(rng.standard_normal(shape) * scale).astype(dtype.numpy)


def small(dtype: DType, rng: np.random.Generator, shape: tuple[int, ...], limit: int = 4) -> Array:
    """Values of magnitude at most ``limit``: integers in [-limit, limit] (from 0 where unsigned), normal floats."""
    if dtype.is_integer:
        low = 0 if dtype.kind == "uint" else -limit
        return np.asarray(rng.integers(low, limit + 1, shape)).astype(dtype.numpy)
    return (
        np.clip(rng.standard_normal(shape), -limit, limit).astype(dtype.numpy)
        if dtype.is_float
        else values(dtype, rng, shape)
    )


def uniform(dtype: DType, rng: np.random.Generator, shape: tuple[int, ...], low: float, high: float) -> Array:
    """Values spread evenly over [low, high)."""
    return np.asarray(rng.uniform(low, high, shape)).astype(dtype.numpy)


def specials(dtype: DType) -> Array:
    """The special values of a dtype, in 1-d: extremes, zeros of both signs, infinities, NaN, least (sub)normal."""
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        wanted = {limits.min, limits.min + 1, -1, 0, 1, 2, 3, dtype.bits - 1, dtype.bits, limits.max - 1, limits.max}
        return np.array(sorted(v for v in wanted if limits.min <= v <= limits.max), dtype.numpy)
    limits_f: Any = finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    tiny, least, largest = float(limits_f.smallest_normal), float(limits_f.smallest_subnormal), float(limits_f.max)
    positive = [0.0, least, tiny, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, largest, np.inf]
    return np.array([*positive, *(-v for v in positive), np.nan], np.float64).astype(dtype.numpy)


def unary_samples(low: float | None = None, high: float | None = None) -> Samples:
    """Samples of a unary element-wise operator: all shapes, special values, and floats spread over [low, high)."""

    def make(dtype: DType, rng: np.random.Generator) -> Iterator[Sample]:
        for shape in SHAPES:
            yield sample(values(dtype, rng, shape))
        yield sample(specials(dtype))
        if low is not None and high is not None and dtype.is_float:
            yield sample(uniform(dtype, rng, (1025,), low, high))

    return lambda dtype, rng: list(make(dtype, rng))


def binary_samples(ordinary: Callable[[DType, np.random.Generator, tuple[int, ...]], Array] = values) -> Samples:
    """Samples of a binary element-wise operator: pairs of shapes, and all pairs of special values."""

    def make(dtype: DType, rng: np.random.Generator) -> Iterator[Sample]:
        for left, right in PAIRS:
            yield sample(ordinary(dtype, rng, left), ordinary(dtype, rng, right))
        pairs = list(itertools.product(specials(dtype), repeat=2))
        yield sample(*(np.array(column, dtype.numpy) for column in zip(*pairs, strict=True)))

    return lambda dtype, rng: list(make(dtype, rng))
