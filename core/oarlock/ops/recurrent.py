"""Composite steps of recurrent networks: LSTM, GRU and plain RNN cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oarlock.dtypes import DType
from oarlock.errors import ShapeError
from oarlock.ir import TensorType, Value
from oarlock.ops.activation import emit_sigmoid
from oarlock.ops.build import split
from oarlock.ops.composite import Decompose, composite, in_single, wide_reference
from oarlock.ops.inference import FLOATS, check_dtype, flag_of, same_dtypes, static_shape
from oarlock.ops.record import Array, ArrayBuilder, Attributes, Infer, Record, tensor
from oarlock.ops.sampling import Samples, sample, small

__all__ = ["RECURRENT"]


def _infer(name: str, gates: int, states: int, biases: int) -> Infer:
    """x [N, I], ``states`` of [N, H], w [gates*H, I], r [gates*H, H], ``biases`` of [gates*H]; the states again."""

    def infer(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        check_dtype(name, "the operand", same_dtypes(name, types), FLOATS)
        x, h = types[0], types[1]
        static_shape(name, "w", types[1 + states])
        if x.rank != 2 or h.rank != 2:
            raise ShapeError(f"{name}: x is {x} and the state {h}, but [N, I] and [N, H] are needed")
        rows = h.shape[1] * gates
        wanted = [x.shape, *[(x.shape[0], h.shape[1])] * states, (rows, x.shape[1]), (rows, h.shape[1])]
        wanted += [(rows,)] * biases
        for place, (given, shape) in enumerate(zip(types, wanted, strict=True)):
            if given.shape != shape:
                raise ShapeError(f"{name}: operand {place} is {given}, but {TensorType(given.dtype, shape)} is needed")
        return types[1 : 1 + states]

    return infer


def _product(b: ArrayBuilder, x: Value, w: Value, bias: Value) -> Value:
    """x w^T + bias."""
    y = b("dot_general", x, w, batch=((), ()), contract=((1,), (1,)), dtype=tensor(x).dtype)
    return b("add", y, bias)


def _gates(b: ArrayBuilder, y: Value, count: int) -> list[Value]:
    return split(b, y, [static_shape("cell", "the gates", tensor(y), 1)[0] // count] * count, 1)


def _emit_lstm(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, h, c, w, r, bias = operands
    recurrent = b("dot_general", h, r, batch=((), ()), contract=((1,), (1,)), dtype=tensor(h).dtype)
    i, o, f, g = _gates(b, b("add", _product(b, x, w, bias), recurrent), 4)
    kept = b("multiply", emit_sigmoid(b, f), c)
    cell = b("add", kept, b("multiply", emit_sigmoid(b, i), b("tanh", g)))
    return (b("multiply", emit_sigmoid(b, o), b("tanh", cell)), cell)


def _emit_gru(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, h, w, r, bias, recurrent_bias = operands
    parts = zip(_gates(b, _product(b, x, w, bias), 3), _gates(b, _product(b, h, r, recurrent_bias), 3), strict=True)
    (xz, hz), (xr, hr), (xn, hn) = parts
    z, reset = emit_sigmoid(b, b("add", xz, hz)), emit_sigmoid(b, b("add", xr, hr))
    if flag_of(attributes, "linear_before_reset"):
        inner = b("multiply", reset, hn)
    else:
        rows = tensor(r).static_shape[0] // 3
        weights, offset = split(b, r, [2 * rows, rows], 0)[1], split(b, recurrent_bias, [2 * rows, rows], 0)[1]
        inner = _product(b, b("multiply", reset, h), weights, offset)
    new = b("tanh", b("add", xn, inner))
    return (b("add", b("multiply", b("subtract", b.full(1, z), z), new), b("multiply", z, h)),)


def _emit_rnn(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, h, w, r, bias = operands
    recurrent = b("dot_general", h, r, batch=((), ()), contract=((1,), (1,)), dtype=tensor(h).dtype)
    return (b("tanh", b("add", _product(b, x, w, bias), recurrent)),)


def _sigmoid(x: Array) -> Any:
    return (1 + np.tanh(x / 2)) / 2


def _lstm(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, h, c, w, r, bias = operands
    i, o, f, g = np.split(x @ w.T + h @ r.T + bias, 4, 1)
    cell = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return (_sigmoid(o) * np.tanh(cell), cell)


def _gru(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, h, w, r, bias, recurrent_bias = operands
    (wz, wr, wn), (rz, rr, rn) = np.split(w, 3), np.split(r, 3)
    (bz, br, bn), (cz, cr, cn) = np.split(bias, 3), np.split(recurrent_bias, 3)
    z = _sigmoid(x @ wz.T + h @ rz.T + bz + cz)
    reset = _sigmoid(x @ wr.T + h @ rr.T + br + cr)
    inner = reset * (h @ rn.T + cn) if flag_of(attributes, "linear_before_reset") else (reset * h) @ rn.T + cn
    return ((1 - z) * np.tanh(x @ wn.T + inner + bn) + z * h,)


def _rnn(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, h, w, r, bias = operands
    return (np.tanh(x @ w.T + h @ r.T + bias),)


def _samples(gates: int, states: int, biases: int, *choices: dict[str, Any]) -> Samples:
    def make(dtype: DType, rng: np.random.Generator) -> list[Any]:
        calls = []
        for n, inputs, hidden in ((1, 1, 1), (2, 3, 5), (7, 33, 17), (0, 2, 3)):
            rows = gates * hidden
            shapes = [(n, inputs), *[(n, hidden)] * states, (rows, inputs), (rows, hidden), *[(rows,)] * biases]
            for attributes in choices or ({},):
                calls.append(sample(*(small(dtype, rng, shape, 1) for shape in shapes), **attributes))
        return calls

    return make


def _define(
    name: str,
    summary: str,
    operands: str,
    counts: tuple[int, int, int],
    reference: Callable[..., Any],
    emit: Decompose,
    choices: Sequence[dict[str, Any]] = (),
) -> Record:
    return composite(
        name,
        "recurrent",
        summary,
        operands,
        _infer(name, *counts),
        wide_reference(reference),
        in_single(emit),
        _samples(*counts, *choices),
        attributes={"linear_before_reset": bool} if choices else {},
        optional=["linear_before_reset"] if choices else [],
        dtypes=FLOATS,
        tolerance="contraction",
        results=counts[1],
    )


RECURRENT: tuple[Record, ...] = (
    _define(
        "lstm_cell",
        "One step of an LSTM: (h', c') from x [N, I], h and c [N, H]; rows of w, r, bias in the order input, output, "
        "forget, cell.",
        "x h c w r bias",
        (4, 2, 1),
        _lstm,
        _emit_lstm,
    ),
    _define(
        "gru_cell",
        "One step of a GRU: h' from x [N, I] and h [N, H]; rows of w, r, biases in the order update, reset, hidden.",
        "x h w r bias recurrent_bias",
        (3, 1, 2),
        _gru,
        _emit_gru,
        ({"linear_before_reset": False}, {"linear_before_reset": True}),
    ),
    _define(
        "rnn_cell",
        "One step of a plain RNN: tanh(x w^T + h r^T + bias).",
        "x h w r bias",
        (1, 1, 1),
        _rnn,
        _emit_rnn,
    ),
)
"""Their records."""
