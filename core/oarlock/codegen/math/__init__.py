"""Elementary functions generated from arithmetic, with stated bounds."""

from __future__ import annotations

from oarlock.codegen.kernel import KernelBuilder
from oarlock.errors import UnsupportedError
from oarlock.ir import Value

__all__ = ["emit"]


def emit(b: KernelBuilder, name: str, *operands: Value) -> Value:
    """The value of function ``name`` on float32 or float64 operands."""
    raise UnsupportedError(f"function {name} is not generated yet")
