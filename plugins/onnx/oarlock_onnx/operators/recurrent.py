"""LSTM, GRU and RNN: unrolled over the sequence, whose length is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oarlock import dtypes
from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder
from oarlock_onnx.node import Item, Node
from oarlock_onnx.operators.activation import elu_of, hard_sigmoid_of, leaky_relu, relu_of, softplus
from oarlock_onnx.operators.common import (
    cast,
    dtype_of,
    fill,
    like,
    reshape,
    scalar,
    shape_of,
    slice_axis,
    transpose,
)
from oarlock_onnx.registry import operator

__all__: list[str] = []

Activation = Callable[[Value], Value]


def _activation(b: GraphBuilder, name: str, alpha: float | None, beta: float | None) -> Activation:
    def scale(default: float) -> float:
        return default if alpha is None else alpha

    def shift(default: float) -> float:
        return default if beta is None else beta

    table: dict[str, Activation] = {
        "relu": lambda x: relu_of(b, x),
        "tanh": lambda x: b("tanh", x),
        "sigmoid": lambda x: b("sigmoid", x),
        "leakyrelu": lambda x: leaky_relu(b, x, like(b, scale(0.01), x)),
        "thresholdedrelu": lambda x: b("select", b("greater", x, like(b, scale(1.0), x)), x, b.full(0, x)),
        "scaledtanh": lambda x: b(
            "multiply", like(b, scale(1.0), x), b("tanh", b("multiply", like(b, shift(1.0), x), x))
        ),
        "hardsigmoid": lambda x: hard_sigmoid_of(b, x, scale(0.2), shift(0.5)),
        "elu": lambda x: elu_of(b, x, scale(1.0)),
        "softsign": lambda x: b("softsign", x),
        "softplus": lambda x: softplus(b, x),
        "affine": lambda x: b("add", b("multiply", like(b, scale(1.0), x), x), like(b, shift(0.0), x)),
    }
    if name.lower() not in table:
        raise ModelError(f"activation {name!r} is not one of {', '.join(table)}")
    return table[name.lower()]


_TAKES_ALPHA = frozenset({"leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu", "affine"})
_TAKES_BETA = frozenset({"scaledtanh", "hardsigmoid", "affine"})


def _activations(b: GraphBuilder, node: Node, defaults: Sequence[str], directions: int) -> list[list[Activation]]:
    """Per direction the activations; alpha and beta are given in order to those that take them."""
    names = list(node.strings("activations", tuple(defaults) * directions))
    if len(names) != len(defaults) * directions:
        raise ModelError(f"activations {names}: there must be {len(defaults) * directions}")
    alphas, betas = list(node.reals("activation_alpha", ())), list(node.reals("activation_beta", ()))
    found = []
    for name in names:
        alpha = alphas.pop(0) if alphas and name.lower() in _TAKES_ALPHA else None
        beta = betas.pop(0) if betas and name.lower() in _TAKES_BETA else None
        found.append(_activation(b, name, alpha, beta))
    return [found[place : place + len(defaults)] for place in range(0, len(found), len(defaults))]


@dataclass(frozen=True, slots=True)
class _Layer:
    """The inputs of one recurrent node, sequence first. ``lengths`` is None where all sequences are full."""

    x: Value
    steps: int
    batch: int
    hidden: int
    directions: int
    lengths: Value | None
    batch_first: bool


def _layer(b: GraphBuilder, node: Node, gates: int) -> _Layer:
    x = node.input(0)
    batch_first = node.flag("layout")
    if len(shape_of(x)) != 3:
        raise ModelError(f"input {list(shape_of(x))} must have 3 dimensions")
    if batch_first:
        x = transpose(b, x, (1, 0, 2))
    steps, batch, width = shape_of(x)
    recurrence, weight = shape_of(node.input(2)), shape_of(node.input(1))
    direction = node.string("direction", "forward")
    directions = {"forward": 1, "reverse": 1, "bidirectional": 2}.get(direction)
    hidden = node.integer("hidden_size", recurrence[-1] if recurrence else 0)
    if directions is None:
        raise ModelError(f"direction {direction!r} is not forward, reverse or bidirectional")
    if weight != (directions, gates * hidden, width) or recurrence != (directions, gates * hidden, hidden):
        raise ModelError(f"W {list(weight)}, R {list(recurrence)} and hidden_size {hidden} do not fit")
    lengths = node.optional(4)
    if lengths is not None:
        known = b.peek(lengths)
        full = known is not None and (known == steps).all()
        lengths = None if full else reshape(b, cast(b, lengths, dtypes.int32), (batch, 1))
    return _Layer(x, steps, batch, hidden, directions, lengths, batch_first)


def _part(b: GraphBuilder, value: Value, direction: int) -> Value:
    """One direction of a tensor whose first dimension counts directions."""
    return reshape(b, slice_axis(b, value, 0, direction, direction + 1), shape_of(value)[1:])


def _state(b: GraphBuilder, node: Node, index: int, layer: _Layer, direction: int) -> Value:
    given = node.optional(index)
    if given is None:
        return fill(b, like(b, 0, layer.x), (layer.batch, layer.hidden))
    if layer.batch_first:
        given = transpose(b, given, (1, 0, 2))
    if shape_of(given) != (layer.directions, layer.batch, layer.hidden):
        raise ModelError(f"initial state {list(shape_of(given))} does not fit")
    return _part(b, given, direction)


def _bias(b: GraphBuilder, node: Node, direction: int, layer: _Layer, gates: int) -> tuple[Value, Value]:
    """The biases of input and recurrence, [gates * hidden] each."""
    size = gates * layer.hidden
    given = node.optional(3)
    if given is None:
        zero = fill(b, like(b, 0, layer.x), (size,))
        return zero, zero
    if shape_of(given) != (layer.directions, 2 * size):
        raise ModelError(f"B {list(shape_of(given))} does not fit")
    both = _part(b, given, direction)
    return slice_axis(b, both, 0, 0, size), slice_axis(b, both, 0, size, 2 * size)


def _product(b: GraphBuilder, x: Value, weight: Value) -> Value:
    """x [n, k] times weight [m, k], turned."""
    return b("dot_general", x, weight, batch=((), ()), contract=((1,), (1,)), dtype=dtype_of(x))


def _input_part(b: GraphBuilder, node: Node, layer: _Layer, direction: int, bias: Value) -> Value:
    """What the inputs contribute to all gates at all steps: [steps, batch, gates * hidden]."""
    weight = _part(b, node.input(1), direction)
    flat = reshape(b, layer.x, (layer.steps * layer.batch, shape_of(layer.x)[2]))
    total = b("add", _product(b, flat, weight), bias)
    return reshape(b, total, (layer.steps, layer.batch, shape_of(weight)[0]))


def _gates(b: GraphBuilder, value: Value, hidden: int) -> list[Value]:
    count = shape_of(value)[1] // hidden
    return [slice_axis(b, value, 1, place * hidden, (place + 1) * hidden) for place in range(count)]


Step = Callable[[Value, "tuple[Value, ...]"], "tuple[Value, ...]"]
"""Takes the inputs' part at one step and the states; gives the new states, the first of which is the output."""


