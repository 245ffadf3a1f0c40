"""How large what a model file asks for may be: models are untrusted."""

from __future__ import annotations

import math
from collections.abc import Sequence

from oarlock.dtypes import DType
from oarlock.errors import ModelError

__all__ = ["MAX_ELEMENTS", "MAX_FILE_BYTES", "MAX_GRAPH_DEPTH", "MAX_OPERATIONS", "MAX_RANK", "check_size"]

MAX_ELEMENTS = 2**31 - 1
"""Elements of one tensor: indices in kernels are 32 bits wide."""
MAX_FILE_BYTES = 2**31 - 1
"""Bytes of a model file, and of one tensor's external data: what protobuf can hold."""
MAX_GRAPH_DEPTH = 32
"""Graphs in attributes of graphs, and functions in functions."""
MAX_OPERATIONS = 1_000_000
"""Operations of one program, after loops are unrolled and functions inlined."""
MAX_RANK = 32
"""Dimensions of one tensor."""


def check_size(what: str, shape: Sequence[int], dtype: DType) -> int:
    """The number of elements of ``shape``; raises ModelError before any memory is taken where that is absurd."""
    if len(shape) > MAX_RANK:
        raise ModelError(f"{what} has {len(shape)} dimensions; at most {MAX_RANK} are supported")
    if any(dim < 0 for dim in shape):
        raise ModelError(f"{what} has a negative dimension: {list(shape)}")
    count = math.prod(shape)
    if count > MAX_ELEMENTS:
        raise ModelError(f"{what}: {dtype} {list(shape)} has {count} elements; at most {MAX_ELEMENTS} are supported")
    return count
