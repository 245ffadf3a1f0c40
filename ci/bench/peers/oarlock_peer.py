"""Oarlock: everything composed from array operators, or a model through its importer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ci.bench.peers import Array, Call, as_list
from ci.bench.vocabulary import Vocabulary

import oarlock as ol
from oarlock.program.tape import apply, apply_many

if TYPE_CHECKING:
    from ci.bench.works import Work

__all__ = ["make"]


class OarlockWords(Vocabulary):
    """Array operators; norms by root mean square and attention are left composed.

    Two operators of the catalogue have no array function, and are applied by their names.
    """

    exp = staticmethod(lambda x: ol.exp(x))
    tanh = staticmethod(lambda x: ol.tanh(x))
    abs = staticmethod(lambda x: ol.abs(x))
    rsqrt = staticmethod(lambda x: ol.rsqrt(x))
    silu = staticmethod(lambda x: ol.silu(x))
    clip = staticmethod(lambda x, low, high: ol.clip(x, low, high))
    matmul = staticmethod(lambda a, b: ol.matmul(a, b))
    softmax = staticmethod(lambda x: ol.softmax(x, axis=-1))

    def mean(self, x: Any) -> Any:
        return ol.mean(x, axis=-1, keepdims=True)

    def sum(self, x: Any) -> Any:
        return ol.sum(x, axis=-1, keepdims=True)

    def max(self, x: Any) -> Any:
        return ol.max(x, axis=-1, keepdims=True)

    def reshape(self, x: Any, shape: Sequence[int]) -> Any:
        return ol.reshape(x, tuple(shape))

    def transpose(self, x: Any, axes: Sequence[int]) -> Any:
        return ol.permute_dims(x, tuple(axes))

    def concat(self, parts: Sequence[Any], axis: int) -> Any:
        return ol.concat(list(parts), axis=axis)

    def cut(self, x: Any, start: int, stop: int) -> Any:
        return x[..., start:stop]

    def cumsum(self, x: Any) -> Any:
        return ol.cumulative_sum(x, axis=-1)

    def sort(self, x: Any) -> Any:
        return ol.sort(x, axis=-1)

    def largest(self, x: Any, count: int) -> Any:
        return apply_many("top_k", x, axis=x.ndim - 1, k=count, largest=True)[0]

    def take(self, x: Any, indices: Any) -> Any:
        return ol.take(x, indices, axis=0)

    def scatter_add(self, x: Any, indices: Any) -> Any:
        return apply("scatter", ol.zeros_like(x), indices, x, axis=0, kind="add")

    def gelu(self, x: Any) -> Any:
        return ol.gelu(x, approximate="tanh")

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        return ol.layer_norm(x, weight, bias, axis=-1, epsilon=self.EPSILON)


class OarlockPeer:
    def __init__(self, device: str, fused: bool) -> None:
        self._device = device
        self._fused = fused

    def version(self) -> str:
        return ol.__version__

    def prepare(self, work: Work, arrays: Mapping[str, Array]) -> Call:
        words = OarlockWords()
        tensors = {name: ol.asarray(array, device=self._device) for name, array in arrays.items()}
        ol.synchronize()
        compiled = self._fused and work.compiled
        weights = {name: tensor for name, tensor in tensors.items() if compiled and name in work.constants}
        names = [name for name in tensors if name not in weights]
        operands = [tensors[name] for name in names]

        def function(*values: Any) -> Any:
            if not weights:
                return work.function(words, *values)
            given = {**weights, **dict(zip(names, values, strict=True))}
            return work.function(words, *(given[name] for name in tensors))

        called: Callable[..., Any] = ol.jit(function) if compiled else function
        held: list[Any] = []

        def run() -> None:
            with self._mode():
                held[:] = [called(*operands)]
                ol.synchronize(self._device)

        return Call(run, lambda: as_list(held[0]), "jitted" if compiled else "recorded")

    def prepare_model(self, path: Path, arrays: Mapping[str, Array]) -> Call:
        from oarlock_onnx import load

        prepared = load(path).session(self._device).prepare(arrays)
        if self._fused:
            return Call(prepared.execute, lambda: list(prepared.outputs().values()))
        from ci.bench.one_by_one import OneByOne

        program = prepared.program
        weights, inputs = [*program.parameters.values()], [arrays[name] for name in program.inputs]
        single = OneByOne(prepared.function, self._device, weights, inputs)
        return Call(single.run, single.results, f"{single.count} operators")

    def _mode(self) -> AbstractContextManager[None]:
        return nullcontext() if self._fused else ol.eager_mode()


def make(device: str, fused: bool = True) -> OarlockPeer:
    return OarlockPeer(device, fused)
