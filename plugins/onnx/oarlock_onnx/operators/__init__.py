"""The operators: importing this package fills the registry."""

from oarlock_onnx.operators import (
    activation,
    control,
    convolution,
    elementwise,
    index,
    normalisation,
    pad,
    pool,
    product,
    recurrent,
    reduction,
    resize,
    shape,
)

__all__ = [
    "activation", "control", "convolution", "elementwise", "index", "normalisation", "pad", "pool", "product",
    "recurrent", "reduction", "resize", "shape",
]  # fmt: skip