def _run(
    b: GraphBuilder, node: Node, layer: _Layer, gates_in: Value, states: tuple[Value, ...], step: Step, backward: bool
) -> tuple[Value, tuple[Value, ...]]:
    """All outputs [steps, 1, batch, hidden], in order of time, and the last states."""
    outputs: list[Value | None] = [None] * layer.steps
    for time in reversed(range(layer.steps)) if backward else range(layer.steps):
        now = reshape(b, slice_axis(b, gates_in, 0, time, time + 1), shape_of(gates_in)[1:])
        fresh = step(now, states)
        output = fresh[0]
        if layer.lengths is not None:
            live = b("greater", layer.lengths, scalar(b, time, dtypes.int32))
            fresh = tuple(b("select", live, new, old) for new, old in zip(fresh, states, strict=True))
            output = b("select", live, output, like(b, 0, output))
        states = fresh
        outputs[time] = reshape(b, output, (1, 1, layer.batch, layer.hidden)) if node.wants(0) else None
    kept = [output for output in outputs if output is not None]
    if not kept:
        whole = fill(b, like(b, 0, layer.x), (layer.steps, 1, layer.batch, layer.hidden))
    else:
        whole = kept[0] if len(kept) == 1 else b("concat", *kept, axis=0)
    return whole, states


def _collected(b: GraphBuilder, layer: _Layer, parts: Sequence[tuple[Value, tuple[Value, ...]]]) -> list[Item]:
    """Outputs and last states of all directions in ONNX's layout."""

    def joined(values: Sequence[Value], axis: int) -> Value:
        return values[0] if len(values) == 1 else b("concat", *values, axis=axis)

    results = [joined([whole for whole, _ in parts], 1)]
    for place in range(len(parts[0][1])):
        results.append(joined([reshape(b, states[place], (1, layer.batch, layer.hidden)) for _, states in parts], 0))
    if layer.batch_first:
        results = [transpose(b, results[0], (2, 0, 1, 3)), *(transpose(b, state, (1, 0, 2)) for state in results[1:])]
    return list(results)


def _clipped(b: GraphBuilder, node: Node) -> Activation:
    """The limit on what goes into an activation."""
    if not node.has("clip"):
        return lambda x: x
    limit = node.real("clip")
    return lambda x: b("maximum", like(b, -limit, x), b("minimum", like(b, limit, x), x))


def _is_backward(node: Node, direction: int) -> bool:
    return direction == 1 or node.string("direction", "forward") == "reverse"


@operator("RNN")
def rnn(b: GraphBuilder, node: Node) -> list[Item]:
    """h = f(x W + h R + b)."""
    layer = _layer(b, node, 1)
    functions = _activations(b, node, ("Tanh",), layer.directions)
    clip = _clipped(b, node)
    parts = []
    for direction in range(layer.directions):
        (f,) = functions[direction]
        recurrence = _part(b, node.input(2), direction)
        bias_x, bias_h = _bias(b, node, direction, layer, 1)
        gates_in = _input_part(b, node, layer, direction, b("add", bias_x, bias_h))

        def step(now: Value, states: tuple[Value, ...], f: Activation = f, r: Value = recurrence) -> tuple[Value, ...]:
            return (f(clip(b("add", now, _product(b, states[0], r)))),)

        states = (_state(b, node, 5, layer, direction),)
        parts.append(_run(b, node, layer, gates_in, states, step, _is_backward(node, direction)))
    return _collected(b, layer, parts)


