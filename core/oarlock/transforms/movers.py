"""What works alike in any layout: operators whose attributes are those of another order of dimensions, and operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oarlock.ir import Attribute, Operation, Value, traits
from oarlock.ops.record import ArrayBuilder, tensor
from oarlock.transforms.matching import ints, shape_of, splat_of
from oarlock.transforms.rules.movement import compose

__all__ = ["Permutation", "in_layout", "is_movable", "moved", "operands_moved", "significant"]

Permutation = tuple[int, ...]
_Attributes = Mapping[str, Attribute]


def _per_dimension(*names: str) -> Callable[[Operation, Permutation], _Attributes]:
    """Attributes with an entry for each dimension."""
    return lambda op, p: {**op.attributes, **{name: compose(ints(op, name), p) for name in names}}


def _axes(op: Operation, p: Permutation) -> _Attributes:
    return {**op.attributes, "axes": tuple(sorted(p.index(axis) for axis in ints(op, "axes")))}


def _axis(op: Operation, p: Permutation) -> _Attributes:
    axis = op.attributes["axis"]
    assert isinstance(axis, int)
    return {**op.attributes, "axis": p.index(axis)}


_MOVERS: Mapping[str, Callable[[Operation, Permutation], _Attributes]] = {
    "array.pad": _per_dimension("low", "high", "interior"),
    "array.slice": _per_dimension("starts", "limits", "steps"),
    "array.window_reduce": _per_dimension("window", "strides", "padding", "dilation"),
    "array.reverse": _axes,
    "array.concat": _axis,
    **{f"array.reduce_{kind}": _axes for kind in ("sum", "prod", "max", "min")},
}
"""Operators that work alike in any layout, with their attributes in the layout ``p``; reductions that keep the rank."""


def is_movable(op: Operation) -> bool:
    """Whether ``op`` works alike in any layout; its operands then broadcast to its result, or are single numbers."""
    if op.name.startswith("array.reduce_"):
        return op.name in _MOVERS and bool(op.attributes["keepdims"])
    return len(op.results) == 1 and (op.name in _MOVERS or op.definition.has(traits.ELEMENTWISE))


def moved(op: Operation, p: Permutation) -> _Attributes:
    """The attributes of ``op`` in layout ``p``."""
    return _MOVERS[op.name](op, p) if op.name in _MOVERS else op.attributes


def operands_moved(op: Operation) -> int:
    """How many of the operands, from the first on, are in the layout of the result: a pad's number is in none."""
    return 1 if op.name == "array.pad" else len(op.operands_)


def significant(value: Value) -> int:
    """How many dimensions have more than one element."""
    return sum(size != 1 for size in shape_of(value))


def in_layout(build: ArrayBuilder, leaf: Value, p: Permutation) -> Value:
    """``leaf`` as an operand in layout ``p``, broadcast as before: fewer dimensions stand for the last ones."""
    shape, rank = shape_of(leaf), len(p)
    if all(size == 1 for size in shape) or rank == 0:
        return leaf
    full = (1,) * (rank - len(shape)) + shape
    number = splat_of(leaf)
    if number is not None:
        constant = build.constant(number, tensor(leaf).dtype)
        return build("broadcast", constant, shape=compose(full, p), dims=())
    if significant(leaf) < 2:
        return build("reshape", leaf, shape=compose(full, p))
    if len(shape) < rank:
        leaf = build("reshape", leaf, shape=full)
    return build("transpose", leaf, permutation=p)
