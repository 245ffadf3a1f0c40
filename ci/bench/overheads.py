"""The rows of what is around the kernels: calls, first calls, imports, memory, and how cost grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from ci.bench.peers import Array
from ci.bench.transformer import Shape, layers_work
from ci.bench.vocabulary import Value, Vocabulary
from ci.bench.works import Ask, Kind, Work, takes

__all__ = ["growth_works", "overhead_works"]

_COMPILERS = ("torch-compile", "jax", "tinygrad", "onnxruntime", "oarlock")
_EAGER = ("numpy", "torch", "jax", "tinygrad", "oarlock", "oarlock-unfused")


def _ones(count: int) -> Callable[[np.random.Generator], Mapping[str, Array]]:
    return lambda generator: {f"x{i}": generator.standard_normal(1, np.float32) for i in range(count)}


def _total(v: Vocabulary, *values: Value) -> Value:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def overhead_works(works: Mapping[str, Work]) -> list[Work]:
    """Rows made of those that there are: ``rmsnorm``, ``llama-block``, ``decoder-prefill``, ``resnet50``."""
    rms_norm, block = works["rmsnorm"], works["llama-block"]
    add = Work("add-one", "one-element add, eager", _ones(2), lambda v, a, b: a + b, unit="us", calls=200)
    add = replace(add, asks=(takes(10, "us"),), compiled=False, peers=_EAGER, group="calls")
    call = Work("call-jitted", "jitted call with 8 one-element arrays", _ones(8), _total, unit="us", calls=200)
    call = replace(call, asks=(takes(15, "us"),), peers=_COMPILERS, group="calls")
    imports = Work("import", "import of the library", _ones(1), unit="s", kind="import", asks=(takes(0.15, "s"),))
    imports = replace(imports, peers=("numpy", "torch", "jax", "tinygrad", "onnxruntime", "oarlock"), group="calls")
    return [
        add, call, imports,
        _first(rms_norm, "cold", takes(0.15, "s")), _first(rms_norm, "warm", takes(0.05, "s")),
        _first(block, "cold", takes(3, "s")), _first(block, "warm", takes(0.2, "s")),
        *(_plan(works[name]) for name in ("llama-block", "decoder-prefill", "resnet50") if name in works),
    ]  # fmt: skip


def _first(work: Work, kind: Kind, ask: Ask) -> Work:
    title = f"first call in a fresh process, {kind} cache: {work.title}"
    return replace(
        work, name=f"first-{kind}-{work.name}", title=title, kind=kind, asks=(ask,), unit="s", peers=_COMPILERS,
        limit="", plain="", group="calls",
    )  # fmt: skip


def _plan(work: Work) -> Work:
    ask = Ask("peak of the plan <= 1.1 x live bytes", 1.1)
    return replace(
        work, name=f"plan-{work.name}", title=f"memory of the plan: {work.title}", kind="plan", asks=(ask,), unit="x",
        peers=("oarlock",), group="memory",
    )  # fmt: skip


def growth_works(works: Mapping[str, Work], factors: Sequence[int] = (1, 4, 16, 64)) -> Iterable[Work]:
    """Points of the plots: 1 to 64 times the elements, 1 to 64 layers (the call, and the first call)."""
    yield from (_elements(works["rmsnorm"], factor, max(factors)) for factor in factors)
    shape = Shape(128, 4, 344, 32)
    for layers in factors:
        call = layers_work(replace(shape, layers=layers))
        yield replace(call, series="layers: a call (ms)", extent=layers, group="growth", peers=_GROWN)
        first = _first(call, "cold", takes(0, "s"))
        first = replace(first, asks=(), peers=("jax", "onnxruntime", "oarlock"), group="growth")
        yield replace(first, series="layers: the first call (s)", extent=layers)


_GROWN = ("torch", "jax", "onnxruntime", "oarlock", "oarlock-unfused")


def _elements(work: Work, factor: int, most: int) -> Work:
    whole = work.inputs

    def inputs(generator: np.random.Generator) -> Mapping[str, Array]:
        made = dict(whole(generator))
        x = made["x"]
        return made | {"x": np.ascontiguousarray(x[: len(x) * factor // most])}

    return replace(
        work, name=f"growth-rmsnorm-{factor}", title=f"RMSNorm, {factor}/{most} of the rows", inputs=inputs, asks=(),
        series="RMSNorm: elements (ms)", extent=factor, group="growth", peers=("limit", "plain-c", *_GROWN),
    )  # fmt: skip
