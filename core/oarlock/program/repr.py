"""How a tensor is shown to a person."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from oarlock.program.host import host_array

if TYPE_CHECKING:
    from oarlock.program.tensor import Tensor

__all__ = ["tensor_repr"]

LINE = 100
"""Characters up to which the values are shown on one line."""
SHOWN_WHOLE = 1000
"""Elements up to which all of them are shown."""


def tensor_repr(x: Tensor) -> str:
    """``tensor([[1., 2.], [3., 4.]], dtype=float32, device=cpu:0)``; the middle of a big tensor is left out."""
    dtype = x._kind.dtype
    array = host_array(x)
    if dtype.name == "bfloat16":
        array = array.astype(np.float32)
    tail = f"dtype={dtype.name}, device={x._place.name})"
    if array.size == 0:
        return f"tensor([], shape={array.shape}, {tail}"
    text = np.array2string(array, separator=", ", prefix="tensor(", threshold=SHOWN_WHOLE)
    line = re.sub(r"\[ +", "[", " ".join(text.split()))
    return f"tensor({line if len(line) + len(tail) < LINE else text}, {tail}"
