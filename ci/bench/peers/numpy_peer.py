"""NumPy, which is also the float64 reference of every work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from ci.bench.peers import Array, Call, CannotError, as_list
from ci.bench.vocabulary import Vocabulary

if TYPE_CHECKING:
    from ci.bench.works import Work

__all__ = ["NumpyWords", "make"]


class NumpyWords(Vocabulary):
    """Operators of NumPy, one by one."""

    def exp(self, x: Array) -> Array:
        return np.exp(x)

    def tanh(self, x: Array) -> Array:
        return np.tanh(x)

    def abs(self, x: Array) -> Array:
        return np.abs(x)

    def rsqrt(self, x: Array) -> Array:
        return 1 / np.sqrt(x)

    def clip(self, x: Array, low: float, high: float) -> Array:
        return np.clip(x, low, high)

    def mean(self, x: Array) -> Array:
        return np.mean(x, axis=-1, keepdims=True)

    def sum(self, x: Array) -> Array:
        return np.sum(x, axis=-1, keepdims=True)

    def max(self, x: Array) -> Array:
        return np.max(x, axis=-1, keepdims=True)

    def matmul(self, a: Array, b: Array) -> Array:
        return np.matmul(a, b)

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        return np.reshape(x, shape)

    def transpose(self, x: Array, axes: Sequence[int]) -> Array:
        return np.transpose(x, axes)

    def concat(self, parts: Sequence[Array], axis: int) -> Array:
        return np.concatenate(parts, axis=axis)

    def cut(self, x: Array, start: int, stop: int) -> Array:
        return x[..., start:stop]

    def cumsum(self, x: Array) -> Array:
        return np.cumsum(x, axis=-1)

    def sort(self, x: Array) -> Array:
        return np.sort(x, axis=-1)

    def largest(self, x: Array, count: int) -> Array:
        return np.sort(np.partition(x, x.shape[-1] - count, axis=-1)[..., -count:], axis=-1)[..., ::-1]

    def take(self, x: Array, indices: Array) -> Array:
        return np.take(x, indices, axis=0)

    def scatter_add(self, x: Array, indices: Array) -> Array:
        made = np.zeros_like(x)
        np.add.at(made, indices, x)
        return made


class NumpyPeer:
    def version(self) -> str:
        return np.__version__

    def prepare(self, work: Work, arrays: Mapping[str, Array]) -> Call:
        words, held = NumpyWords(), list[object]()

        def run() -> None:
            held[:] = [work.function(words, *arrays.values())]

        return Call(run, lambda: as_list(held[0]))

    def prepare_model(self, path: Path, arrays: Mapping[str, Array]) -> Call:
        raise CannotError("NumPy reads no models")


def make() -> NumpyPeer:
    return NumpyPeer()
