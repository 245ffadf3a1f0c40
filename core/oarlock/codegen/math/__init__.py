"""Elementary functions generated from arithmetic, with stated bounds.

Each is an expression of operations that every target has, so that loops over it vectorise: float32 functions use 32-bit
arithmetic only, and all but fmod, which loops, choose by ``select`` (sin, cos and tan also by an ``if`` without side
effects, for large arguments). Polynomials multiply and add with one rounding where the target has that: results are the
same bits on all targets that have it, and on all that have not. Subnormals, signed zeros, infinities and NaN are as
C99, annex F, asks. A family is a file with a table ``FUNCTIONS`` of what it generates and a table ``BOUNDS`` of the
largest errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.kernel.builder import dtype_of, lanes_of
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
    """The value of function ``name`` on float32 or float64 operands (scalars or vectors; scalars stand for all lanes).

    Raises UnsupportedError for an unknown name, DTypeError for operands of another dtype or of different types.
    """
    function = FUNCTIONS.get(name)
    if function is None:
        raise UnsupportedError(f"function {name} is not generated; there are {', '.join(sorted(FUNCTIONS))}")
    lanes = max(map(lanes_of, operands))
    operands = tuple(b.splat(x, lanes) if lanes_of(x) == 1 else x for x in operands)
    kinds = {operand.type for operand in operands}
    if len(kinds) != 1 or dtype_of(operands[0]) not in FORMATS:
        given = ", ".join(str(operand.type) for operand in operands)
        raise DTypeError(f"function {name} takes float32 or float64, all of one type, not ({given}); convert first")
    return function(*(Number(b, operand) for operand in operands)).value
