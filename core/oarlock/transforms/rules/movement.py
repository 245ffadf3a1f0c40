"""Simplification of data movement and of control flow whose condition is known."""

from __future__ import annotations

from oarlock.ir import Operation, Value
from oarlock.ir.rewrite import RewritePattern, Rewriter, pattern
from oarlock.ops.record import tensor
from oarlock.transforms.matching import constant_of, emit, ints, produced_by

__all__ = ["MOVEMENT"]


def _shape(value: Value) -> tuple[object, ...]:
    return tensor(value).shape


@pattern("array.transpose")
def transpose(op: Operation, rewriter: Rewriter) -> bool:
    """A transposition that changes nothing, or of a transposition."""
    source, permutation = op.operands_[0], ints(op, "permutation")
    if permutation == tuple(range(len(permutation))):
        rewriter.replace(op, [source])
        return True
    inner = produced_by(source, "transpose")
    if inner is None:
        return False
    first = ints(inner, "permutation")
    composed = tuple(first[axis] for axis in permutation)
    rewriter.replace(op, [emit(op, rewriter)("transpose", inner.operands_[0], permutation=composed)])
    return True


@pattern("array.reshape")
def reshape(op: Operation, rewriter: Rewriter) -> bool:
    """A reshape to the shape that there is, or of a reshape."""
    source = op.operands_[0]
    if _shape(source) == _shape(op.results[0]):
        rewriter.replace(op, [source])
        return True
    inner = produced_by(source, "reshape")
    if inner is None:
        return False
    shape = tensor(op.results[0]).shape
    rewriter.replace(op, [emit(op, rewriter)("reshape", inner.operands_[0], shape=shape)])
    return True


@pattern("array.broadcast")
def broadcast(op: Operation, rewriter: Rewriter) -> bool:
    """A broadcast that changes nothing, or of a broadcast."""
    source, dims = op.operands_[0], ints(op, "dims")
    if _shape(source) == _shape(op.results[0]) and dims == tuple(range(len(dims))):
        rewriter.replace(op, [source])
        return True
    inner = produced_by(source, "broadcast")
    if inner is None:
        return False
    composed = tuple(dims[dim] for dim in ints(inner, "dims"))
    shape = tensor(op.results[0]).shape
    rewriter.replace(op, [emit(op, rewriter)("broadcast", inner.operands_[0], shape=shape, dims=composed)])
    return True


@pattern("array.slice")
def slice_(op: Operation, rewriter: Rewriter) -> bool:
    """A slice of everything, or of a slice."""
    source = op.operands_[0]
    if _shape(source) == _shape(op.results[0]) and all(step == 1 for step in ints(op, "steps")):
        rewriter.replace(op, [source])
        return True
    inner = produced_by(source, "slice")
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
    rest = tuple(sorted(axis for axis in turned if _shape(source)[axis] != 1))
    if inner is None and rest == tuple(sorted(axes)):
        return False
    rewriter.replace(op, [emit(op, rewriter)("reverse", origin, axes=rest) if rest else origin])
    return True


@pattern("array.pad")
def pad(op: Operation, rewriter: Rewriter) -> bool:
    """Padding by nothing."""
    if any((*ints(op, "low"), *ints(op, "high"))):
        return False
    gaps = zip(ints(op, "interior"), _shape(op.operands_[0]), strict=True)
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
        elif _shape(operand)[axis] != 0:
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
    transpose, reshape, broadcast, slice_, reverse, pad, concat, if_known,
)  # fmt: skip
"""The patterns."""
