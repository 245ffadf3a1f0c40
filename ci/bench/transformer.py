"""A Llama-style block and a decoder of four, written once for all peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ci.bench.peers import Array
from ci.bench.vocabulary import Value, Vocabulary
from ci.bench.works import Ask, Work, ahead, faster, within

__all__ = ["Shape", "layers_work", "transformer_works"]

_PEERS = (
    "numpy", "torch", "torch-compile", "jax", "onnxruntime", "onnxruntime-plain", "oarlock", "oarlock-unfused",
    "oarlock-opencl",
)  # fmt: skip
"""Not tinygrad, whose search takes minutes a kernel."""
_WEIGHTS = ("norm1", "wq", "wk", "wv", "wo", "norm2", "gate", "up", "down")


@dataclass(frozen=True, slots=True)
class Shape:
    """Extents; ``tokens`` are computed, ``past`` lie in the cache."""

    hidden: int = 512
    heads: int = 8
    inner: int = 1376
    tokens: int = 128
    past: int = 0
    layers: int = 1

    @property
    def head(self) -> int:
        return self.hidden // self.heads

    def weights(self, generator: np.random.Generator) -> dict[str, Array]:
        """The weights of all layers, shaped (out, in), and of the last norm."""
        h, inner = self.hidden, self.inner
        shapes = ((h,), (h, h), (h, h), (h, h), (h, h), (h,), (inner, h), (inner, h), (h, inner))
        made: dict[str, Array] = {}
        for layer in range(self.layers):
            for name, shape in zip(_WEIGHTS, shapes, strict=True):
                drawn = generator.standard_normal(shape, np.float32)
                made[f"{name}_{layer}"] = drawn / np.float32(np.sqrt(shape[-1])) if len(shape) == 2 else drawn
        return made | {"norm": generator.standard_normal(h, np.float32)}

    def positions(self) -> dict[str, Array]:
        """Cosines and sines of the rotary embedding for the tokens that are computed."""
        rates = 10000.0 ** (-np.arange(self.head // 2) / (self.head // 2))
        angles = np.outer(np.arange(self.past, self.past + self.tokens), rates)
        return {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}

    def mask(self) -> dict[str, Array]:
        """0 where a token may look, -1e9 where it may not; nothing for a single token."""
        if self.tokens == 1:
            return {}
        later = np.triu(np.ones((self.tokens, self.tokens), bool), 1)
        return {"mask": np.where(later, np.float32(-1e9), np.float32(0))}

    def caches(self, generator: np.random.Generator) -> dict[str, Array]:
        if not self.past:
            return {}
        names = [f"{kind}_{layer}" for layer in range(self.layers) for kind in ("keys", "values")]
        return {name: generator.standard_normal((self.heads, self.past, self.head), np.float32) for name in names}

    def inputs(self, generator: np.random.Generator) -> Mapping[str, Array]:
        x = generator.standard_normal((self.tokens, self.hidden), np.float32)
        return {"x": x, **self.caches(generator), **self.positions(), **self.mask(), **self.weights(generator)}


def _rotate(v: Vocabulary, x: Value, half: int, cos: Value, sin: Value) -> Value:
    left, right = v.cut(x, 0, half), v.cut(x, half, 2 * half)
    return v.concat([left * cos - right * sin, right * cos + left * sin], -1)


def _heads(v: Vocabulary, x: Value, shape: Shape) -> Value:
    return v.transpose(v.reshape(x, (shape.tokens, shape.heads, shape.head)), (1, 0, 2))


def _block(v: Vocabulary, shape: Shape, x: Value, w: Mapping[str, Value], at: Mapping[str, Value]) -> list[Value]:
    """The block's result, and its keys and values with those of the cache before them."""
    cos, sin = at["cos"], at["sin"]
    h = v.rms_norm(x, w["norm1"])
    q, k = (_rotate(v, _heads(v, v.linear(h, w[n]), shape), shape.head // 2, cos, sin) for n in ("wq", "wk"))
    values = _heads(v, v.linear(h, w["wv"]), shape)
    if "keys" in at:
        k, values = v.concat([at["keys"], k], 1), v.concat([at["values"], values], 1)
    seen = v.transpose(v.attention(q, k, values, at.get("mask")), (1, 0, 2))
    x = x + v.linear(v.reshape(seen, (shape.tokens, shape.hidden)), w["wo"])
    h = v.rms_norm(x, w["norm2"])
    return [x + v.linear(v.silu(v.linear(h, w["gate"])) * v.linear(h, w["up"]), w["down"]), k, values]


def _decoder(shape: Shape, with_cache: bool) -> Callable[..., Any]:
    """A function of ``Shape.inputs`` in order: the last norm's result, then each layer's keys and values."""
    names = list(shape.inputs(np.random.default_rng(0)))

    def function(v: Vocabulary, *operands: Value) -> Any:
        named = dict(zip(names, operands, strict=True))
        x, kept = named["x"], []
        for layer in range(shape.layers):
            at: dict[str, Value] = {name: named[name] for name in named if name in ("cos", "sin", "mask")}
            at |= {name: named[f"{name}_{layer}"] for name in ("keys", "values") if f"{name}_{layer}" in named}
            x, *pair = _block(v, shape, x, {name: named[f"{name}_{layer}"] for name in _WEIGHTS}, at)
            kept += pair
        y = v.rms_norm(x, named["norm"])
        return [y, *kept] if with_cache else y

    return function


def _work(name: str, title: str, shape: Shape, asks: Sequence[Ask], with_cache: bool) -> Work:
    weights = tuple(n for n in shape.inputs(np.random.default_rng(0)) if n != "x" and not n.startswith(("keys", "val")))
    return Work(
        name, title, shape.inputs, _decoder(shape, with_cache), weights, tuple(asks), tolerance=2e-3, group="networks",
        peers=_PEERS,
    )  # fmt: skip


def layers_work(shape: Shape) -> Work:
    """As many blocks as ``shape`` has layers, for the plots of growth."""
    return _work(f"layers-{shape.layers}", f"{shape.layers} blocks of hidden {shape.hidden}", shape, (), False)


def transformer_works(scale: int = 1) -> list[Work]:
    """The block, the decoder's prefill and one token; ``scale`` divides the extents, for tests."""
    hidden, inner, tokens = 512 // scale, 1376 // scale, 128 // scale
    block = Shape(hidden, inner=inner, tokens=tokens)
    prefill = Shape(hidden, inner=inner, tokens=tokens, layers=4)
    token = Shape(hidden, inner=inner, tokens=1, past=tokens, layers=4)
    fusion = (faster(1.5, "oarlock-unfused"), within(1.2, "torch", "oarlock-unfused"))
    size = f"hidden {hidden}, 8 heads"
    return [
        _work("llama-block", f"Llama-style block, {size}, {tokens} tokens", block, (ahead(), *fusion), False),
        _work("decoder-prefill", f"4-layer decoder, {size}, prefill {tokens}", prefill, (ahead(),), True),
        _work("decoder-token", f"4-layer decoder, {size}, one token after {tokens}", token, (ahead(),), True),
    ]
