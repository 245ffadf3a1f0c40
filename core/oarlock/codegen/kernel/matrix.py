"""What a matrix unit computes, on NumPy: the part of one thread."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

__all__ = ["PIECE", "part_of", "product_part"]

Array = npt.NDArray[Any]
PIECE = 16
"""Rows, columns and terms of one step."""


def part_of(lane: int, width: int) -> tuple[int, slice]:
    """(row, columns) of the results that thread ``lane`` of a subgroup holds: here neighbours in a row."""
    lanes = PIECE * PIECE // width
    row, first = divmod(lane * lanes, PIECE)
    return row, slice(first, first + lanes)


def product_part(a: Array, b: Array, kind: str, total: Array, lane: int) -> Array:
    """``total`` and this thread's part of the product, in float32; ``a`` and ``b`` are 16 rows of 16 elements each,
    as memory holds them."""
    row, columns = part_of(lane, PIECE * PIECE // len(total))
    x, y = _numbers(a[row], kind), _numbers(b[columns], kind)
    for term in range(PIECE):
        total = total + x[term] * y[:, term]
    return total


def _numbers(memory: Array, kind: str) -> Array:
    """What memory holds for ``kind``, as float32: bits where floats of 16 bits are stored as integers."""
    if kind == "tf32":  # 10 bits of the mantissa stay, halves go away from zero
        bits = np.ascontiguousarray(memory, np.float32).view(np.uint32)
        rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
        return np.where(np.isfinite(memory), rounded.view(np.float32), memory)
    held = np.dtype(np.float16 if kind == "float16" else ml_dtypes.bfloat16)
    return np.ascontiguousarray(memory).view(held).astype(np.float32)
