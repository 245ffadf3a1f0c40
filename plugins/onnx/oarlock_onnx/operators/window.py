"""The geometry of sliding windows: kernel, strides, dilations and padding as ONNX spells them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from oarlock.errors import ModelError
from oarlock_onnx.limits import MAX_WINDOW
from oarlock_onnx.node import Node

__all__ = ["Window", "window_of"]


@dataclass(frozen=True, slots=True)
class Window:
    """Windows over the spatial dimensions ``dims``; ``low``/``high`` pad, ``out`` counts windows.

    ``extra`` is how far the last window reaches past the padding (with ``ceil_mode``).
    """

    dims: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    out: tuple[int, ...]
    extra: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.dims)


def window_of(node: Node, dims: Sequence[int], kernel: Sequence[int]) -> Window:
    """The windows that a node's attributes describe; raises ModelError where they do not fit ``dims``."""
    rank = len(dims)
    strides = node.integers("strides", (1,) * rank)
    dilations = node.integers("dilations", (1,) * rank)
    pads = node.integers("pads", (0,) * 2 * rank)
    if rank == 0 or not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise ModelError(f"kernel {list(kernel)}, strides {list(strides)}, pads {list(pads)} do not fit {list(dims)}")
    if min(*kernel, *strides, *dilations) < 1 or max(*kernel, *strides, *dilations) >= 2**31:
        raise ModelError(
            f"kernel {list(kernel)}, strides {list(strides)}, dilations {list(dilations)}: all must be > 0"
        )
    if math.prod(kernel) > MAX_WINDOW:
        raise ModelError(f"a kernel of {list(kernel)} is larger than {MAX_WINDOW} elements")
    if max(map(abs, pads)) >= 2**31:
        raise ModelError(f"pads {list(pads)} are not possible")
    auto, ceil = node.string("auto_pad", "NOTSET"), node.flag("ceil_mode")
    axes = [
        _axis(dims[axis], kernel[axis], strides[axis], dilations[axis], pads[axis], pads[axis + rank], auto, ceil)
        for axis in range(rank)
    ]
    low, high, out, extra = (tuple(part[place] for part in axes) for place in range(4))
    return Window(tuple(dims), tuple(kernel), strides, dilations, low, high, out, extra)


def _axis(
    dim: int, kernel: int, stride: int, dilation: int, low: int, high: int, auto: str, ceil: bool
) -> tuple[int, int, int, int]:
    span = dilation * (kernel - 1) + 1
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        out = -(-dim // stride)
        total = max((out - 1) * stride + span - dim, 0)
        small = total // 2
        return (small, total - small, out, 0) if auto == "SAME_UPPER" else (total - small, small, out, 0)
    if auto == "VALID":
        low = high = 0
    elif auto != "NOTSET":
        raise ModelError(f"auto_pad {auto!r} is not known")
    room = dim + low + high - span
    if room < 0:
        raise ModelError(f"a window of {span} elements does not fit {dim} with padding {low} and {high}")
    out = room // stride + 1
    if ceil and room % stride and out * stride < dim + low:
        out += 1
    return low, high, out, max(0, (out - 1) * stride + span - (dim + low + high))