@operator("GRU")
def gru(b: GraphBuilder, node: Node) -> list[Item]:
    """Update and reset gates; the reset applies before or after the recurrent product."""
    layer = _layer(b, node, 3)
    functions = _activations(b, node, ("Sigmoid", "Tanh"), layer.directions)
    clip, after = _clipped(b, node), node.flag("linear_before_reset")
    hidden = layer.hidden
    parts = []
    for direction in range(layer.directions):
        f, g = functions[direction]
        recurrence = _part(b, node.input(2), direction)
        r_gates, r_new = (
            slice_axis(b, recurrence, 0, 0, 2 * hidden),
            slice_axis(b, recurrence, 0, 2 * hidden, 3 * hidden),
        )
        bias_x, bias_h = _bias(b, node, direction, layer, 3)
        bias_new = slice_axis(b, bias_h, 0, 2 * hidden, 3 * hidden)
        gates_in = _input_part(b, node, layer, direction, bias_x)
        bias_gates = slice_axis(b, bias_h, 0, 0, 2 * hidden)

        def step(
            now: Value,
            states: tuple[Value, ...],
            f: Activation = f,
            g: Activation = g,
            r_gates: Value = r_gates,
            r_new: Value = r_new,
            bias_gates: Value = bias_gates,
            bias_new: Value = bias_new,
        ) -> tuple[Value, ...]:
            h = states[0]
            both = b("add", slice_axis(b, now, 1, 0, 2 * hidden), b("add", _product(b, h, r_gates), bias_gates))
            update, reset = (f(clip(gate)) for gate in _gates(b, both, hidden))
            fresh_in = slice_axis(b, now, 1, 2 * hidden, 3 * hidden)
            if after:
                memory = b("multiply", reset, b("add", _product(b, h, r_new), bias_new))
            else:
                memory = b("add", _product(b, b("multiply", reset, h), r_new), bias_new)
            fresh = g(clip(b("add", fresh_in, memory)))
            keep = b("subtract", like(b, 1, update), update)
            return (b("add", b("multiply", keep, fresh), b("multiply", update, h)),)

        states = (_state(b, node, 5, layer, direction),)
        parts.append(_run(b, node, layer, gates_in, states, step, _is_backward(node, direction)))
    return _collected(b, layer, parts)


@operator("LSTM")
def lstm(b: GraphBuilder, node: Node) -> list[Item]:
    """Input, output and forget gates with a cell state; peepholes where given."""
    layer = _layer(b, node, 4)
    functions = _activations(b, node, ("Sigmoid", "Tanh", "Tanh"), layer.directions)
    clip, coupled = _clipped(b, node), node.flag("input_forget")
    hidden = layer.hidden
    parts = []
    for direction in range(layer.directions):
        f, g, h = functions[direction]
        recurrence = _part(b, node.input(2), direction)
        bias_x, bias_h = _bias(b, node, direction, layer, 4)
        gates_in = _input_part(b, node, layer, direction, b("add", bias_x, bias_h))
        peep = _peepholes(b, node, direction, layer)

        def step(
            now: Value,
            states: tuple[Value, ...],
            f: Activation = f,
            g: Activation = g,
            h: Activation = h,
            r: Value = recurrence,
            peep: Sequence[Value] = peep,
        ) -> tuple[Value, ...]:
            output, cell = states
            i, o, forget, c = _gates(b, b("add", now, _product(b, output, r)), hidden)
            if peep:
                i = b("add", i, b("multiply", peep[0], cell))
                forget = b("add", forget, b("multiply", peep[2], cell))
            i = f(clip(i))
            forget = b("subtract", like(b, 1, i), i) if coupled else f(clip(forget))
            cell = b("add", b("multiply", forget, cell), b("multiply", i, g(clip(c))))
            if peep:
                o = b("add", o, b("multiply", peep[1], cell))
            return b("multiply", f(clip(o)), h(cell)), cell

        states = (_state(b, node, 5, layer, direction), _state(b, node, 6, layer, direction))
        parts.append(_run(b, node, layer, gates_in, states, step, _is_backward(node, direction)))
    return _collected(b, layer, parts)


def _peepholes(b: GraphBuilder, node: Node, direction: int, layer: _Layer) -> list[Value]:
    """The peephole weights of input, output and forget gate, or none."""
    given = node.optional(7)
    if given is None:
        return []
    if shape_of(given) != (layer.directions, 3 * layer.hidden):
        raise ModelError(f"P {list(shape_of(given))} does not fit")
    one = _part(b, given, direction)
    return [slice_axis(b, one, 0, place * layer.hidden, (place + 1) * layer.hidden) for place in range(3)]
