"""tinygrad, jitted, its kernels chosen by a beam search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ci.bench.peers import Array, Call, CannotError, as_list
from ci.bench.vocabulary import Vocabulary
from tinygrad import Device, Tensor, TinyJit

if TYPE_CHECKING:
    from ci.bench.works import Work

__all__ = ["make"]


class TinyWords(Vocabulary):
    def exp(self, x: Any) -> Any:
        return x.exp()

    def tanh(self, x: Any) -> Any:
        return x.tanh()

    def abs(self, x: Any) -> Any:
        return x.abs()

    def rsqrt(self, x: Any) -> Any:
        return x.rsqrt()

    def clip(self, x: Any, low: float, high: float) -> Any:
        return x.clip(low, high)

    def mean(self, x: Any) -> Any:
        return x.mean(axis=-1, keepdim=True)

    def sum(self, x: Any) -> Any:
        return x.sum(axis=-1, keepdim=True)

    def max(self, x: Any) -> Any:
        return x.max(axis=-1, keepdim=True)

    def matmul(self, a: Any, b: Any) -> Any:
        return a.matmul(b)

    def reshape(self, x: Any, shape: Sequence[int]) -> Any:
        return x.reshape(*shape)

    def transpose(self, x: Any, axes: Sequence[int]) -> Any:
        return x.permute(*axes)

    def concat(self, parts: Sequence[Any], axis: int) -> Any:
        return Tensor.cat(*parts, dim=axis)

    def cut(self, x: Any, start: int, stop: int) -> Any:
        return x[..., start:stop]

    def cumsum(self, x: Any) -> Any:
        return x.cumsum(-1)

    def sort(self, x: Any) -> Any:
        raise CannotError("its sort is a long chain of kernels: the search for 512x256 took more than 200 s")

    def largest(self, x: Any, count: int) -> Any:
        return self.sort(x)

    def take(self, x: Any, indices: Any) -> Any:
        return x[indices]

    def scatter_add(self, x: Any, indices: Any) -> Any:
        raise CannotError("its scatter compares every row with every index")

    def silu(self, x: Any) -> Any:
        return x.silu()

    def gelu(self, x: Any) -> Any:
        return x.gelu()

    def softmax(self, x: Any) -> Any:
        return x.softmax(-1)

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        return x.layernorm(axis=-1, eps=self.EPSILON) * weight + bias

    def attention(self, q: Any, k: Any, v: Any, mask: Any | None) -> Any:
        return q.scaled_dot_product_attention(k, v, is_causal=mask is not None)


class TinyPeer:
    def version(self) -> str:
        return version("tinygrad")

    def prepare(self, work: Work, arrays: Mapping[str, Array]) -> Call:
        words = TinyWords()
        operands = [Tensor(array).realize() for array in arrays.values()]
        held: list[Any] = []

        def function(*values: Any) -> list[Any]:
            made = work.function(words, *values)
            parts = made if isinstance(made, list | tuple) else [made]
            return [part.realize() for part in parts]

        called = TinyJit(function) if work.compiled else function

        def run() -> None:
            held[:] = [called(*operands)]
            Device[Device.DEFAULT].synchronize()

        return Call(run, lambda: as_list(held[0], lambda t: t.numpy()))

    def prepare_model(self, path: Path, arrays: Mapping[str, Array]) -> Call:
        raise CannotError("models are measured on PyTorch and ONNX Runtime alone")


def make() -> TinyPeer:
    return TinyPeer()
