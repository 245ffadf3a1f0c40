"""Expansion: operators that one kernel cannot do well become several, before fusion.

A sort becomes passes that merge runs of doubling width; a long scan over few rows becomes scans of pieces, a scan of
their totals, and an addition.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from oarlock import dtypes
from oarlock.codegen.lower.elementwise import identity
from oarlock.codegen.schedule_dialect import SCHEDULE
from oarlock.codegen.values import shape_of
from oarlock.ir import Context, Operation, Value
from oarlock.ops import ArrayBuilder, array_context, tensor
from oarlock.target import Target

__all__ = ["expand"]

SCAN_PIECE = 256
"""Elements of one piece of a long scan."""
MANY_ROWS = 256
"""With so many rows a long scan is parallel enough as it is."""

_COMBINE = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}


def expand(function: Operation, target: Target) -> Operation:
    """Expand in place, and return ``function``."""
    context = array_context()
    context.register(SCHEDULE)
    for op in list(function.regions[0].block.ops):
        rule = _RULES.get(op.name)
        values = rule(op, context, target) if rule is not None else None
        if values is not None:
            for old, new in zip(op.results, values, strict=True):
                old.replace_all_uses_with(new)
            op.erase()
    return function


def _builder(op: Operation, context: Context) -> ArrayBuilder:
    assert op.parent is not None
    b = ArrayBuilder(context, op.parent, op)
    b.location = op.location
    return b


def _sort(op: Operation, context: Context, target: Target) -> list[Value]:
    b = _builder(op, context)
    (x,) = op.operands
    axis = op.attributes["axis"]
    assert isinstance(axis, int)
    shape = shape_of(x)
    dtype = tensor(op.results[1]).dtype
    keys, positions = x, b("iota", shape=shape, axis=axis, dtype=dtypes.int32)
    width = 1
    while width < shape[axis] and math.prod(shape):
        attributes = {"axis": axis, "width": width, "descending": bool(op.attributes["descending"])}
        keys, positions = b.create("schedule.merge_pass", (keys, positions), attributes).results
        width *= 2
    return [keys, b.convert(positions, dtype)]


def _scan(op: Operation, context: Context, target: Target) -> list[Value] | None:
    (x,) = op.operands
    axis = op.attributes["axis"]
    assert isinstance(axis, int)
    shape = shape_of(x)
    length = shape[axis]
    if length <= 4 * SCAN_PIECE or math.prod(shape) // length >= MANY_ROWS:
        return None
    b = _builder(op, context)
    kind = str(op.attributes["kind"])
    reverse, exclusive = bool(op.attributes["reverse"]), bool(op.attributes["exclusive"])
    if reverse:
        x = b("reverse", x, axes=(axis,))
    result = _scan_pieces(b, x, kind, axis)
    if exclusive:
        neutral = b.constant(np.asarray(identity(kind, tensor(x).dtype)), tensor(x).dtype)
        zeros = tuple(0 for _ in shape)
        limits = tuple(d - 1 if i == axis else d for i, d in enumerate(shape))
        result = b("slice", result, starts=zeros, limits=limits, steps=tuple(1 for _ in shape))
        low = tuple(1 if i == axis else 0 for i in range(len(shape)))
        result = b("pad", result, neutral, low=low, high=zeros, interior=zeros)
    return [b("reverse", result, axes=(axis,)) if reverse else result]


def _scan_pieces(b: ArrayBuilder, x: Value, kind: str, axis: int) -> Value:
    """Inclusive forward scan through pieces of SCAN_PIECE."""
    shape = shape_of(x)
    dtype = tensor(x).dtype
    wide = dtypes.float32 if dtype.is_float and dtype.bits == 16 and kind in ("sum", "prod") else dtype
    x = b.convert(x, wide)
    length = shape[axis]
    pieces = -(-length // SCAN_PIECE)
    neutral = b.constant(np.asarray(identity(kind, wide)), wide)
    zeros = tuple(0 for _ in shape)
    high = tuple(pieces * SCAN_PIECE - length if i == axis else 0 for i in range(len(shape)))
    padded = b("pad", x, neutral, low=zeros, high=high, interior=zeros)
    split = (*shape[:axis], pieces, SCAN_PIECE, *shape[axis + 1 :])
    inner = b("scan", b("reshape", padded, shape=split), kind=kind, axis=axis + 1, reverse=False, exclusive=False)
    starts = tuple(SCAN_PIECE - 1 if i == axis + 1 else 0 for i in range(len(split)))
    totals = b("slice", inner, starts=starts, limits=split, steps=tuple(1 for _ in split))
    before = b("scan", totals, kind=kind, axis=axis, reverse=False, exclusive=True)
    joined = b("reshape", b(_COMBINE[kind], before, inner), shape=(*shape[:axis], pieces * SCAN_PIECE, *shape[axis + 1 :]))
    result = b("slice", joined, starts=zeros, limits=shape, steps=tuple(1 for _ in shape))
    return b.convert(result, dtype)


_RULES: dict[str, Callable[[Operation, Context, Target], list[Value] | None]] = {
    "array.sort": _sort,
    "array.scan": _scan,
}
