"""How large what a model file asks for may be: models are untrusted."""

from __future__ import annotations

import math
from collections.abc import Sequence

from oarlock.dtypes import DType
from oarlock.errors import ModelError

__all__ = [
    "MAX_ELEMENTS", "MAX_FILE_BYTES", "MAX_FOLDED_BYTES", "MAX_GRAPH_DEPTH", "MAX_HOST_ELEMENTS", "MAX_OPERATORS",
    "MAX_RANK", "MAX_TRIPS", "MAX_WINDOW", "check_host", "check_size", "one_line",
]  # fmt: skip

MAX_ELEMENTS = 2**31 - 1
"""Elements of one tensor: indices in kernels are 32 bits wide."""
MAX_FILE_BYTES = 2**31 - 1
"""Bytes of a model file: what protobuf can hold."""
MAX_FOLDED_BYTES = 2**30
"""Bytes of constants computed while importing one program; past that, operators are left to the device."""
MAX_GRAPH_DEPTH = 32
"""Graphs in attributes of graphs, and functions in functions."""
MAX_HOST_ELEMENTS = 2**24
"""Elements of one table (of indices, weights, factors) that is computed on the host."""
MAX_OPERATORS = 200_000
"""Operators of one program, after loops are unrolled and functions inlined."""
MAX_RANK = 32
"""Dimensions of one tensor."""
MAX_TRIPS = 2_000
"""Trips of a loop that is unrolled."""
MAX_WINDOW = 2**24
"""Elements of one window of a pooling or convolution."""
_MAX_MESSAGE = 600


def check_size(what: str, shape: Sequence[int], dtype: DType) -> int:
    """The number of elements of ``shape``; raises ModelError before any memory is taken where that is absurd."""
    if len(shape) > MAX_RANK:
        raise ModelError(f"{what} has {len(shape)} dimensions; at most {MAX_RANK} are supported")
    if any(dim < 0 for dim in shape):
        raise ModelError(f"{what} has a negative dimension: {list(shape)}")
    count = math.prod(shape)
    if count > MAX_ELEMENTS or any(dim > MAX_ELEMENTS for dim in shape):
        raise ModelError(f"{what}: {dtype} {list(shape)} has {count} elements; at most {MAX_ELEMENTS} are supported")
    return count


def check_host(what: str, *sizes: int) -> None:
    """Raise ModelError when a table of these sizes is too large to compute on the host."""
    count = math.prod(sizes)
    if count > MAX_HOST_ELEMENTS:
        raise ModelError(f"{what} takes a table of {count} elements; at most {MAX_HOST_ELEMENTS} are supported")


def one_line(error: object) -> str:
    """The text of an error on one line of bounded length, whatever names a model has."""
    text = " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 4] + " ..."
