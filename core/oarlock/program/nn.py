"""Functions of neural networks that array libraries have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from oarlock.errors import ShapeError
from oarlock.program.dtype_functions import as_float
from oarlock.program.elementary import erf, exp, log, rsqrt, tanh
from oarlock.program.elementwise import Operand, add, divide, maximum, multiply, negative, subtract, tensors
from oarlock.program.reduction import Axis, max, mean, sum

if TYPE_CHECKING:
    from oarlock.program.tensor import Tensor

__all__ = ["gelu", "layer_norm", "log_softmax", "relu", "sigmoid", "silu", "softmax"]


def _float(name: str, x: Operand) -> Tensor:
    return as_float(tensors(name, x)[0])


def relu(x: Operand, /) -> Tensor:
    """x where it is positive, else 0; NaN stays NaN."""
    return maximum(x, 0)


def sigmoid(x: Operand, /) -> Tensor:
    """1 / (1 + exp(-x))."""
    return divide(1, add(1, exp(negative(_float("sigmoid", x)))))


def silu(x: Operand, /) -> Tensor:
    """x * sigmoid(x)."""
    value = _float("silu", x)
    return multiply(value, sigmoid(value))


def gelu(x: Operand, /, *, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """x times the chance that a normal variable is below x; ``"tanh"``: by the usual approximation.

    After Hendrycks and Gimpel, "Gaussian Error Linear Units".
    """
    if approximate not in ("none", "tanh"):
        raise ShapeError(f"gelu: approximate is {approximate!r}; use 'none' or 'tanh'")
    value = _float("gelu", x)
    if approximate == "none":
        return multiply(multiply(0.5, value), add(1, erf(multiply(value, math.sqrt(0.5)))))
    cubic = multiply(0.044715, multiply(value, multiply(value, value)))
    return multiply(multiply(0.5, value), add(1, tanh(multiply(math.sqrt(2 / math.pi), add(value, cubic)))))


def softmax(x: Tensor, /, *, axis: Axis = -1) -> Tensor:
    """exp(x) divided by its sum along ``axis``, without overflow on the way."""
    value = _float("softmax", x)
    raised = exp(subtract(value, max(value, axis=axis, keepdims=True)))
    return divide(raised, sum(raised, axis=axis, keepdims=True))


def log_softmax(x: Tensor, /, *, axis: Axis = -1) -> Tensor:
    """log(softmax(x)) along ``axis``, without overflow or underflow on the way."""
    value = _float("log_softmax", x)
    centred = subtract(value, max(value, axis=axis, keepdims=True))
    return subtract(centred, log(sum(exp(centred), axis=axis, keepdims=True)))


def layer_norm(
    x: Tensor,
    /,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    axis: int | Sequence[int] = -1,
    epsilon: float = 1e-5,
) -> Tensor:
    """x less its mean, divided by sqrt(variance + epsilon) over ``axis``, times ``weight``, plus ``bias``."""
    value = _float("layer_norm", x)
    centred = subtract(value, mean(value, axis=axis, keepdims=True))
    result = multiply(centred, rsqrt(add(mean(multiply(centred, centred), axis=axis, keepdims=True), epsilon)))
    result = result if weight is None else multiply(result, weight)
    return result if bias is None else add(result, bias)
