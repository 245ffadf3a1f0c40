"""Elementary functions generated from arithmetic, with stated bounds.

Each is an expression of operations that every target has, so that loops over it vectorise: float32 functions use 32-bit
arithmetic only, none relies on fused operations, and all but fmod, which loops, choose by ``select`` (sin, cos and tan
also by an ``if`` without side effects, for large arguments). Results are the same bits on every target with IEEE
addition, multiplication, division and square root. Subnormals, signed zeros, infinities and NaN are handled as C99,
annex F, asks. A family is a file with a table ``FUNCTIONS`` of what it generates and a table ``BOUNDS`` of the largest
errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.kernel.builder import dtype_of
from oarlock.codegen.math import (
    error_function,
    exponential,
    hyperbolic,
    inverse_hyperbolic,
    inverse_trigonometry,
    logarithm,
    power,
    remainder,
    trigonometry,
)
from oarlock.codegen.math.number import FORMATS, Number
from oarlock.errors import DTypeError, UnsupportedError
from oarlock.ir import Value

__all__ = ["BOUNDS", "FUNCTIONS", "emit"]

_FAMILIES = (
    exponential, logarithm, trigonometry, inverse_trigonometry, hyperbolic, inverse_hyperbolic, power, error_function,
    remainder,
)  # fmt: skip

FUNCTIONS: Mapping[str, Callable[..., Number]] = {n: f for family in _FAMILIES for n, f in family.FUNCTIONS.items()}
"""What can be generated, by name."""
BOUNDS: Mapping[str, float] = {name: bound for family in _FAMILIES for name, bound in family.BOUNDS.items()}
"""The largest error of each function, in ulp of the exact result, for float32 and float64."""


def emit(b: KernelBuilder, name: str, *operands: Value) -> Value:
    """The value of function ``name`` on float32 or float64 operands (scalars or vectors, all of one type).

    Raises UnsupportedError for an unknown name, DTypeError for operands of another dtype or of different types.
    """
    function = FUNCTIONS.get(name)
    if function is None:
        raise UnsupportedError(f"function {name} is not generated; there are {', '.join(sorted(FUNCTIONS))}")
    kinds = {operand.type for operand in operands}
    if len(kinds) != 1 or dtype_of(operands[0]) not in FORMATS:
        given = ", ".join(str(operand.type) for operand in operands)
        raise DTypeError(f"function {name} takes float32 or float64, all of one type, not ({given}); convert first")
    return function(*(Number(b, operand) for operand in operands)).value
