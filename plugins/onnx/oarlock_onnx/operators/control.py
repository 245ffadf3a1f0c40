"""If, Loop and Scan: conditions and trip counts are known while building, bodies are imported in place."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from onnx import GraphProto

from oarlock import dtypes
from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder
from oarlock_onnx.limits import MAX_TRIPS
from oarlock_onnx.node import Item, Node
from oarlock_onnx.operators.common import axis_of, dtype_of, fill, reshape, shape_of, slice_axis, unsqueeze
from oarlock_onnx.registry import operator

__all__: list[str] = []


@operator("If")
def if_node(b: GraphBuilder, node: Node) -> list[Item]:
    """One of two bodies; with a condition that only running can tell, both and a selection where the types agree."""
    condition = node.input(0)
    if dtype_of(condition) != dtypes.bool_ or shape_of(condition) not in ((), (1,)):
        raise ModelError(f"the condition is {condition.type}, it must be one bool")
    branches = node.graph("then_branch"), node.graph("else_branch")
    known = b.peek(condition)
    if known is None and b.cheap(condition):
        known = b.static(condition, "the condition")
    if known is not None:
        return node.graphs.run(branches[0] if known.reshape(()) else branches[1], ())
    both = [node.graphs.run(branch, ()) for branch in branches]
    flag = reshape(b, condition, ())
    if all(_alike(left, right) for left, right in zip(*both, strict=True)):
        return [b("select", flag, left, right) for left, right in zip(*both, strict=True)]
    chosen = b.static(condition, "the condition")
    return both[0] if chosen.reshape(()) else both[1]


def _alike(left: Item, right: Item) -> bool:
    return isinstance(left, Value) and isinstance(right, Value) and left.type == right.type


@operator("Loop")
def loop(b: GraphBuilder, node: Node) -> list[Item]:
    """The body repeated while its condition holds, at most the trip count; scan outputs are stacked."""
    limit, keep = node.optional(0), node.optional(1)
    body = node.graph("body")
    carried: list[Item] = list(node.inputs[2:])
    trips = math.inf if limit is None else int(b.static(limit, "the trip count").reshape(()))
    going = keep is None or bool(b.static(keep, "the loop's condition").reshape(()))
    scanned: list[list[Value]] = []
    count = 0
    while going and count < trips:
        if count >= MAX_TRIPS:
            raise ModelError(f"the loop runs more than {MAX_TRIPS} times")
        results = node.graphs.run(body, [b.constant(np.int64(count)), b.constant(np.bool_(True)), *carried])
        scanned.append(_tensors(results[1 + len(carried) :]))
        condition, carried = results[0], list(results[1 : 1 + len(carried)])
        if not isinstance(condition, Value):
            raise ModelError("the body's condition is no tensor")
        count += 1
        if count < trips:
            going = bool(b.static(condition, "the loop's condition").reshape(()))
    return [*carried, *_stacked(b, scanned, body, len(carried))]


def _tensors(items: Sequence[Item]) -> list[Value]:
    if not all(isinstance(item, Value) for item in items):
        raise ModelError("a scan output is no tensor")
    return [item for item in items if isinstance(item, Value)]


def _stacked(b: GraphBuilder, scanned: list[list[Value]], body: GraphProto, carried: int) -> list[Item]:
    """Each scan output of all trips along a new first dimension."""
    if not scanned:
        return [_nothing(b, body, 1 + carried + place) for place in range(len(body.output) - 1 - carried)]
    columns = [list(column) for column in zip(*scanned, strict=True)]
    return [_joined(b, [unsqueeze(b, item, (0,)) for item in column], 0) for column in columns]


def _nothing(b: GraphBuilder, body: GraphProto, place: int) -> Value:
    """The scan output of a loop without trips: no rows of the declared type."""
    from oarlock_onnx.tensors import dtype_of as onnx_dtype

    kind = body.output[place].type.tensor_type
    dims = [dim.dim_value for dim in kind.shape.dim]
    value = b.constant(np.zeros((), onnx_dtype(kind.elem_type, "scan output").numpy))
    return fill(b, value, (0, *dims))


def _joined(b: GraphBuilder, parts: Sequence[Value], axis: int) -> Value:
    return parts[0] if len(parts) == 1 else b("concat", *parts, axis=axis)


@operator("Scan")
def scan(b: GraphBuilder, node: Node) -> list[Item]:
    """The body once per slice of the scan inputs, carrying states on."""
    body = node.graph("body")
    count = node.integer("num_scan_inputs")
    inputs = list(node.inputs)
    if not 1 <= count <= len(inputs):
        raise ModelError(f"num_scan_inputs {count} does not fit {len(inputs)} inputs")
    if node.version < 9:
        return _scan_batches(b, node, body, count, inputs[1:])
    states, sources = inputs[: len(inputs) - count], _tensors(inputs[len(inputs) - count :])
    axes = node.integers("scan_input_axes", (0,) * count)
    turns = node.integers("scan_input_directions", (0,) * count)
    outputs = len(body.output) - len(states)
    return _scan(
        b,
        node,
        body,
        states,
        [(value, axis_of(axis, len(shape_of(value)))) for value, axis in zip(sources, axes, strict=True)],
        turns,
        node.integers("scan_output_axes", (0,) * outputs),
        node.integers("scan_output_directions", (0,) * outputs),
    )


def _scan(
    b: GraphBuilder,
    node: Node,
    body: GraphProto,
    states: list[Item],
    sources: list[tuple[Value, int]],
    turns: Sequence[int],
    axes: Sequence[int],
    directions: Sequence[int],
) -> list[Item]:
    lengths = {shape_of(value)[axis] for value, axis in sources}
    if len(lengths) != 1 or len(turns) != len(sources):
        raise ModelError(f"scan inputs have lengths {sorted(lengths)}")
    trips = lengths.pop()
    if trips > MAX_TRIPS:
        raise ModelError(f"the scan runs {trips} times; at most {MAX_TRIPS} are supported")
    rows: list[list[Value]] = []
    for trip in range(trips):
        slices = [
            _slice_out(b, value, axis, trips - 1 - trip if turn else trip)
            for (value, axis), turn in zip(sources, turns, strict=True)
        ]
        results = node.graphs.run(body, [*states, *slices])
        states = list(results[: len(states)])
        rows.append(_tensors(results[len(states) :]))
    if not rows:
        return [*states, *(_nothing(b, body, len(states) + place) for place in range(len(axes)))]
    stacked: list[Item] = []
    for place, (axis, direction) in enumerate(zip(axes, directions, strict=True)):
        column = [row[place] for row in rows]
        at = axis_of(axis, len(shape_of(column[0])) + 1)
        ordered = list(reversed(column)) if direction else column
        stacked.append(_joined(b, [unsqueeze(b, item, (at,)) for item in ordered], at))
    return [*states, *stacked]


def _slice_out(b: GraphBuilder, value: Value, axis: int, place: int) -> Value:
    shape = shape_of(value)
    return reshape(b, slice_axis(b, value, axis, place, place + 1), (*shape[:axis], *shape[axis + 1 :]))


def _scan_batches(b: GraphBuilder, node: Node, body: GraphProto, count: int, inputs: list[Item]) -> list[Item]:
    """Version 8: a batch dimension first, every entry scanned by itself."""
    if node.optional(0) is not None:
        raise ModelError("sequence_lens of Scan version 8 are not supported")
    values = _tensors(inputs)
    turns = node.integers("directions", (0,) * count)
    results = []
    for entry in range(shape_of(values[0])[0]):
        parts = [_slice_out(b, value, 0, entry) for value in values]
        states: list[Item] = list(parts[: len(parts) - count])
        sources = [(value, 0) for value in parts[len(parts) - count :]]
        outputs = len(body.output) - len(states)
        results.append(_tensors(_scan(b, node, body, states, sources, turns, (0,) * outputs, (0,) * outputs)))
    if not results:
        raise ModelError("the batch is empty")
    return [_joined(b, [unsqueeze(b, item, (0,)) for item in column], 0) for column in zip(*results, strict=True)]
