"""Simplification of data movement and of control flow whose condition is known."""

from __future__ import annotations

from typing import TypeVar

from oarlock.ir import Operation, Value
from oarlock.ir.drr import Rule, attribute, native, op, value
from oarlock.ir.rewrite import RewritePattern, Rewriter, pattern
from oarlock.ops.record import tensor
from oarlock.transforms.matching import constant_of, emit, ints, produced_by, shape_of

__all__ = ["MOVEMENT", "TRANSPOSE_TWICE"]

_X, _P, _Q, _S = value("x"), attribute("p"), attribute("q"), attribute("s")


_T = TypeVar("_T")


def compose(first: tuple[_T, ...], second: tuple[int, ...]) -> tuple[_T, ...]:
    """At each position what ``first`` holds at the position that ``second`` says."""
    return tuple(first[position] for position in second)


def is_identity(positions: tuple[int, ...]) -> bool:
    """Whether each position is its own."""
    return positions == tuple(range(len(positions)))


def same_shape(moved: Operation) -> bool:
    """Whether the result has the operand's shape."""
    return shape_of(moved.operands_[0]) == shape_of(moved.results[0])


def is_whole(moved: Operation) -> bool:
    """Whether a slice takes all there is."""
    return same_shape(moved) and all(step == 1 for step in ints(moved, "steps"))


_TRANSPOSE = op("array.transpose", _X, permutation=_P)
_RESHAPE = op("array.reshape", _X, shape=_P)
_BROADCAST = op("array.broadcast", _X, dims=_P)
_SLICE = op("array.slice", _X)

TRANSPOSE_TWICE = Rule(
    "transpose_twice",
    source=op("array.transpose", op("array.transpose", _X, permutation=_P).shared(), permutation=_Q),
    result=op("array.transpose", _X, permutation=native(compose, _P, _Q)),
)
"""Two transpositions are one."""

_RULES = (
    Rule("transpose_of_nothing", _TRANSPOSE, _X, [native(is_identity, _P)]),
    TRANSPOSE_TWICE,
    Rule("reshape_of_nothing", _RESHAPE, _X, [native(same_shape, _RESHAPE)]),
    Rule(
        "reshape_twice",
        source=op("array.reshape", op("array.reshape", _X).shared(), shape=_Q),
        result=op("array.reshape", _X, shape=_Q),
    ),
    Rule("broadcast_of_nothing", _BROADCAST, _X, [native(same_shape, _BROADCAST), native(is_identity, _P)]),
    Rule(
        "broadcast_twice",
        source=op("array.broadcast", op("array.broadcast", _X, dims=_P).shared(), dims=_Q, shape=_S),
        result=op("array.broadcast", _X, dims=native(compose, _Q, _P), shape=_S),
    ),
    Rule("slice_of_all", _SLICE, _X, [native(is_whole, _SLICE)]),
)


@pattern("array.slice")
def slice_of_slice(op: Operation, rewriter: Rewriter) -> bool:
    """A slice of a slice is one."""
    inner = produced_by(op.operands_[0], "slice")
    if inner is None or not tensor(op.results[0]).is_static or not tensor(inner.operands_[0]).is_static:
        return False
    counts = tensor(op.results[0]).static_shape
    first = list(zip(ints(inner, "starts"), ints(inner, "steps"), strict=True))
    starts = tuple(a + b * start for (a, b), start in zip(first, ints(op, "starts"), strict=True))
    steps = tuple(b * step for (_, b), step in zip(first, ints(op, "steps"), strict=True))
    extents = tensor(inner.operands_[0]).static_shape
    starts = tuple(start if n else min(start, end) for start, n, end in zip(starts, counts, extents, strict=True))
    limits = tuple(
        start + (n - 1) * step + 1 if n else start for start, n, step in zip(starts, counts, steps, strict=True)
    )
    source = inner.operands_[0]
    rewriter.replace(op, [emit(op, rewriter)("slice", source, starts=starts, limits=limits, steps=steps)])
    return True


@pattern("array.reverse")
def reverse(op: Operation, rewriter: Rewriter) -> bool:
    """A reversal of axes of size 1, or of a reversal."""
    source, axes = op.operands_[0], ints(op, "axes")
    inner = produced_by(source, "reverse")
    origin = source if inner is None else inner.operands_[0]
    turned = set(axes) if inner is None else set(axes) ^ set(ints(inner, "axes"))
    rest = tuple(sorted(axis for axis in turned if shape_of(source)[axis] != 1))
    if inner is None and rest == tuple(sorted(axes)):
        return False
    rewriter.replace(op, [emit(op, rewriter)("reverse", origin, axes=rest) if rest else origin])
    return True


@pattern("array.pad")
def pad(op: Operation, rewriter: Rewriter) -> bool:
    """Padding by nothing."""
    if any((*ints(op, "low"), *ints(op, "high"))):
        return False
    gaps = zip(ints(op, "interior"), shape_of(op.operands_[0]), strict=True)
    if any(gap and dim not in (0, 1) for gap, dim in gaps):
        return False
    rewriter.replace(op, [op.operands_[0]])
    return True


@pattern("array.concat")
def concat(op: Operation, rewriter: Rewriter) -> bool:
    """A concatenation of one; with parts of size 0; of what only it uses of concatenations along the same axis."""
    axis = op.attributes["axis"]
    assert isinstance(axis, int)
    parts: list[Value] = []
    for operand in op.operands_:
        inner = produced_by(operand, "concat")
        if inner is not None and inner.attributes["axis"] == axis and len(operand.uses) == 1:
            parts += inner.operands_
        elif shape_of(operand)[axis] != 0:
            parts.append(operand)
    parts = parts or [op.operands_[0]]
    if len(parts) > 1 and parts == op.operands_:
        return False
    rewriter.replace(op, [parts[0] if len(parts) == 1 else emit(op, rewriter)("concat", *parts, axis=axis)])
    return True


@pattern("control.if")
def if_known(op: Operation, rewriter: Rewriter) -> bool:
    """A branch whose condition is constant: the region takes its place."""
    condition = constant_of(op.operands_[0])
    block = op.parent
    if condition is None or block is None:
        return False
    taken = op.regions[0 if condition else 1].block
    last = taken.terminator
    for inner in taken.ops:
        if inner is not last:
            block.insert_before(op, inner.detach())
            rewriter.touch(inner)
    rewriter.replace(op, last.operands)
    return True


MOVEMENT: tuple[RewritePattern, ...] = (
    *(rule.pattern for rule in _RULES), slice_of_slice, reverse, pad, concat, if_known,
)  # fmt: skip
"""The patterns."""
