"""What works are written in: one set of words that each peer says in its own library's best way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["Value", "Vocabulary"]

Value = Any
"""An array of the peer's library, or a node of its graph; has ``+ - * /`` with others and with Python numbers."""


class Vocabulary:
    """Words over arrays. What is defined here is composed from the others: a peer replaces it by its library's own."""

    EPSILON = 1e-5

    # --- every peer says these ---

    def exp(self, x: Value) -> Value: ...

    def tanh(self, x: Value) -> Value: ...

    def abs(self, x: Value) -> Value: ...

    def rsqrt(self, x: Value) -> Value: ...

    def clip(self, x: Value, low: float, high: float) -> Value: ...

    def mean(self, x: Value) -> Value:
        """Over the last axis, which is kept with extent 1; so are ``sum`` and ``max``."""

    def sum(self, x: Value) -> Value: ...

    def max(self, x: Value) -> Value: ...

    def matmul(self, a: Value, b: Value) -> Value: ...

    def reshape(self, x: Value, shape: Sequence[int]) -> Value: ...

    def transpose(self, x: Value, axes: Sequence[int]) -> Value: ...

    def concat(self, parts: Sequence[Value], axis: int) -> Value: ...

    def cut(self, x: Value, start: int, stop: int) -> Value:
        """Elements ``start`` to ``stop`` of the last axis."""

    def cumsum(self, x: Value) -> Value:
        """Running sums along the last axis; ``sort`` and ``largest`` go along it too."""

    def sort(self, x: Value) -> Value: ...

    def largest(self, x: Value, count: int) -> Value:
        """The ``count`` largest, the largest first."""

    def take(self, x: Value, indices: Value) -> Value:
        """The rows of ``x`` at ``indices``."""

    def scatter_add(self, x: Value, indices: Value) -> Value:
        """Zeros of the shape of ``x``, to whose rows at ``indices`` those of ``x`` are added."""

    # --- composed ---

    def linear(self, x: Value, weight: Value) -> Value:
        """``x`` times the transpose of ``weight``, whose shape is (out, in)."""
        return self.matmul(x, self.transpose(weight, (1, 0)))

    def silu(self, x: Value) -> Value:
        return x / (self.exp(x * -1.0) + 1.0)

    def gelu(self, x: Value) -> Value:
        """By the tanh approximation."""
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * (self.tanh(inner) + 1.0) * 0.5

    def softmax(self, x: Value) -> Value:
        e = self.exp(x - self.max(x))
        return e / self.sum(e)

    def layer_norm(self, x: Value, weight: Value, bias: Value) -> Value:
        centred = x - self.mean(x)
        return centred * self.rsqrt(self.mean(centred * centred) + self.EPSILON) * weight + bias

    def rms_norm(self, x: Value, weight: Value) -> Value:
        return x * self.rsqrt(self.mean(x * x) + self.EPSILON) * weight

    def attention(self, q: Value, k: Value, v: Value, mask: Value | None) -> Value:
        """softmax(q k^T / sqrt(d) + mask) v for (heads, tokens, d); a mask is causal, None where all may be seen."""
        scale = 1 / math.sqrt(self.head_size(q))
        scores = self.matmul(q, self.transpose(k, (0, 2, 1))) * scale
        return self.matmul(self.softmax(scores if mask is None else scores + mask), v)

    def head_size(self, q: Value) -> int:
        return int(q.shape[-1])
