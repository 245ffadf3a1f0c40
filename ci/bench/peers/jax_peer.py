"""JAX, jitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from ci.bench.peers import Array, Call, CannotError, as_list
from ci.bench.vocabulary import Vocabulary

if TYPE_CHECKING:
    from ci.bench.works import Work

__all__ = ["make"]


class JaxWords(Vocabulary):
    exp = staticmethod(jnp.exp)
    tanh = staticmethod(jnp.tanh)
    abs = staticmethod(jnp.abs)
    rsqrt = staticmethod(jax.lax.rsqrt)
    clip = staticmethod(jnp.clip)
    matmul = staticmethod(jnp.matmul)
    reshape = staticmethod(jnp.reshape)
    transpose = staticmethod(jnp.transpose)
    silu = staticmethod(jax.nn.silu)
    softmax = staticmethod(jax.nn.softmax)

    def mean(self, x: Any) -> Any:
        return jnp.mean(x, axis=-1, keepdims=True)

    def sum(self, x: Any) -> Any:
        return jnp.sum(x, axis=-1, keepdims=True)

    def max(self, x: Any) -> Any:
        return jnp.max(x, axis=-1, keepdims=True)

    def concat(self, parts: Sequence[Any], axis: int) -> Any:
        return jnp.concatenate(parts, axis=axis)

    def cut(self, x: Any, start: int, stop: int) -> Any:
        return x[..., start:stop]

    def cumsum(self, x: Any) -> Any:
        return jnp.cumsum(x, axis=-1)

    def sort(self, x: Any) -> Any:
        return jnp.sort(x, axis=-1)

    def largest(self, x: Any, count: int) -> Any:
        return jax.lax.top_k(x, count)[0]

    def take(self, x: Any, indices: Any) -> Any:
        return jnp.take(x, indices, axis=0)

    def scatter_add(self, x: Any, indices: Any) -> Any:
        return jnp.zeros_like(x).at[indices].add(x)

    def gelu(self, x: Any) -> Any:
        return jax.nn.gelu(x, approximate=True)


class JaxPeer:
    def version(self) -> str:
        return str(jax.__version__)

    def prepare(self, work: Work, arrays: Mapping[str, Array]) -> Call:
        words = JaxWords()
        operands = [jax.device_put(array) for array in arrays.values()]

        def function(*values: Any) -> Any:
            return work.function(words, *values)

        # what is called one operator at a time is not jitted
        called = jax.jit(function) if work.compiled else function
        held: list[Any] = []

        def run() -> None:
            held[:] = [jax.block_until_ready(called(*operands))]

        return Call(run, lambda: as_list(held[0]))

    def prepare_model(self, path: Path, arrays: Mapping[str, Array]) -> Call:
        raise CannotError("models are measured on PyTorch and ONNX Runtime alone")


def make() -> JaxPeer:
    return JaxPeer()
