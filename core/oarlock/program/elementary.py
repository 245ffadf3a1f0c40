"""Element-wise elementary functions: roots, exponentials, logarithms, trigonometric and hyperbolic ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock.program.dtype_functions import as_float
from oarlock.program.elementwise import Operand, tensors
from oarlock.program.tape import apply

if TYPE_CHECKING:
    from oarlock.program.tensor import Tensor

__all__ = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "erf", "exp", "exp2", "expm1", "hypot",
    "log", "log10", "log1p", "log2", "logaddexp", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh",
]  # fmt: skip


def _elementary(name: str, x: Operand) -> Tensor:
    """A primitive on floats: integers and bools become the default float."""
    (value,) = tensors(name, x)
    return apply(name, as_float(value))


def acos(x: Operand, /) -> Tensor:
    """The arc cosine, in radians in [0, pi]; NaN outside [-1, 1]."""
    return _elementary("acos", x)


def acosh(x: Operand, /) -> Tensor:
    """The inverse hyperbolic cosine; NaN below 1."""
    return _elementary("acosh", x)


def asin(x: Operand, /) -> Tensor:
    """The arc sine, in radians in [-pi/2, pi/2]; NaN outside [-1, 1]."""
    return _elementary("asin", x)


def asinh(x: Operand, /) -> Tensor:
    """The inverse hyperbolic sine."""
    return _elementary("asinh", x)


def atan(x: Operand, /) -> Tensor:
    """The arc tangent, in radians in [-pi/2, pi/2]."""
    return _elementary("atan", x)


def atanh(x: Operand, /) -> Tensor:
    """The inverse hyperbolic tangent; NaN outside [-1, 1]."""
    return _elementary("atanh", x)


def cos(x: Operand, /) -> Tensor:
    """The cosine of x radians."""
    return _elementary("cos", x)


def cosh(x: Operand, /) -> Tensor:
    """The hyperbolic cosine."""
    return _elementary("cosh", x)


def erf(x: Operand, /) -> Tensor:
    """The error function: 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x."""
    return _elementary("erf", x)


def exp(x: Operand, /) -> Tensor:
    """e to the power of x."""
    return _elementary("exp", x)


def exp2(x: Operand, /) -> Tensor:
    """2 to the power of x."""
    return _elementary("exp2", x)


def expm1(x: Operand, /) -> Tensor:
    """exp(x) - 1, accurate for small x."""
    return _elementary("expm1", x)


def log(x: Operand, /) -> Tensor:
    """The natural logarithm; -inf at 0, NaN below."""
    return _elementary("log", x)


def log10(x: Operand, /) -> Tensor:
    """The logarithm to base 10; -inf at 0, NaN below."""
    return _elementary("log10", x)


def log1p(x: Operand, /) -> Tensor:
    """log(1 + x), accurate for small x; -inf at -1, NaN below."""
    return _elementary("log1p", x)


def log2(x: Operand, /) -> Tensor:
    """The logarithm to base 2; -inf at 0, NaN below."""
    return _elementary("log2", x)


def sin(x: Operand, /) -> Tensor:
    """The sine of x radians."""
    return _elementary("sin", x)


def sinh(x: Operand, /) -> Tensor:
    """The hyperbolic sine."""
    return _elementary("sinh", x)


def sqrt(x: Operand, /) -> Tensor:
    """The square root; NaN below 0."""
    return _elementary("sqrt", x)


def tan(x: Operand, /) -> Tensor:
    """The tangent of x radians."""
    return _elementary("tan", x)


def tanh(x: Operand, /) -> Tensor:
    """The hyperbolic tangent."""
    return _elementary("tanh", x)


def rsqrt(x: Operand, /) -> Tensor:
    """1 / sqrt(x)."""
    return _elementary("rsqrt", x)


def _pair(name: str, x1: Operand, x2: Operand) -> Tensor:
    """An operator on two floats: integers and bools become the default float."""
    x, y = tensors(name, x1, x2)
    return apply(name, as_float(x), as_float(y))


def atan2(x1: Operand, x2: Operand, /) -> Tensor:
    """The angle of the point (x2, x1), in radians in [-pi, pi]."""
    return _pair("atan2", x1, x2)


def hypot(x1: Operand, x2: Operand, /) -> Tensor:
    """sqrt(x1 * x1 + x2 * x2) without overflow or underflow on the way; inf where either is infinite."""
    return _pair("hypot", x1, x2)


def logaddexp(x1: Operand, x2: Operand, /) -> Tensor:
    """log(exp(x1) + exp(x2)) without overflow on the way."""
    return _pair("logaddexp", x1, x2)
