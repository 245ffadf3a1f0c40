"""Random bits: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from oarlock import dtypes
from oarlock.errors import ShapeError
from oarlock.ir import TensorType
from oarlock.ops.inference import check_dtype
from oarlock.ops.numerics import quiet
from oarlock.ops.record import Array, Attributes, Record
from oarlock.ops.sampling import sample, values
from oarlock.ops.shape import shape_of

__all__ = ["RANDOM", "philox"]

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF
_ROUNDS = 10


def philox(key: tuple[int, int], counter: Array) -> Array:
    """The four words of each block: ``counter`` uint32[n, 4], word 0 the lowest; result uint32[n, 4]."""
    words = [counter[:, i].astype(np.uint64) for i in range(4)]
    low, high = key
    for _ in range(_ROUNDS):
        first, second = words[0] * np.uint64(_MULTIPLIERS[0]), words[2] * np.uint64(_MULTIPLIERS[1])
        words = [
            (second >> np.uint64(32)) ^ words[1] ^ np.uint64(low),
            second & np.uint64(_LOW),
            (first >> np.uint64(32)) ^ words[3] ^ np.uint64(high),
            first & np.uint64(_LOW),
        ]
        low, high = (low + _WEYL[0]) & _LOW, (high + _WEYL[1]) & _LOW
    return np.stack(words, axis=1).astype(np.uint32)


def _infer(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    for operand, t in zip(("key", "counter"), types, strict=True):
        check_dtype("random_bits", f"the {operand}", t.dtype, (dtypes.uint32,))
        if t.shape != (2,):
            raise ShapeError(f"random_bits: the {operand} is {t}, not two words")
    return (TensorType(dtypes.uint32, shape_of("random_bits", attributes)),)


@quiet
def _random_bits(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    key, counter = operands
    shape: Any = attributes["shape"]
    count = math.prod(shape)
    start = np.uint64(int(counter[0]) | int(counter[1]) << 32)
    position = start + np.arange(-(-count // 4), dtype=np.uint64)
    zero = np.zeros_like(position)
    blocks = np.stack([position & np.uint64(_LOW), position >> np.uint64(32), zero, zero], axis=1)
    return (philox((int(key[0]), int(key[1])), blocks).reshape(-1)[:count].reshape(shape),)


def _samples(dtype: Any, rng: np.random.Generator) -> list[Any]:
    shapes: list[tuple[int, ...]] = [(), (0,), (1,), (4,), (7,), (257,), (3, 5, 2)]
    calls = [sample(values(dtype, rng, (2,)), values(dtype, rng, (2,)), shape=shape) for shape in shapes]
    carry = np.array([_LOW, 7], np.uint32)
    return [*calls, sample(np.zeros(2, np.uint32), carry, shape=(13,)), sample(carry, carry, shape=(4, 4))]


RANDOM: tuple[Record, ...] = (
    Record(
        "random_bits",
        "random",
        "Uniform 32-bit words by Philox4x32-10: element i is word i % 4 of block (counter + i // 4, 0), where counter "
        "is a 64-bit number, low word first, that wraps.",
        ("key", "counter"),
        _infer,
        _random_bits,
        attributes={"shape": tuple},
        dtypes=(dtypes.uint32,),
        samples=_samples,
    ),
)
"""Its record."""
