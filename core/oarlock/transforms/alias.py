"""Alias: what moves no element in memory becomes a reshape or a slice of what is there, which takes no memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from oarlock.ir import Attribute, Context, Operation, Value
from oarlock.ir.drr import Rule, built, native, op, value
from oarlock.ir.passes import Pass
from oarlock.ir.rewrite import Rewriter, apply_patterns, pattern
from oarlock.ops.record import tensor
from oarlock.transforms.matching import emit, ints, produced_by, shape_of
from oarlock.transforms.rules.movement import MOVEMENT

__all__ = ["Alias"]


def only_ones_move(moved: Operation) -> bool:
    """Whether a transposition only moves sizes of 1."""
    shape = shape_of(moved.operands_[0])
    kept = [axis for axis in ints(moved, "permutation") if shape[axis] != 1]
    return kept == sorted(kept)


def is_as_large(moved: Operation) -> bool:
    """Whether operand and result have the same elements, of known number."""
    left, right = tensor(moved.operands_[0]), tensor(moved.results[0])
    static = left.is_static and right.is_static
    return static and math.prod(left.static_shape) == math.prod(right.static_shape) > 0


def result_shape(moved: Operation) -> Attribute:
    """The shape that an operation gives."""
    return shape_of(moved.results[0])


_X = value("x")


def _is_reshape(name: str, condition: Callable[[Operation], bool]) -> Rule:
    """``name(x)`` is a reshape of x where ``condition`` holds."""
    source = op("array." + name, _X)
    return Rule(
        f"{name}_is_reshape",
        source=source,
        where=[native(condition, source)],
        result=op("array.reshape", _X, shape=native(result_shape, source)),
    )


def plus_zero(anchor: Operation, x: Value, rewriter: Rewriter) -> Value:
    """x as a sum of nothing else gives it: 0.0 where x is -0.0."""
    if not tensor(x).dtype.is_float:
        return x
    build = emit(anchor, rewriter)
    return build("add", x, build.constant(0, tensor(x).dtype))


_SUM = op("array.reduce_sum", _X)

_RULES = (
    _is_reshape("transpose", only_ones_move),
    _is_reshape("broadcast", is_as_large),
    *(_is_reshape(name, is_as_large) for name in ("reduce_prod", "reduce_max", "reduce_min")),
    Rule(
        "reduce_sum_is_reshape",
        source=_SUM,
        where=[native(is_as_large, _SUM)],
        result=op("array.reshape", built(plus_zero, _X), shape=native(result_shape, _SUM)),
    ),
)


@pattern("array.slice")
def slice_of_concat(op: Operation, rewriter: Rewriter) -> bool:
    """A slice of a concatenation that lies in one part is a slice of that part."""
    whole = produced_by(op.operands_[0], "concat")
    if whole is None or not all(tensor(part).is_static for part in whole.operands_):
        return False
    axis = whole.attributes["axis"]
    assert isinstance(axis, int)
    starts, limits, steps = ints(op, "starts"), ints(op, "limits"), ints(op, "steps")
    if starts[axis] >= limits[axis]:
        return False
    last = starts[axis] + (limits[axis] - 1 - starts[axis]) // steps[axis] * steps[axis]
    at = 0
    for part in whole.operands_:
        end = at + tensor(part).static_shape[axis]
        if at <= starts[axis] and last < end:
            here = {"starts": _with(starts, axis, starts[axis] - at), "limits": _with(limits, axis, last + 1 - at)}
            rewriter.replace(op, [emit(op, rewriter)("slice", part, **here, steps=steps)])
            return True
        at = end
    return False


def _with(values: tuple[int, ...], axis: int, value: int) -> tuple[int, ...]:
    return (*values[:axis], value, *values[axis + 1 :])


@pattern("array.concat")
def concat_of_slices(op: Operation, rewriter: Rewriter) -> bool:
    """Neighbouring slices of one value, side by side again, are one slice."""
    axis = op.attributes["axis"]
    assert isinstance(axis, int)
    parts: list[Value] = []
    for part in op.operands_:
        joined = _joined(parts[-1], part, axis, op, rewriter) if parts else None
        parts[-1:] = [joined] if joined is not None else [*parts[-1:], part]
    if len(parts) == len(op.operands_):
        return False
    rewriter.replace(op, [parts[0] if len(parts) == 1 else emit(op, rewriter)("concat", *parts, axis=axis)])
    return True


def _joined(left: Value, right: Value, axis: int, op: Operation, rewriter: Rewriter) -> Value | None:
    first, second = produced_by(left, "slice"), produced_by(right, "slice")
    if first is None or second is None or first.operands_[0] is not second.operands_[0]:
        return None
    alike = all(
        ints(first, name)[d] == ints(second, name)[d]
        for name in ("starts", "limits", "steps")
        for d in range(len(ints(first, name)))
        if d != axis
    )
    steps = ints(first, "steps")[axis], ints(second, "steps")[axis]
    if not alike or steps != (1, 1) or ints(first, "limits")[axis] != ints(second, "starts")[axis]:
        return None
    limits = _with(ints(first, "limits"), axis, ints(second, "limits")[axis])
    bounds = {"starts": ints(first, "starts"), "limits": limits, "steps": ints(first, "steps")}
    return emit(op, rewriter)("slice", first.operands_[0], **bounds)


class Alias(Pass):
    """Makes reshapes and slices of other movement, where that is the same."""

    name = "alias"
    level = 1
    after = ("simplify",)

    def run(self, op: Operation, context: Context) -> Mapping[str, int]:
        """Work on what is in ``op``; how often each rule was applied."""
        patterns = [*(rule.pattern for rule in _RULES), slice_of_concat, concat_of_slices, *MOVEMENT]
        return apply_patterns(op, patterns, context)
