"""The kernel ABI: what a kernel is called with, shared by the compiler that writes it and the drivers that run it.

A kernel takes its buffers in order, then ONE scalar block: little-endian, C layout, holding an element offset per
buffer, then sizes, then the user's scalars. Fields are int32, uint32, float32, and 64-bit types only where the Target
computes them.

C-ABI targets (C99, LLVM) compile each kernel to
``void name(void *const *buffers, const void *scalars, const uint32_t begin[3], const uint32_t end[3])``: it runs the
blocks of the half-open box ``begin..end``; whoever calls it walks the grid, in any order and from any threads.
OpenCL and CUDA spell the block out as parameters after the buffers, in order; languages with uniform structs use one.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from oarlock.dtypes import DType
from oarlock.errors import BoundsError, UnsupportedError
from oarlock.target import Target

__all__ = ["Access", "BufferArgument", "Executable", "KernelSignature", "ScalarField", "scalar_layout"]

Access = Literal["read", "write", "both"]

_FORMATS = {"int32": "i", "uint32": "I", "float32": "f", "int64": "q", "uint64": "Q", "float64": "d"}
_PACKERS = {name: struct.Struct("<" + letter) for name, letter in _FORMATS.items()}


@dataclass(frozen=True, slots=True)
class BufferArgument:
    """One buffer of a kernel: its element type, the physical type that holds it, and how it is used."""

    name: str
    dtype: DType
    storage: DType
    access: Access
    overlap: int = -1
    """Buffers with the same number >= 0 may overlap; -1: overlaps nothing that is written (``restrict``)."""


@dataclass(frozen=True, slots=True)
class ScalarField:
    """One field of the scalar block; ``offset`` in bytes."""

    name: str
    dtype: DType
    offset: int


@dataclass(frozen=True, slots=True)
class KernelSignature:
    """The entry point ``name``: buffers, scalar block, and the number of threads per block it was generated for."""

    name: str
    buffers: tuple[BufferArgument, ...]
    scalars: tuple[ScalarField, ...]
    scalar_bytes: int
    block: tuple[int, int, int] = (1, 1, 1)

    def pack(self, values: Mapping[str, int | float] | Sequence[int | float]) -> bytes:
        """The scalar block for ``values``, by name or in order; raises BoundsError for one that does not fit."""
        block = bytearray(self.scalar_bytes)
        for position, field in enumerate(self.scalars):
            value = values[field.name] if isinstance(values, Mapping) else values[position]
            try:
                _PACKERS[field.dtype.name].pack_into(block, field.offset, value)
            except (struct.error, OverflowError) as error:
                raise BoundsError(f"kernel {self.name}: scalar {field.name}={value} is no {field.dtype}") from error
        return bytes(block)

    def field(self, position: int, value: int | float) -> tuple[int, bytes]:
        """(offset in the scalar block, bytes) of scalar ``position`` holding ``value``."""
        field = self.scalars[position]
        try:
            return field.offset, _PACKERS[field.dtype.name].pack(value)
        except (struct.error, OverflowError) as error:
            raise BoundsError(f"kernel {self.name}: scalar {field.name}={value} is no {field.dtype}") from error

    def unpack(self, block: bytes) -> dict[str, int | float]:
        """The named values in a scalar block."""
        return {f.name: _PACKERS[f.dtype.name].unpack_from(block, f.offset)[0] for f in self.scalars}


@dataclass(frozen=True, slots=True)
class Executable:
    """Compiled kernels: the adapter's bytes for ``target``, a signature per entry, and the source they came from."""

    target: Target
    payload: bytes
    signatures: tuple[KernelSignature, ...]
    source: str = ""


def scalar_layout(fields: Sequence[tuple[str, DType]]) -> tuple[tuple[ScalarField, ...], int]:
    """Lay named fields out as a C struct: each at a multiple of its size; returns the fields and the size in bytes."""
    placed: list[ScalarField] = []
    offset = 0
    for name, dtype in fields:
        if dtype.name not in _FORMATS:
            raise UnsupportedError(f"scalar {name}: {dtype} cannot travel in a scalar block; use {', '.join(_FORMATS)}")
        offset += -offset % dtype.itemsize
        placed.append(ScalarField(name, dtype, offset))
        offset += dtype.itemsize
    widest = max((field.dtype.itemsize for field in placed), default=4)
    return tuple(placed), offset + -offset % widest
