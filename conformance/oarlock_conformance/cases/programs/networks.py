"""Cases on what networks are made of, composed from operators: norms, activations, embeddings, an update, attention.

A compiler fuses each into one kernel or a few; sizes lie around those of vectors, rows and stretches of kernels. Values
are compared with NumPy in float64, to 64 units in the last place of the largest value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import oarlock as ol
from oarlock_conformance.case import Failure
from oarlock_conformance.cases.programs.register import Stage, program_case

UNITS = 64
"""Units in the last place of the largest value: exponentials and sums of up to 2,049 terms lose fewer than half."""
EDGES = (1, 7, 255, 256, 257, 1023, 1025, 2049)

Function = Callable[..., Any]


def _close(what: str, got: np.ndarray, want: np.ndarray) -> None:
    if got.shape != want.shape:
        raise Failure(f"{what}: shape {got.shape}, expected {want.shape}")
    allowed = UNITS * np.finfo(np.float32).eps * np.max(np.abs(want[np.isfinite(want)]), initial=1.0)
    wrong = ~((np.abs(got - want) <= allowed) | (np.isnan(got) & np.isnan(want)))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise Failure(f"{what} at {at}: {got[at]}, expected {want[at]} within {allowed:.3g}; {wrong.sum()} are wrong")


def _compare(stage: Stage, what: str, function: Function, exact: Function, *operands: np.ndarray) -> None:
    got = np.asarray(function(*(ol.asarray(x, device=stage.device) for x in operands)))
    with np.errstate(all="ignore"):
        _close(f"{what} of {', '.join(str(x.shape) for x in operands)}", got, exact(*map(np.float64, operands)))


def _rms_norm(x: Any, weight: Any, f: Any) -> Any:
    return x / f.sqrt(f.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weight


def _layer_norm(x: Any, weight: Any, f: Any) -> Any:
    centred = x - f.mean(x, axis=-1, keepdims=True)
    return centred / f.sqrt(f.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * weight


def _softmax(x: Any, weight: Any, f: Any) -> Any:
    power = f.exp(x - f.max(x, axis=-1, keepdims=True))
    return power / f.sum(power, axis=-1, keepdims=True) * weight


def _log_softmax(x: Any, weight: Any, f: Any) -> Any:
    shifted = x - f.max(x, axis=-1, keepdims=True)
    return shifted - f.log(f.sum(f.exp(shifted), axis=-1, keepdims=True)) * weight


ROWS: dict[str, Function] = {
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
}


def _row_case(name: str, function: Function) -> None:
    @program_case(f"networks.rows/{name}", f"{name}, composed, on rows of every length")
    def check(stage: Stage) -> None:
        for columns in EDGES:
            x, weight = stage.random(3, columns, seed=columns), stage.random(columns, seed=1)
            _compare(stage, name, lambda x, w: function(x, w, ol), lambda x, w: function(x, w, np), x, weight)


for _name in ROWS:
    _row_case(_name, ROWS[_name])


def _gelu(x: Any, y: Any, f: Any) -> Any:
    return 0.5 * x * (1 + f.tanh(0.7978845608 * (x + 0.044715 * x * x * x))) + 0 * y


def _swiglu(x: Any, y: Any, f: Any) -> Any:
    return x / (1 + f.exp(-x)) * y


def _bias(x: Any, y: Any, f: Any) -> Any:
    return f.maximum(x + y[0:1], f.zeros_like(x))


def _rotary(x: Any, y: Any, f: Any) -> Any:
    half = x.shape[-1] // 2
    left, right, angle = x[..., :half], x[..., half : 2 * half], y[..., :half]
    parts = (left * f.cos(angle) - right * f.sin(angle), right * f.cos(angle) + left * f.sin(angle))
    return f.concat(parts, axis=-1) if f is ol else np.concatenate(parts, axis=-1)


def _dropout(x: Any, y: Any, f: Any) -> Any:
    return f.where(y > -0.5, x / 0.9, f.zeros_like(x))


def _adam(x: Any, y: Any, f: Any) -> Any:
    first, second = 0.9 * x + 0.1 * y, 0.999 * x * x + 0.001 * y * y
    return x - 0.01 * (first / 0.19) / (f.sqrt(second / 0.002) + 1e-8)


ELEMENTS: dict[str, Function] = {
    "gelu": _gelu, "swiglu": _swiglu, "bias": _bias, "rotary": _rotary, "dropout": _dropout, "adam": _adam,
}  # fmt: skip


def _element_case(name: str, function: Function) -> None:
    @program_case(f"networks.elements/{name}", f"{name}, composed, on every number of elements")
    def check(stage: Stage) -> None:
        for columns in EDGES[1:]:
            x, y = stage.random(5, columns, seed=columns), stage.random(5, columns, seed=1)
            _compare(stage, name, lambda x, y: function(x, y, ol), lambda x, y: function(x, y, np), x, y)


for _name in ELEMENTS:
    _element_case(_name, ELEMENTS[_name])


def attend(operands: Sequence[Any], f: Any) -> Any:
    """softmax(q k^T / 8 + mask) v, over (heads, rows, depth)."""
    q, k, v, mask = operands
    turned = ol.permute_dims(k, (0, 2, 1)) if f is ol else np.swapaxes(k, 1, 2)
    scores = f.matmul(q, turned) * 0.125 + mask
    power = f.exp(scores - f.max(scores, axis=-1, keepdims=True))
    return f.matmul(power / f.sum(power, axis=-1, keepdims=True), v)


def _attention_case(name: str, contract: str, hidden: Callable[[int, int], np.ndarray]) -> None:
    @program_case(f"networks.attention/{name}", contract)
    def check(stage: Stage) -> None:
        for rows, keys, depth, columns in ((16, 16, 8, 8), (33, 33, 16, 40), (17, 257, 64, 64), (128, 300, 5, 7)):
            q, k = stage.random(2, rows, depth), stage.random(2, keys, depth, seed=1)
            v, mask = stage.random(2, keys, columns, seed=2), np.zeros((rows, keys), np.float32)
            mask[hidden(rows, keys)] = -np.inf
            operands = (q, k, v, mask)
            _compare(stage, "attention", lambda *x: attend(x, ol), lambda *x: attend(x, np), *operands)


def _nothing(rows: int, keys: int) -> np.ndarray:
    return np.zeros((rows, keys), bool)


def _later(rows: int, keys: int) -> np.ndarray:
    return np.arange(keys)[None, :] > np.arange(rows)[:, None]


def _first(rows: int, keys: int) -> np.ndarray:
    return np.broadcast_to(np.arange(keys)[None, :] < keys - 5, (rows, keys))


def _a_row(rows: int, keys: int) -> np.ndarray:
    return np.broadcast_to(np.arange(rows)[:, None] == 3, (rows, keys))


_attention_case("plain", "attention, composed, over few and many keys", _nothing)
_attention_case("causal", "attention whose rows see no later key", _later)
_attention_case("first", "attention whose first keys are all hidden: nothing is there to begin with", _first)
_attention_case("row", "attention of a row that sees no key is NaN, and of no other row", _a_row)
