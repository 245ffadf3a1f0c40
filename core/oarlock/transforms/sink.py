"""Sink: reshapes and broadcasts of computed values move below what is done element by element, or along other axes.

There they meet others and vanish, and what stands between them is computed where its operand is computed: in the same
kernel, on fewer elements. Only movement changes places: every element is computed from the same ones as before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from oarlock.ir import Context, Operation, Value
from oarlock.ir.passes import Pass
from oarlock.ir.rewrite import RewritePattern, Rewriter, apply_patterns
from oarlock.ops.record import ArrayBuilder, Record, tensor
from oarlock.transforms.matching import emit, ints, is_computed, is_stored, produced_by, splat_of, travels
from oarlock.transforms.rules.movement import MOVEMENT

__all__ = ["Sink", "groups"]

Shape = tuple[int, ...]
Group = tuple[tuple[int, ...], tuple[int, ...]]

_REDUCTIONS = ("array.reduce_sum", "array.reduce_prod", "array.reduce_max", "array.reduce_min")


def groups(source: Shape, result: Shape) -> list[Group] | None:
    """The finest pairs of (dimensions of ``source``, dimensions of ``result``) that a reshape maps to each other.

    None where a size is 0. Sizes of 1 belong to the pair before them; those at the front to the first.
    """
    if 0 in source:
        return None
    found: list[Group] = []
    i = j = 0
    while i < len(source) or j < len(result):
        left, right = i, j
        a = b = 1
        while (i < len(source) or j < len(result)) and (a != b or a == 1):
            if i < len(source) and (a <= b or j == len(result)):
                a, i = a * source[i], i + 1
            else:
                b, j = b * result[j], j + 1
        while i < len(source) and source[i] == 1:
            i += 1
        while j < len(result) and result[j] == 1:
            j += 1
        found.append((tuple(range(left, i)), tuple(range(right, j))))
    return found


def _static(value: Value) -> Shape | None:
    kind = tensor(value)
    return kind.static_shape if kind.is_static else None


def _pulled(shape: Shape, source: Shape, result: Shape) -> Shape | None:
    """The shape under which what broadcasts from ``shape`` to ``result`` broadcasts to ``source`` alike, or None."""
    pairs = groups(source, result)
    if pairs is None:
        return None
    aligned = (1,) * (len(result) - len(shape)) + shape
    pulled = [1] * len(source)
    for left, right in pairs:
        here = [aligned[j] for j in right]
        if all(size == 1 for size in here):
            continue
        if any(aligned[j] != result[j] for j in right):
            return None
        for i in left:
            pulled[i] = source[i]
    return tuple(pulled)


class _Below:
    """One element-wise operation whose operands are asked to be as they were before a reshape or broadcast."""

    def __init__(self, op: Operation, rewriter: Rewriter) -> None:
        self.op = op
        self.shape = _static(op.results[0])
        self.build: ArrayBuilder = emit(op, rewriter)

    def scalar(self, operand: Value, source: Shape) -> Value | None:
        """``operand`` as one number for all of ``source``, where it is that."""
        number = splat_of(operand)
        if number is None:
            return None
        constant = self.build.constant(number, tensor(operand).dtype)
        return constant if source == () else self.build("broadcast", constant, shape=source, dims=())


def _sink_reshape(op: Operation, rewriter: Rewriter) -> bool:
    """f(reshape(x), ...) is reshape(f(x, ...))."""
    shape = _static(op.results[0])
    leader = next((made for o in op.operands_ if (made := _moved(o, "reshape", shape)) is not None), None)
    if leader is None or shape is None:
        return False
    source = tensor(leader.operands_[0]).static_shape
    plans: list[tuple[Value, Shape | None]] = []
    for operand in op.operands_:
        made = produced_by(operand, "reshape")
        there = _static(operand)
        if made is not None and there == shape and _static(made.operands_[0]) == source:
            plans.append((made.operands_[0], None))
            continue
        pulled = _pulled(there, source, shape) if there is not None else None
        if pulled is None or (there == shape and splat_of(operand) is None and not is_stored(operand)):
            return False
        plans.append((operand, pulled))
    below = _Below(op, rewriter)
    operands = [value if pulled is None else _as_shape(below, value, pulled) for value, pulled in plans]
    made_op = below.build.create(op.name, operands, op.attributes)
    rewriter.replace(op, [below.build("reshape", made_op.result, shape=shape)])
    return True


def _as_shape(below: _Below, value: Value, shape: Shape) -> Value:
    number = below.scalar(value, shape if math.prod(shape) > 1 else ())
    if number is not None:
        return number
    return value if _static(value) == shape else below.build("reshape", value, shape=shape)


def _moved(operand: Value, name: str, shape: Shape | None) -> Operation | None:
    """The reshape or broadcast of a computed value that gives ``operand``, which is of ``shape``."""
    made = produced_by(operand, name)
    if made is None or shape is None or _static(operand) != shape or not is_computed(made.operands_[0]):
        return None
    source = _static(made.operands_[0])
    if source is None or 0 in shape or _significant(source) == _significant(shape):
        return None
    return made


def _significant(shape: Shape) -> Shape:
    """The sizes that are not 1: fusion looks at no others."""
    return tuple(size for size in shape if size != 1)


def _sink_reshape_below_reduction(op: Operation, rewriter: Rewriter) -> bool:
    """reduce(reshape(x)) is reshape(reduce(x)), where the reshape does not mix what is reduced with what is not."""
    made = _moved(op.operands_[0], "reshape", _static(op.operands_[0]))
    if made is None:
        return False
    source = tensor(made.operands_[0]).static_shape
    shape, reduced = tensor(op.operands_[0]).static_shape, ints(op, "axes")
    axes: list[int] = []
    for left, right in groups(source, shape) or ():
        inside = [j in reduced for j in right if shape[j] != 1]
        if any(inside) and not all(inside):
            return False
        if any(inside):
            axes += left
    build = emit(op, rewriter)
    attributes = {**op.attributes, "axes": tuple(axes)}
    value = build.create(op.name, [made.operands_[0]], attributes).result
    rewriter.replace(op, [build("reshape", value, shape=tensor(op.results[0]).static_shape)])
    return True


def _sink_broadcast(op: Operation, rewriter: Rewriter) -> bool:
    """f(broadcast(x), ...) is broadcast(f(x, ...)), where all operands are broadcasts alike, or one number."""
    shape = _static(op.results[0])
    leader = next((made for o in op.operands_ if (made := _moved(o, "broadcast", shape)) is not None), None)
    if leader is None or shape is None:
        return False
    source, dims = tensor(leader.operands_[0]).static_shape, ints(leader, "dims")
    operands: list[Value | None] = []
    for operand in op.operands_:
        made = produced_by(operand, "broadcast")
        alike = made is not None and _static(made.operands_[0]) == source and ints(made, "dims") == dims
        if made is not None and alike and _static(operand) == shape:
            operands.append(made.operands_[0])
        elif splat_of(operand) is not None:
            operands.append(None)
        else:
            return False
    below = _Below(op, rewriter)
    chosen = [
        value if value is not None else below.scalar(operand, ())
        for value, operand in zip(operands, op.operands_, strict=True)
    ]
    given = [value for value in chosen if value is not None]
    made_op = below.build.create(op.name, given, op.attributes)
    rewriter.replace(op, [below.build("broadcast", made_op.result, shape=shape, dims=dims)])
    return True


def _element_wise(op: Operation, rewriter: Rewriter) -> bool:
    record = op.definition.interface(Record)
    if record is None or not record.is_elementwise or len(op.results) != 1:
        return False
    return _sink_reshape(op, rewriter) or _sink_broadcast(op, rewriter)


_PATTERNS: Sequence[RewritePattern] = (
    RewritePattern("sunk", None, _element_wise),
    RewritePattern("sunk_below_reduction", _REDUCTIONS, _sink_reshape_below_reduction),
    *MOVEMENT,
)


class Sink(Pass):
    """Moves reshapes and broadcasts of computed values down."""

    name = "sink"
    level = 2
    after = ("simplify",)

    def run(self, op: Operation, context: Context) -> Mapping[str, int]:
        """Sink what is in ``op``; how often, and which movements met."""
        return apply_patterns(op, _PATTERNS, context, travels(op))
