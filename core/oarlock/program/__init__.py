"""Arrays: tensors, recording, and the functions of the array API standard."""

from oarlock.program.tensor import Tensor

__all__ = ["Tensor"]
