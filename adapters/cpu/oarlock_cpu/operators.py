"""The library kernel: thin matrix products of float32 and float64 through NumPy, which brings a tuned BLAS.

Others are generated: those with 32 rows, columns and steps or more are packed and compute what follows on the tile, and
a row times a matrix is bound by memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oarlock.dtypes import DType
from oarlock.hal import Handle, OperatorCall, OperatorKernel
from oarlock.target import Target

__all__ = ["CpuOperators", "MatrixProduct"]

_SMALLEST = 1 << 14
"""Multiplications from which on the library's call is repaid."""
_THIN = 32
"""Rows, columns or steps below which generated tiles have little to hold in registers."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One operand of a product: its array, and the axes that bring it into (batch, rows, columns) order."""

    dtype: DType
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    matrix: tuple[int, int, int]

    def view(self, handle: Handle, offset: int) -> np.ndarray:
        count = math.prod(self.shape)
        array = np.frombuffer(handle.view, self.dtype.numpy, count, offset).reshape(self.shape)
        return array.transpose(self.axes).reshape(self.matrix)


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """``dot_general`` as a batch of matrix products: [b, m, k] x [b, k, n] -> [b, m, n]."""

    left: _Side
    right: _Side
    result: _Side

    def workspace(self) -> int:
        return 0

    def run(self, stream: Handle | None, buffers: Sequence[tuple[Handle, int]]) -> None:
        left, right, result = (
            side.view(*buffer) for side, buffer in zip((self.left, self.right, self.result), buffers, strict=True)
        )
        np.matmul(left, right, out=result)


class CpuOperators:
    """Capability ``operators``."""

    def match(self, call: OperatorCall, target: Target) -> OperatorKernel | None:
        """A MatrixProduct for a thin ``dot_general`` of one float dtype that is worth it; else None."""
        if call.name.removeprefix("array.") != "dot_general":
            return None
        (dtype, x), (y_dtype, y) = call.operands
        result_dtype, result = call.results[0]
        if not dtype.name == y_dtype.name == result_dtype.name or dtype.name not in ("float32", "float64"):
            return None
        x_batch, y_batch = call.attributes["batch"]
        x_contract, y_contract = call.attributes["contract"]
        x_free = tuple(axis for axis in range(len(x)) if axis not in (*x_batch, *x_contract))
        y_free = tuple(axis for axis in range(len(y)) if axis not in (*y_batch, *y_contract))
        sides = ((x, x_batch), (x, x_free), (x, x_contract), (y, y_free))
        batch, rows, inner, columns = (_extent(shape, axes) for shape, axes in sides)
        if rows == 1 or min(rows, inner, columns) >= _THIN or batch * rows * inner * columns < _SMALLEST:
            return None
        return MatrixProduct(
            _Side(dtype, x, (*x_batch, *x_free, *x_contract), (batch, rows, inner)),
            _Side(dtype, y, (*y_batch, *y_contract, *y_free), (batch, inner, columns)),
            _Side(dtype, result, tuple(range(len(result))), (batch, rows, columns)),
        )


def _extent(shape: tuple[int, ...], axes: Sequence[int]) -> int:
    return math.prod(shape[axis] for axis in axes)
