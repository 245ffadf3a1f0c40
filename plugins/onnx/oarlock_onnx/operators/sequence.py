"""Sequences and optionals: known in number while building, so they are lists of values."""

from __future__ import annotations

import numpy as np

from oarlock import dtypes
from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder
from oarlock_onnx.node import Item, Node
from oarlock_onnx.operators.common import axis_of, reshape, shape_of, slice_axis, unsqueeze
from oarlock_onnx.registry import operator

__all__: list[str] = []


def _sequence(node: Node, index: int) -> tuple[Value, ...]:
    item = node.item(index)
    if not isinstance(item, tuple):
        raise ModelError(f"input {index} must be a sequence")
    return item


def _position(b: GraphBuilder, node: Node, index: int, count: int, default: int) -> int:
    given = node.optional(index)
    if given is None:
        return default
    position = int(b.static(given, "the position").reshape(()))
    if not -count <= position < max(count, 1) and position != default:
        raise ModelError(f"position {position} is outside a sequence of {count}")
    return position + count if position < 0 else position


@operator("SequenceConstruct")
def sequence_construct(b: GraphBuilder, node: Node) -> Item:
    """A sequence of the inputs."""
    return tuple(node.all_inputs())


@operator("SequenceEmpty")
def sequence_empty(b: GraphBuilder, node: Node) -> Item:
    """A sequence of nothing."""
    return ()


@operator("SequenceLength")
def sequence_length(b: GraphBuilder, node: Node) -> Item:
    """The number of tensors."""
    return b.constant(np.int64(len(_sequence(node, 0))))


@operator("SequenceAt")
def sequence_at(b: GraphBuilder, node: Node) -> Item:
    """One tensor; negative positions count from the end."""
    sequence = _sequence(node, 0)
    if not sequence:
        raise ModelError("the sequence is empty")
    return sequence[_position(b, node, 1, len(sequence), len(sequence) - 1)]


@operator("SequenceInsert")
def sequence_insert(b: GraphBuilder, node: Node) -> Item:
    """The sequence with a tensor more, at the end by default."""
    sequence = _sequence(node, 0)
    place = _position(b, node, 2, len(sequence), len(sequence))
    return (*sequence[:place], node.input(1), *sequence[place:])


@operator("SequenceErase")
def sequence_erase(b: GraphBuilder, node: Node) -> Item:
    """The sequence without one tensor, the last by default."""
    sequence = _sequence(node, 0)
    if not sequence:
        raise ModelError("the sequence is empty")
    place = _position(b, node, 1, len(sequence), len(sequence) - 1)
    return (*sequence[:place], *sequence[place + 1 :])


@operator("SplitToSequence")
def split_to_sequence(b: GraphBuilder, node: Node) -> Item:
    """Parts along an axis: single ones, of equal size, or of given sizes."""
    x, given = node.input(0), node.optional(1)
    axis = axis_of(node.integer("axis", 0), len(shape_of(x)))
    total = shape_of(x)[axis]
    if given is None:
        parts = [slice_axis(b, x, axis, place, place + 1) for place in range(total)]
        if node.flag("keepdims", True):
            return tuple(parts)
        shape = (*shape_of(x)[:axis], *shape_of(x)[axis + 1 :])
        return tuple(reshape(b, part, shape) for part in parts)
    sizes = b.ints(given, "split")
    if not shape_of(given):
        if sizes[0] < 1:
            raise ModelError(f"parts of {sizes[0]} are not possible")
        sizes = tuple(min(sizes[0], total - start) for start in range(0, total, sizes[0]))
    if sum(sizes) != total or any(size < 0 for size in sizes):
        raise ModelError(f"parts {list(sizes)} do not add up to {total}")
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    return tuple(slice_axis(b, x, axis, start, start + size) for start, size in zip(starts, sizes, strict=True))


@operator("ConcatFromSequence")
def concat_from_sequence(b: GraphBuilder, node: Node) -> Item:
    """All tensors joined along an axis, or along a new one."""
    sequence = _sequence(node, 0)
    if not sequence:
        raise ModelError("the sequence is empty")
    fresh = node.flag("new_axis")
    axis = axis_of(node.integer("axis"), len(shape_of(sequence[0])) + fresh)
    values = [unsqueeze(b, value, (axis,)) for value in sequence] if fresh else list(sequence)
    return values[0] if len(values) == 1 else b("concat", *values, axis=axis)


@operator("Optional", "OptionalGetElement")
def optional(b: GraphBuilder, node: Node) -> Item:
    """The input; an empty optional is not supported."""
    return node.item(0)


@operator("OptionalHasElement")
def optional_has_element(b: GraphBuilder, node: Node) -> Item:
    """Whether there is an input."""
    return b.constant(np.asarray(len(node) > 0 and node.inputs[0] is not None), dtypes.bool_)
