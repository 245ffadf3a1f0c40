"""Functions of neural networks that array libraries have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from oarlock.errors import ConfigError
from oarlock.program.dtype_functions import as_float
from oarlock.program.elementwise import Operand, tensors
from oarlock.program.manipulation import one_axis
from oarlock.program.tape import apply

if TYPE_CHECKING:
    from oarlock.program.tensor import Tensor

__all__ = ["gelu", "layer_norm", "log_softmax", "relu", "sigmoid", "silu", "softmax", "softplus"]


def _float(name: str, x: Operand) -> Tensor:
    return as_float(tensors(name, x)[0])


def relu(x: Operand, /) -> Tensor:
    """x where it is positive, else 0; NaN stays NaN."""
    return apply("relu", tensors("relu", x)[0])


def sigmoid(x: Operand, /) -> Tensor:
    """1 / (1 + exp(-x))."""
    return apply("sigmoid", _float("sigmoid", x))


def silu(x: Operand, /) -> Tensor:
    """x * sigmoid(x)."""
    return apply("silu", _float("silu", x))


def softplus(x: Operand, /) -> Tensor:
    """log(1 + exp(x))."""
    return apply("softplus", _float("softplus", x))


def gelu(x: Operand, /, *, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """x times the chance that a normal variable is below x; ``"tanh"``: by the usual approximation.

    After Hendrycks and Gimpel, "Gaussian Error Linear Units".
    """
    if approximate not in ("none", "tanh"):
        raise ConfigError(f"gelu: approximate is {approximate!r}; use 'none' or 'tanh'")
    return apply("gelu", _float("gelu", x), approximate=approximate == "tanh")


def softmax(x: Tensor, /, *, axis: int = -1) -> Tensor:
    """exp(x) divided by its sum along ``axis``, without overflow on the way."""
    value = _float("softmax", x)
    return apply("softmax", value, axis=one_axis("softmax", axis, value))


def log_softmax(x: Tensor, /, *, axis: int = -1) -> Tensor:
    """log(softmax(x)) along ``axis``, without overflow or underflow on the way."""
    value = _float("log_softmax", x)
    return apply("log_softmax", value, axis=one_axis("log_softmax", axis, value))


def layer_norm(
    x: Tensor, /, weight: Operand = 1.0, bias: Operand = 0.0, *, axis: int = -1, epsilon: float = 1e-5
) -> Tensor:
    """x less its mean, divided by sqrt(variance + epsilon), over the axes from ``axis`` on; times ``weight``, plus
    ``bias``, which broadcast to those axes."""
    value, scale, shift = (as_float(operand) for operand in tensors("layer_norm", x, weight, bias))
    return apply("layer_norm", value, scale, shift, axis=one_axis("layer_norm", axis, value), epsilon=float(epsilon))
