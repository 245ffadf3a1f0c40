"""Types of values: tensors of a dtype and shape, run-time scalars, kernel buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from oarlock.dtypes import DType
from oarlock.ir.sizes import Size

__all__ = ["BufferType", "Dim", "ScalarType", "TensorType", "Type"]

Dim: TypeAlias = "int | Size"


@dataclass(frozen=True, slots=True)
class Type:
    """The base of all types. Types are values: equal ones are interchangeable."""


def _dim(dim: Dim) -> str:
    """A dimension as types print it: a symbolic one stands in parentheses, so that its name may hold an x."""
    text = str(dim)
    return text if isinstance(dim, int) or text.startswith("(") else f"({text})"


@dataclass(frozen=True, slots=True)
class TensorType(Type):
    """A tensor; a dimension is an int, or a Size (symbolic)."""

    dtype: DType
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every dimension is an int."""
        return all(isinstance(dim, int) for dim in self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as ints; raises TypeError when a dimension is symbolic."""
        if not self.is_static:
            raise TypeError(f"{self} has symbolic dimensions")
        return self.shape  # type: ignore[return-value]

    def __str__(self) -> str:
        dims = "".join(f"{_dim(dim)}x" for dim in self.shape)
        return f"tensor<{dims}{self.dtype}>"


@dataclass(frozen=True, slots=True)
class ScalarType(Type):
    """A single value of a dtype: a run-time scalar of a program, or a value inside a kernel.

    Inside kernels ``lanes`` > 1 makes it a vector of that many values.
    """

    dtype: DType
    lanes: int = 1

    def __str__(self) -> str:
        return f"scalar<{self.dtype}>" if self.lanes == 1 else f"scalar<{self.dtype}, {self.lanes}>"


@dataclass(frozen=True, slots=True)
class BufferType(Type):
    """Memory that a kernel loads from and stores to, indexed by element.

    ``space``: ``global`` (an argument), ``local`` (shared by the threads of a block), ``private`` (one thread's).
    """

    dtype: DType
    space: Literal["global", "local", "private"] = "global"
    access: Literal["read", "write", "both"] = "both"

    def __str__(self) -> str:
        return f"buffer<{self.dtype}, {self.space}, {self.access}>"
