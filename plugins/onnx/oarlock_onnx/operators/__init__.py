"""The operators: importing this package fills the registry."""

from oarlock_onnx.operators import (
    activation,
    control,
    convolution,
    dynamic,
    elementwise,
    index,
    normalisation,
    pad,
    pool,
    product,
    quantise,
    recurrent,
    reduction,
    resize,
    sampling,
    sequence,
    shape,
    signal,
    training,
)

__all__ = [
    "activation", "control", "convolution", "dynamic", "elementwise", "index", "normalisation", "pad", "pool",
    "product", "quantise", "recurrent", "reduction", "resize", "sampling", "sequence", "shape", "signal", "training",
]  # fmt: skip
