"""The optimisers of the preview training domain: Adagrad, Adam, Momentum."""

from __future__ import annotations

from collections.abc import Sequence

from oarlock import dtypes
from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder
from oarlock_onnx.node import Item, Node
from oarlock_onnx.operators.common import cast, dtype_of, like
from oarlock_onnx.registry import operator

__all__: list[str] = []

_DOMAIN = "ai.onnx.preview.training"


def _groups(node: Node, kinds: int) -> list[tuple[Value, ...]]:
    """The tensors after rate and count: (value, gradient, states ...) for each that is optimised."""
    values = [node.input(place) for place in range(2, len(node))]
    if not values or len(values) % kinds:
        raise ModelError(f"{len(values)} tensors do not make groups of {kinds}")
    count = len(values) // kinds
    return [tuple(values[kind * count + place] for kind in range(kinds)) for place in range(count)]


def _regularised(b: GraphBuilder, node: Node, x: Value, gradient: Value) -> Value:
    return b("add", b("multiply", like(b, node.real("norm_coefficient", 0.0), x), x), gradient)


def _blend(b: GraphBuilder, old: Value, new: Value, keep: float) -> Value:
    return b("add", b("multiply", like(b, keep, old), old), b("multiply", like(b, 1 - keep, new), new))


def _by_kind(results: Sequence[tuple[Value, ...]]) -> list[Item]:
    return [group[kind] for kind in range(len(results[0])) for group in results]


@operator("Adagrad", domain=_DOMAIN)
def adagrad(b: GraphBuilder, node: Node) -> list[Item]:
    """One step with accumulated squared gradients."""
    rate, count = node.input(0), node.input(1)
    results = []
    for x, gradient, squares in _groups(node, 3):
        decay = b("multiply", cast(b, count, dtype_of(rate)), like(b, node.real("decay_factor", 0.0), rate))
        step = b("divide", rate, b("add", like(b, 1, rate), decay))
        g = _regularised(b, node, x, gradient)
        fresh = b("add", squares, b("multiply", g, g))
        below = b("add", b("sqrt", fresh), like(b, node.real("epsilon", 1e-6), fresh))
        results.append((b("subtract", x, b("divide", b("multiply", cast(b, step, dtype_of(x)), g), below)), fresh))
    return _by_kind(results)


@operator("Adam", domain=_DOMAIN)
def adam(b: GraphBuilder, node: Node) -> list[Item]:
    """One step with averaged gradients and squared gradients."""
    rate, count = node.input(0), node.input(1)
    alpha, beta = node.real("alpha", 0.9), node.real("beta", 0.999)
    results = []
    for x, gradient, first, second in _groups(node, 4):
        g = _regularised(b, node, x, gradient)
        mean, square = _blend(b, first, g, alpha), _blend(b, second, b("multiply", g, g), beta)
        below = b("add", b("sqrt", square), like(b, node.real("epsilon", 1e-6), square))
        step = cast(b, _adam_rate(b, rate, count, alpha, beta), dtype_of(x))
        moved = b("subtract", x, b("divide", b("multiply", step, mean), below))
        post = like(b, 1 - node.real("norm_coefficient_post", 0.0), moved)
        results.append((b("multiply", post, moved), mean, square))
    return _by_kind(results)


def _adam_rate(b: GraphBuilder, rate: Value, count: Value, alpha: float, beta: float) -> Value:
    t = cast(b, count, dtype_of(rate))
    one = like(b, 1, rate)
    falls = [b("subtract", one, b("power", like(b, factor, rate), t)) for factor in (beta, alpha)]
    adjusted = b("divide", b("multiply", rate, b("sqrt", falls[0])), falls[1])
    return b("select", b("greater", t, like(b, 0, t)), adjusted, rate)


@operator("Momentum", domain=_DOMAIN)
def momentum(b: GraphBuilder, node: Node) -> list[Item]:
    """One step with momentum, plain or Nesterov's."""
    rate, count, mode = node.input(0), node.input(1), node.string("mode")
    if mode not in ("standard", "nesterov"):
        raise ModelError(f"mode {mode!r} is not standard or nesterov")
    results = []
    for x, gradient, velocity in _groups(node, 3):
        kind = dtype_of(x)
        g = _regularised(b, node, x, gradient)
        later = b("greater", cast(b, count, dtypes.int32), b.constant(0, dtypes.int32))
        beta = b("select", later, like(b, node.real("beta"), x), like(b, 1, x))
        alpha = like(b, node.real("alpha"), x)
        fresh = b("add", b("multiply", alpha, velocity), b("multiply", beta, g))
        move = fresh if mode == "standard" else b("add", g, b("multiply", alpha, fresh))
        results.append((b("subtract", x, b("multiply", cast(b, rate, kind), move)), fresh))
    return _by_kind(results)
