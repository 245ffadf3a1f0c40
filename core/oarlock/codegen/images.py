"""Convolutions with the channels last: products of the windows of an image, read where they are, and packed weights.

A row of the product is what one pixel of the result meets: for each row of the kernel one stretch of the padded image,
since neighbouring pixels and their channels lie side by side. So nothing is copied but the image with its padding, and
the weights once, into panels of as many outputs as a tile has columns.
"""

from __future__ import annotations

import math

import numpy as np

from oarlock.codegen.free import is_free, memory_of
from oarlock.codegen.lower.anchors import accumulator, pairs
from oarlock.codegen.lower.tiling import vector_lanes
from oarlock.codegen.packing import VECTORS, Side, packed_rows
from oarlock.codegen.schedule import put_schedule, schedule_of
from oarlock.codegen.values import ints, shape_of
from oarlock.ir import Attribute, Operation, Value
from oarlock.ops import ArrayBuilder, tensor
from oarlock.target import Target

__all__ = ["window_product"]


def window_product(op: Operation, b: ArrayBuilder, target: Target) -> Value | None:
    """A convolution of all channels, which are last, as a ``schedule.window_product``; None where it is computed
    element by element."""
    x, w = op.operands
    outputs, inputs, *kernel = shape_of(w)
    dtype = accumulator("sum", tensor(op.result).dtype)
    lanes = vector_lanes(target, dtype)
    if op.attributes["groups"] != 1 or target.has_threads or lanes < 2 or 0 in shape_of(op.result) or inputs == 0:
        return None
    padding, dilation = pairs(op, "padding"), ints(op, "dilation")
    if any(sum(p) for p in padding):
        low, high = ((0, *(p[side] for p in padding), 0) for side in (0, 1))
        zero = b.constant(np.asarray(0), tensor(x).dtype)
        x = b("pad", x, zero, low=low, high=high, interior=tuple(0 for _ in low))
    x = b.convert(x, dtype)
    behind = memory_of(x).defining_op
    if behind is not None and is_free(behind):
        x = b.create("schedule.copy", (x,)).result
    schedule = schedule_of(op)
    vectors = min(schedule.vectors or VECTORS, -(-outputs // lanes))
    order = (0, *range(2, 2 + len(kernel)), 1)
    steps = (*kernel, inputs) if dilation[-1] > 1 else (*kernel[:-1], kernel[-1] * inputs)
    weights = b("reshape", b("transpose", w, permutation=order), shape=(outputs, math.prod(steps)))
    panels = Side(weights, (), (1,)).panels(b, vectors * lanes, dtype)
    count, _, width = shape_of(panels)
    attributes: dict[str, Attribute] = {
        "strides": ints(op, "strides"),
        "dilation": dilation,
        "tile": schedule.rows or packed_rows(target),
    }
    panels = b("reshape", panels, shape=(count, *steps, width))
    product = b.create("schedule.window_product", (x, panels), attributes, [op.result.type])
    put_schedule(product, schedule)
    return product.result
