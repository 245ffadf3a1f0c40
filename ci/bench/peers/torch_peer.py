"""PyTorch: eager, and compiled with max-autotune."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from ci.bench.peers import THREADS, Array, Call, as_list
from ci.bench.vocabulary import Vocabulary

if TYPE_CHECKING:
    from ci.bench.works import Work

__all__ = ["make"]

MODE = os.environ.get("OARLOCK_BENCH_TORCH_MODE", "max-autotune")
"""The mode of ``torch.compile``."""


class TorchWords(Vocabulary):
    """PyTorch's functions, its own kernels where it has them."""

    exp = staticmethod(torch.exp)
    tanh = staticmethod(torch.tanh)
    abs = staticmethod(torch.abs)
    rsqrt = staticmethod(torch.rsqrt)
    clip = staticmethod(torch.clamp)
    matmul = staticmethod(torch.matmul)
    linear = staticmethod(F.linear)
    silu = staticmethod(F.silu)

    def mean(self, x: Any) -> Any:
        return x.mean(-1, keepdim=True)

    def sum(self, x: Any) -> Any:
        return x.sum(-1, keepdim=True)

    def max(self, x: Any) -> Any:
        return x.amax(-1, keepdim=True)

    def reshape(self, x: Any, shape: Sequence[int]) -> Any:
        return x.reshape(shape)

    def transpose(self, x: Any, axes: Sequence[int]) -> Any:
        return x.permute(axes)

    def concat(self, parts: Sequence[Any], axis: int) -> Any:
        return torch.cat(list(parts), dim=axis)

    def cut(self, x: Any, start: int, stop: int) -> Any:
        return x[..., start:stop]

    def cumsum(self, x: Any) -> Any:
        return x.cumsum(-1)

    def sort(self, x: Any) -> Any:
        return x.sort(-1).values

    def largest(self, x: Any, count: int) -> Any:
        return x.topk(count, -1).values

    def take(self, x: Any, indices: Any) -> Any:
        return x.index_select(0, indices)

    def scatter_add(self, x: Any, indices: Any) -> Any:
        return torch.zeros_like(x).index_add_(0, indices, x)

    def gelu(self, x: Any) -> Any:
        return F.gelu(x, approximate="tanh")

    def softmax(self, x: Any) -> Any:
        return F.softmax(x, dim=-1)

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        return F.layer_norm(x, x.shape[-1:], weight, bias, self.EPSILON)

    def rms_norm(self, x: Any, weight: Any) -> Any:
        return F.rms_norm(x, x.shape[-1:], weight, self.EPSILON)

    def attention(self, q: Any, k: Any, v: Any, mask: Any | None) -> Any:
        return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=mask is not None)[0]


class _Holding(torch.nn.Module):
    """A function some of whose operands are the module's parameters, which the compiler may pack beforehand."""

    def __init__(self, function: Callable[..., Any], tensors: Mapping[str, Any], constants: Sequence[str]) -> None:
        super().__init__()
        self._function = function
        self._places = [name in constants for name in tensors]
        held = [torch.nn.Parameter(tensors[name], requires_grad=False) for name in tensors if name in constants]
        self._held = torch.nn.ParameterList(held)

    def forward(self, *given: Any) -> Any:
        held, rest = iter(self._held), iter(given)
        return self._function(*[next(held) if place else next(rest) for place in self._places])


class TorchPeer:
    def __init__(self, compiled: bool) -> None:
        torch.set_num_threads(THREADS)
        self._compiled = compiled

    def version(self) -> str:
        return str(torch.__version__)

    def prepare(self, work: Work, arrays: Mapping[str, Array]) -> Call:
        words = TorchWords()
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}

        def function(*operands: Any) -> Any:
            return work.function(words, *operands)

        if not self._compiled or not work.constants:
            return self._call(function, list(tensors.values()))
        module = _Holding(function, tensors, work.constants)
        return self._call(module.eval(), [t for name, t in tensors.items() if name not in work.constants])

    def prepare_model(self, path: Path, arrays: Mapping[str, Array]) -> Call:
        from ci.bench.torch_model import TorchModel

        module = TorchModel(path)
        return self._call(module.eval(), [torch.from_numpy(array) for array in arrays.values()])

    def _call(self, function: Callable[..., Any], operands: list[Any]) -> Call:
        if self._compiled:
            import torch._inductor.config as inductor

            inductor.freezing = isinstance(function, torch.nn.Module)  # weights become constants, packed beforehand
            function = torch.compile(function, mode=MODE, fullgraph=True)
        held: list[Any] = []

        def run() -> None:
            with torch.inference_mode() if not self._compiled else torch.no_grad():
                held[:] = [function(*operands)]

        return Call(run, lambda: as_list(held[0], lambda t: t.numpy()))


def make(compiled: bool = False) -> TorchPeer:
    return TorchPeer(compiled)
