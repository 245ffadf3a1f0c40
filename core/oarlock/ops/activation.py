"""Composite activation functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oarlock.dtypes import DType
from oarlock.errors import ShapeError
from oarlock.ir import TensorType, Value
from oarlock.ops.composite import ELEMENTWISE, composite, in_single, number, wide_reference
from oarlock.ops.elementwise_unary import erf
from oarlock.ops.inference import FLOATS, NUMERIC, check_dtype, elementwise, flag_of, same_dtypes
from oarlock.ops.numerics import quiet
from oarlock.ops.record import Array, ArrayBuilder, Attributes, Record, Tolerance, tensor
from oarlock.ops.sampling import SHAPES, sample, small, specials, uniform, values

__all__ = ["ACTIVATION"]

_SELU_ALPHA = 1.67326319217681884765625
_SELU_GAMMA = 1.05070102214813232421875

Emit = Callable[[ArrayBuilder, Value, Attributes], Value]
Formula = Callable[[Array, Attributes], Any]


def _sigmoid(x: Array) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def _softplus(x: Array) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def emit_sigmoid(b: ArrayBuilder, x: Value) -> Value:
    """1 / (1 + exp(-x)). Where exp(-x) overflows in 32 bits and more, the result is below all normal numbers; in fewer
    it is not: exp(-|x|) is at most 1."""
    one = b.full(1, x)
    if tensor(x).dtype.bits >= 32:
        return b("divide", one, b("add", one, b("exp", b("negative", x))))
    e = b("exp", b("negative", b("abs", x)))
    return b("divide", b("select", b("greater_equal", x, b.full(0, x)), one, e), b("add", one, e))


def emit_softplus(b: ArrayBuilder, x: Value) -> Value:
    """log(1 + exp(x)) without overflow."""
    e = b("exp", b("negative", b("abs", x)))
    return b("add", b("maximum", x, b.full(0, x)), b("log1p", e))


def _scaled_expm1(b: ArrayBuilder, x: Value, alpha: float) -> Value:
    return b("multiply", b.full(alpha, x), b("expm1", b("minimum", x, b.full(0, x))))


def _emit_elu(b: ArrayBuilder, x: Value, attributes: Attributes) -> Value:
    return b("select", b("greater", x, b.full(0, x)), x, _scaled_expm1(b, x, number(attributes, "alpha", 1.0)))


def _elu(x: Array, attributes: Attributes) -> Any:
    return np.where(x > 0, x, number(attributes, "alpha", 1.0) * np.expm1(np.minimum(x, 0)))


def _emit_selu(b: ArrayBuilder, x: Value, attributes: Attributes) -> Value:
    alpha, gamma = number(attributes, "alpha", _SELU_ALPHA), number(attributes, "gamma", _SELU_GAMMA)
    inner = b("select", b("greater", x, b.full(0, x)), x, _scaled_expm1(b, x, alpha))
    return b("multiply", b.full(gamma, x), inner)


def _selu(x: Array, attributes: Attributes) -> Any:
    alpha, gamma = number(attributes, "alpha", _SELU_ALPHA), number(attributes, "gamma", _SELU_GAMMA)
    return gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _emit_celu(b: ArrayBuilder, x: Value, attributes: Attributes) -> Value:
    alpha = number(attributes, "alpha", 1.0)
    scaled = b("expm1", b("divide", b("minimum", x, b.full(0, x)), b.full(alpha, x)))
    return b("add", b("maximum", x, b.full(0, x)), b("multiply", b.full(alpha, x), scaled))


def _celu(x: Array, attributes: Attributes) -> Any:
    alpha = number(attributes, "alpha", 1.0)
    return np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0) / alpha)


def _emit_leaky(b: ArrayBuilder, x: Value, attributes: Attributes) -> Value:
    scaled = b("multiply", x, b.full(number(attributes, "alpha", 0.01), x))
    return b("select", b("greater_equal", x, b.full(0, x)), x, scaled)


def _emit_gelu(b: ArrayBuilder, x: Value, attributes: Attributes) -> Value:
    if flag_of(attributes, "approximate"):  # (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), which loses nothing below 0
        scale = -2 * math.sqrt(2 / math.pi)
        square = b("multiply", x, x)
        factor = b("add", b("multiply", square, b.full(scale * 0.044715, x)), b.full(scale, x))
        return b("divide", x, b("add", b.full(1, x), b("exp", b("multiply", x, factor))))
    shifted = b("add", b.full(1, x), b("erf", b("multiply", x, b.full(math.sqrt(0.5), x))))
    return b("multiply", b("multiply", b.full(0.5, x), x), shifted)


def _gelu(x: Array, attributes: Attributes) -> Any:
    if flag_of(attributes, "approximate"):
        return x / 2 * (1 + np.tanh(np.sqrt(x.dtype.type(2) / math.pi) * (x + 0.044715 * x**3)))
    return x / 2 * (1 + erf(x * np.sqrt(x.dtype.type(0.5))))


def _emit_hard_sigmoid(b: ArrayBuilder, x: Value, attributes: Attributes) -> Value:
    alpha, beta = number(attributes, "alpha", 0.2), number(attributes, "beta", 0.5)
    line = b("add", b("multiply", x, b.full(alpha, x)), b.full(beta, x))
    return b("minimum", b("maximum", line, b.full(0, x)), b.full(1, x))


def _hard_sigmoid(x: Array, attributes: Attributes) -> Any:
    line = number(attributes, "alpha", 0.2) * x + number(attributes, "beta", 0.5)
    return np.minimum(np.maximum(line, 0), 1)


def _infer_clip(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    x, low, high = types
    check_dtype("clip", "the operand", same_dtypes("clip", types), NUMERIC)
    if low.rank or high.rank:
        raise ShapeError(f"clip: the bounds are {low} and {high}, not 0-d")
    return (x,)


@quiet
def _clip(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, low, high = operands
    return (np.minimum(np.maximum(x, low), high),)


def _clip_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    low, high = (np.asarray(v, dtype.numpy) for v in (1, 3))
    calls = [sample(small(dtype, rng, shape), low, high) for shape in ((), (0,), (7,), (3, 5, 2), (257,))]
    return [*calls, sample(specials(dtype), low, high), sample(specials(dtype), high, low)]


def _samples(*choices: dict[str, Any]) -> Callable[..., list[Any]]:
    def make(dtype: DType, rng: np.random.Generator) -> list[Any]:
        calls = []
        for attributes in choices or ({},):
            calls += [sample(values(dtype, rng, shape), **attributes) for shape in SHAPES]
            calls += [
                sample(uniform(dtype, rng, (513,), -9.0, 9.0), **attributes),
                sample(specials(dtype), **attributes),
            ]
        return calls

    return make


def _define(
    name: str,
    summary: str,
    formula: Formula,
    emit: Emit,
    attributes: Sequence[str] = (),
    choices: Sequence[dict[str, Any]] = (),
    tolerance: Tolerance = "elementary",
) -> Record:
    kinds: dict[str, Any] = {key: bool if key == "approximate" else (float, int) for key in attributes}
    return composite(
        name,
        "activation",
        summary,
        "x",
        elementwise(name, FLOATS),
        wide_reference(lambda operands, attributes: (formula(operands[0], attributes),)),
        in_single(lambda b, operands, attributes: (emit(b, operands[0], attributes),)),
        _samples(*choices),
        attributes=kinds,
        optional=tuple(attributes),
        dtypes=FLOATS,
        tolerance=tolerance,
        traits=ELEMENTWISE,
    )


ACTIVATION: tuple[Record, ...] = (
    composite(
        "relu",
        "activation",
        "max(x, 0); NaN stays NaN.",
        "x",
        elementwise("relu", NUMERIC),
        quiet(lambda operands, attributes: (np.maximum(operands[0], operands[0].dtype.type(0)),)),
        lambda b, operands, attributes: (b("maximum", operands[0], b.full(0, operands[0])),),
        _samples(),
        dtypes=NUMERIC,
        traits=ELEMENTWISE,
    ),
    composite(
        "clip",
        "activation",
        "min(max(x, low), high); low and high are 0-d.",
        "x low high",
        _infer_clip,
        _clip,
        lambda b, operands, attributes: (b("minimum", b("maximum", operands[0], operands[1]), operands[2]),),
        _clip_samples,
        dtypes=NUMERIC,
        traits=ELEMENTWISE,
    ),
    _define("sigmoid", "1 / (1 + exp(-x)).", lambda x, _: _sigmoid(x), lambda b, x, _: emit_sigmoid(b, x)),
    _define("softplus", "log(1 + exp(x)).", lambda x, _: _softplus(x), lambda b, x, _: emit_softplus(b, x)),
    _define(
        "silu",
        "x * sigmoid(x).",
        lambda x, _: x * _sigmoid(x),
        lambda b, x, _: b("multiply", x, emit_sigmoid(b, x)),
    ),
    _define(
        "mish",
        "x * tanh(softplus(x)).",
        lambda x, _: x * np.tanh(_softplus(x)),
        lambda b, x, _: b("multiply", x, b("tanh", emit_softplus(b, x))),
    ),
    _define(
        "gelu",
        "x times the normal distribution function of x, by erf or (approximate) by tanh.",
        _gelu,
        _emit_gelu,
        ("approximate",),
        ({}, {"approximate": True}),
    ),
    _define(
        "softsign",
        "x / (1 + |x|).",
        lambda x, _: x / (1 + np.abs(x)),
        lambda b, x, _: b("divide", x, b("add", b.full(1, x), b("abs", x))),
    ),
    _define("elu", "x above 0, else alpha * (exp(x) - 1).", _elu, _emit_elu, ("alpha",), ({}, {"alpha": 0.5})),
    _define("selu", "gamma * elu(x).", _selu, _emit_selu, ("alpha", "gamma"), ({}, {"alpha": 2.0, "gamma": 3.0})),
    _define(
        "celu", "max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)).", _celu, _emit_celu, ("alpha",), ({}, {"alpha": 2.0})
    ),
    _define(
        "leaky_relu",
        "x from 0 up, else alpha * x.",
        lambda x, attributes: np.where(x >= 0, x, number(attributes, "alpha", 0.01) * x),
        _emit_leaky,
        ("alpha",),
        ({}, {"alpha": 0.3}),
        "arithmetic",
    ),
    _define(
        "hard_sigmoid",
        "alpha * x + beta, held within [0, 1].",
        _hard_sigmoid,
        _emit_hard_sigmoid,
        ("alpha", "beta"),
        ({}, {"alpha": 1 / 6, "beta": 0.5}),
        "arithmetic",
    ),
    _define(
        "hard_swish",
        "x * hard_sigmoid(x) with alpha 1/6 and beta 1/2.",
        lambda x, _: x * _hard_sigmoid(x, {"alpha": 1 / 6}),
        lambda b, x, _: b("multiply", x, _emit_hard_sigmoid(b, x, {"alpha": 1 / 6})),
        tolerance="arithmetic",
    ),
)
"""Their records."""
