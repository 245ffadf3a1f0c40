"""The library kernel: large matrix products through cuBLAS, where it is installed. It has not been run on a GPU.

Nothing is rounded to fewer bits than the dtype has: float32 is multiplied and summed in float32, never in TF32; float16
and bfloat16 are summed in float32.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pycuda.driver as cuda

from oarlock.errors import DeviceError, LaunchError
from oarlock.hal import Handle, OperatorCall, OperatorKernel
from oarlock.target import Target
from oarlock_cuda.library import Library
from oarlock_cuda.memory import Memory

__all__ = ["LEAST", "MatrixProduct", "Operators", "load_cublas"]

LEAST = 64
"""Rows, columns and terms from which on a product is claimed: a block's tile of the generated ones. Not measured."""
_LARGEST = 2**31 - 1
_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}
"""cudaDataType of what can be multiplied."""
_FLOAT32, _FLOAT32_PEDANTIC = 68, 69
"""cublasComputeType_t. Pedantic keeps TF32 and emulation out, whatever the process or its environment asks for."""
_NO_REDUCED_SUMS = 16
"""CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: partial sums of float16 stay float32."""
_WORKSPACE = 32 << 20
"""Bytes of scratch: NVIDIA's advice for sm_90 and sm_100, and more than enough for others. With scratch of its own a
product does not depend on what other streams do, so that equal operands give equal bits."""


@cache
def load_cublas() -> tuple[Library | None, str]:
    """The library or None, and a note that says which, or why there is none."""
    try:
        found = Library("cublas", ("nvidia-cublas", "nvidia-cublas-cu12"), "cublasGetStatusString", cuda.Error)
    except DeviceError as error:
        return None, f"no cuBLAS, all products are generated: {error}"
    numbers = [ctypes.c_int() for _ in range(2)]
    for which, number in enumerate(numbers):
        found.call("cublasGetProperty", which, ctypes.byref(number))
    major, minor = (number.value for number in numbers)
    if major > cuda.get_driver_version() // 1000:
        return None, f"all products are generated: cuBLAS {major}.{minor} needs a driver for CUDA {major}, update it"
    return found, f"large products by cuBLAS {major}.{minor}"


@dataclass(frozen=True, slots=True)
class _Matrices:
    """Matrices in memory, in elements: rows are ``leading`` apart, or columns where ``transposed``."""

    count: int
    rows: int
    columns: int
    apart: int
    leading: int
    transposed: bool


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """``dot_general`` as products of matrices, left [b, m, k] x right [b, k, n] -> [b, m, n]."""

    driver: Any
    left: _Matrices
    right: _Matrices
    dtype: str
    result: str

    def workspace(self) -> int:
        return _WORKSPACE

    def run(self, stream: Handle | None, buffers: Sequence[tuple[Handle, int]]) -> None:
        addresses = [ctypes.c_void_p(int(self.driver.get(handle)) + offset) for handle, offset in buffers]
        lane = ctypes.c_void_p(self.driver.get(stream).handle)
        self.driver.call("product by cuBLAS", self._submit, lane, *addresses, failing=LaunchError)
        self.driver.latest.append("cuBLAS")

    def _submit(self, lane: Any, x: Any, y: Any, out: Any, scratch: Any) -> None:
        """cuBLAS goes through matrices by columns, and sees each one transposed: so it multiplies right by left."""
        library, handle, left, right = self.driver.cublas, self.driver.cublas_handle, self.left, self.right
        library.call("cublasSetStream_v2", handle, lane)  # which forgets the workspace
        library.call("cublasSetWorkspace_v2", handle, scratch, ctypes.c_size_t(_WORKSPACE))
        kind, result = _TYPES[self.dtype], _TYPES[self.result]
        size = right.columns, left.rows, left.columns
        first = y, kind, right.leading, ctypes.c_longlong(right.apart)
        second = x, kind, left.leading, ctypes.c_longlong(left.apart)
        product = out, result, right.columns, ctypes.c_longlong(left.rows * right.columns)
        one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
        how = _FLOAT32_PEDANTIC if self.dtype == "float32" else _FLOAT32
        transposed = int(right.transposed), int(left.transposed)
        arguments = *transposed, *size, one, *first, *second, zero, *product, left.count, how, -1
        library.call("cublasGemmStridedBatchedEx", handle, *arguments)


class Operators(Memory):
    """The operators part of the driver (capability ``operators``, where there is cuBLAS)."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.cublas = load_cublas()[0]
        self.cublas_handle = ctypes.c_void_p()  # made for the first product

    def match(self, call: OperatorCall, target: Target) -> OperatorKernel | None:
        if self.cublas is None or call.name != "dot_general":
            return None
        (dtype, x), (_, y) = call.operands
        result = call.results[0][0].name
        if dtype.name not in _TYPES or result not in (dtype.name, "float32"):
            return None
        (x_batch, y_batch), (x_terms, y_terms) = call.attributes["batch"], call.attributes["contract"]
        left = _matrices(x, x_batch, _others(x, x_batch, x_terms), x_terms)
        right = _matrices(y, y_batch, y_terms, _others(y, y_batch, y_terms))
        if left is None or right is None or min(left.rows, left.columns, right.columns) < LEAST or not left.count:
            return None
        if max(left.count, left.rows, left.leading, right.leading, right.columns) > _LARGEST:
            return None
        if not self.cublas_handle:
            self.call("cuBLAS", self._start, self.cublas)
        return MatrixProduct(self, left, right, dtype.name, result)

    def _start(self, library: Library) -> None:
        library.call("cublasCreate_v2", ctypes.byref(self.cublas_handle))
        library.call("cublasSetMathMode", self.cublas_handle, _NO_REDUCED_SUMS)

    def drop_library(self) -> None:
        """Give back what cuBLAS holds."""
        if self.cublas is not None and self.cublas_handle:
            self.cublas.call("cublasDestroy_v2", self.cublas_handle)


def _others(shape: Sequence[int], *named: Sequence[int]) -> tuple[int, ...]:
    return tuple(axis for axis in range(len(shape)) if not any(axis in each for each in named))


def _matrices(shape: Sequence[int], *groups: Sequence[int]) -> _Matrices | None:
    """An array seen as matrices whose count, rows and columns are ``groups`` of its axes; None where it is none."""
    walks = [walk for axes in groups if (walk := _walk(shape, axes)) is not None]
    if len(walks) < len(groups):
        return None
    (count, apart), (rows, down), (columns, along) = walks
    if columns == 1 or along == 1:
        return _Matrices(count, rows, columns, apart, max(down, columns), False)
    if rows == 1 or down == 1:
        return _Matrices(count, rows, columns, apart, max(along, rows), True)
    return None


def _walk(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, int] | None:
    """(extent, stride) of axes taken as one, in elements; None where no one stride goes through them in order."""
    extent, stride = 1, 0
    for axis in (axis for axis in reversed(axes) if shape[axis] != 1):
        step = math.prod(shape[axis + 1 :])
        if extent > 1 and step != stride * extent:
            return None
        extent, stride = extent * shape[axis], stride if extent > 1 else step
    return extent, stride
