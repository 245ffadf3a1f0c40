"""Packing: large matrix products read operands that were copied into the order in which tiles read them.

A row panel holds a few rows of the left operand, one step of the reduction after the other; a column panel as many
vectors of columns of the right one as a tile has. A tile then reads both from end to end, whatever the strides were.
The copies convert to the dtype of the sums, and pad the last panel with zeros.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from oarlock.codegen.lower.anchors import accumulator, pairs
from oarlock.codegen.lower.tiling import LEAST_COLUMNS, contiguous_along, vector_lanes
from oarlock.codegen.schedule import put_schedule, schedule_of
from oarlock.codegen.values import ints, shape_of
from oarlock.dtypes import DType
from oarlock.ir import Attribute, Operation, Value, traits
from oarlock.ops import ArrayBuilder, tensor
from oarlock.target import Target

__all__ = ["VECTORS", "Side", "pack", "pack_convolution", "packed_rows"]

VECTORS = 2
"""Vectors of a row of a tile."""
LEAST = 32
"""Rows, columns and steps from which on the copies are repaid."""
LEAST_PIXELS = 16
"""Inputs and pixels from which on those of a convolution are: its weights are mostly fixed and copied once."""
LEAST_OUTPUTS, LEAST_MORE = (32, 64, 192), 128
"""Outputs from which on the copy of a convolution's image is repaid: where a row of the result is less than one vector,
less than two, more (tiles of the image as it is then waste less); and how many more where the kernel has several
elements, with which the image is copied as often."""
STRETCH = 16
"""Neighbours in memory from which on rows are read where they are, although they lie in several stretches."""
FOLLOWED = 8
"""Element-wise operators that are followed behind an operand."""
MOST_TAPS = 16
"""Elements of a kernel up to which what each meets is copied side by side."""


def pack(op: Operation, b: ArrayBuilder, target: Target) -> Value | None:
    """A ``dot_general`` as a product of packed operands; None where packing does not pay."""
    x, y = op.operands
    batch, contract = pairs(op, "batch"), pairs(op, "contract")
    sides = [Side(v, batch[i], contract[i]) for i, v in enumerate((x, y))]
    form = schedule_of(op).form
    if form not in ("", "packed") or (not form and min(sides[0].free, sides[1].free, sides[0].steps) < LEAST):
        return None
    return _product(op, b, target, sides)


def pack_convolution(op: Operation, b: ArrayBuilder, target: Target) -> Value | None:
    """A convolution as a product of packed operands, where that repays the copy of its image; else None."""
    x, w = op.operands
    outputs, inputs, *kernel = shape_of(w)
    taps, pixels = math.prod(kernel), math.prod(shape_of(op.result)[2:])
    padded = any(sum(p) for p in pairs(op, "padding"))
    form = schedule_of(op).form
    if op.attributes["groups"] != 1 or target.has_threads or form not in ("", "packed"):
        return None
    if not form and (min(outputs, inputs, pixels) < LEAST_PIXELS or taps > MOST_TAPS):
        return None
    if not form and outputs < _least_outputs(op, target, taps != 1 or padded):
        return None
    if padded:
        zero = b.constant(np.asarray(0), tensor(x).dtype)
        low, high = ((0, 0, *(p[side] for p in pairs(op, "padding"))) for side in (0, 1))
        x = b("pad", x, zero, low=low, high=high, interior=tuple(0 for _ in low))
    patches = [_tap(op, b, x, at) for at in itertools.product(*(range(size) for size in kernel))]
    image = b("concat", *patches, axis=2) if taps > 1 else patches[0]
    sides = [Side(b("reshape", w, shape=(outputs, inputs, taps)), (), (1, 2)), Side(image, (0,), (1, 2))]
    return _product(op, b, target, sides)


def _least_outputs(op: Operation, target: Target, copied: bool) -> int:
    columns = shape_of(op.result)[-1]
    if columns < LEAST_COLUMNS:
        return 0
    lanes = vector_lanes(target, accumulator("sum", tensor(op.result).dtype))
    least = LEAST_OUTPUTS[0 if columns < lanes else 1 if columns < 2 * lanes else 2]
    return least + LEAST_MORE * copied


def _tap(op: Operation, b: ArrayBuilder, x: Value, at: Sequence[int]) -> Value:
    """What one element of the kernel is multiplied with: (images, inputs, 1, spatial result...)."""
    strides, dilation = ints(op, "strides"), ints(op, "dilation")
    shape, image = shape_of(x), shape_of(op.result)[2:]
    starts = [tap * step for tap, step in zip(at, dilation, strict=True)]
    limits = [start + (n - 1) * stride + 1 for start, n, stride in zip(starts, image, strides, strict=True)]
    x = b("slice", x, starts=(0, 0, *starts), limits=(*shape[:2], *limits), steps=(1, 1, *strides))
    return b("reshape", x, shape=(*shape[:2], 1, *image))


def packed_rows(target: Target) -> int:
    """Rows of a tile: with two vectors each, their sums fit 32 or 16 registers."""
    return 12 if target.limits.vector_width >= 16 else 6


def _product(op: Operation, b: ArrayBuilder, target: Target, sides: Sequence[Side]) -> Value | None:
    dtype = accumulator("sum", tensor(op.result).dtype)
    lanes = target.limits.vector_width * 32 // max(32, dtype.bits)
    if target.has_threads or lanes < 4 or dtype.kind == "bool":
        return None
    left, right = sides
    schedule = schedule_of(op)
    rows, columns = schedule.rows or packed_rows(target), (schedule.vectors or VECTORS) * lanes
    if not left.lies_in_rows(dtype):
        left = left.behind_reshape()
    in_place = left.lies_in_rows(dtype)
    steps = left.lengths if in_place else (left.steps,)
    attributes: dict[str, Attribute] = {
        "batch": len(right.batch),
        "rows": len(left.free_dims),
        "steps": len(steps),
        "tile": rows,
        "in_place": in_place,
    }
    first = left.rows(b, steps) if in_place else left.panels(b, rows, dtype)
    second = right.panels(b, columns, dtype)
    *outer, _, width = shape_of(second)
    if len(steps) > 1:
        second = b("reshape", second, shape=(*outer, *steps, width))
    product = b.create("schedule.packed_product", (first, second), attributes, [op.result.type])
    put_schedule(product, schedule)
    return product.result


class Side:
    """One operand: its batch, free and contracted dimensions."""

    def __init__(self, value: Value, batch: Sequence[int], contract: Sequence[int]) -> None:
        self.value, self.batch, self.contract = value, tuple(batch), tuple(contract)
        shape = shape_of(value)
        self.free_dims = tuple(d for d in range(len(shape)) if d not in (*batch, *contract))
        self.free = math.prod(shape[d] for d in self.free_dims)
        self.lengths = tuple(shape[d] for d in contract)
        self.steps = math.prod(self.lengths)
        self.outer = tuple(shape[d] for d in batch)

    def lies_in_rows(self, dtype: DType) -> bool:
        """Whether the steps of each row are neighbours in memory, in ``dtype``, or long stretches of them: a tile reads
        few rows at a time, each from end to end, and needs no copy."""
        same = bool(self.contract) and tensor(self.value).dtype == dtype
        long = len(self.contract) == 1 or self.lengths[-1] >= STRETCH
        return same and long and contiguous_along(self.value, self.contract[-1])

    def behind_reshape(self) -> Side:
        """The same operand with the two dimensions contracted that a reshape joins to the one; itself where none does.

        The heads of an attention are such: its results lie head by head, and are contracted row by row.
        """
        joined, last = self.value.defining_op, len(shape_of(self.value)) - 1
        if joined is None or joined.name != "array.reshape" or self.contract != (last,):
            return self
        (x,) = joined.operands
        if shape_of(x)[:-2] != shape_of(self.value)[:-1] or len(shape_of(x)) != last + 2:
            return self
        return Side(x, self.batch, (last, last + 1))

    def rows(self, b: ArrayBuilder, steps: Sequence[int] = ()) -> Value:
        """The operand as (batch..., rows, steps...), where it is; all steps are one dimension unless told."""
        x = b("transpose", self.value, permutation=(*self.batch, *self.free_dims, *self.contract))
        return b("reshape", x, shape=(*self.outer, self.free, *(steps or (self.steps,))))

    def panels(self, b: ArrayBuilder, width: int, dtype: DType) -> Value:
        """The operand as (batch..., panels, steps, width), in memory. What computes it for this alone, element by
        element, is computed where it is copied, unless it must be padded."""
        most = 0 if self.free % width else FOLLOWED
        x = _computed(self.value, lambda v: self._in_panels(v, b, width), b, most)
        return b.create("schedule.copy", (b.convert(x, dtype),), {"panels": True}).result

    def _in_panels(self, value: Value, b: ArrayBuilder, width: int) -> Value:
        """``value``, of the operand's shape, as the panels have it."""
        x = Side(value, self.batch, self.contract).rows(b)
        count = -(-self.free // width)
        if count * width != self.free:
            none = tuple(0 for _ in self.outer)
            zero = b.constant(np.asarray(0), tensor(x).dtype)
            x = b("pad", x, zero, low=(*none, 0, 0), high=(*none, count * width - self.free, 0), interior=(*none, 0, 0))
        x = b("reshape", x, shape=(*self.outer, count, width, self.steps))
        n = len(self.outer)
        return b("transpose", x, permutation=(*range(n), n, n + 2, n + 1))


def _computed(value: Value, moved: Callable[[Value], Value], b: ArrayBuilder, most: int) -> Value:
    """``moved(value)``, where element-wise operators that nobody else reads are computed on what is moved."""
    op = value.defining_op
    alone = op is not None and op.definition.has(traits.ELEMENTWISE) and len(op.results) == 1 and len(value.uses) == 1
    if op is None or not alone or most == 0:
        return moved(value)
    operands = [_computed(operand, moved, b, most - 1) for operand in op.operands]
    return b.create(op.name, operands, op.attributes).result
