"""The kernels that the operators level, the programs of several operators and the models need, without a device.

Calls of records are lowered as they stand. What needs a device to get on (named cases, random programs) runs on
``cpu:0``, and every program that is lowered for it is lowered for CUDA too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import onnx

from oarlock.codegen import pipeline
from oarlock.codegen.lower.call import KernelCall
from oarlock.config import config
from oarlock.ir import Operation
from oarlock.runtime import lowering, open_device
from oarlock.target import Target
from oarlock_conformance.case import Options
from oarlock_conformance.cases.operators import fused, fuzzing, named, stepwise
from oarlock_conformance.cases.operators.build import mix, mixes, side_by_side
from oarlock_conformance.cases.operators.calls import all_units
from oarlock_conformance.models.fetch import fetch
from oarlock_conformance.models.light import LIGHT_MODELS, light_model
from oarlock_conformance.models.manifest import MODELS, reference
from oarlock_onnx.model import Model

__all__ = ["PARTS", "Collection", "collect"]

PARTS = ("calls", "programs", "light", "models")
"""Calls of every record; named, fused and random programs; light models of the package onnx; pretrained models."""
_DIGEST = 12
"""Characters at the end of a kernel's name that say what it does; those before are for people."""

Say = Callable[[str], None]
Lower = Callable[..., pipeline.Lowered]


@dataclass(frozen=True, slots=True)
class Collection:
    """The kernels for one target, each once; ``cut_short``: cases that failed on ``cpu:0``, so that what they would
    have gone on to run is missing."""

    target: Target
    kernels: dict[str, Operation] = field(default_factory=dict)
    cut_short: list[str] = field(default_factory=list)

    def add(self, function: Operation, lower: Lower = pipeline.lower) -> None:
        """Lower a prepared function, which is kept as it is."""
        for call in lower(function.clone(), self.target).calls:
            assert isinstance(call, KernelCall)
            self.kernels.setdefault(str(call.function.attributes["name"])[-_DIGEST:], call.function)


def collect(
    targets: Sequence[Target],
    parts: Sequence[str],
    options: Options,
    say: Say = lambda text: None,
    share: tuple[int, int] = (0, 1),
) -> list[Collection]:
    """The kernels for each target. ``share`` (k, n): of the records' calls those of every n-th one from the k-th on."""
    found = [Collection(target) for target in targets]
    sources = {"calls": lambda: _calls(options, share), "light": _light_models, "models": _models}
    for part in parts:
        if part == "programs":
            _programs(options, found, say)
            continue
        for label, function in sources[part]():
            say(f"{part}: {label}")
            prepared = pipeline.prepare(function)
            for collection in found:
                collection.add(prepared)
    return found


def _calls(options: Options, share: tuple[int, int]) -> Iterator[tuple[str, Operation]]:
    start, step = share
    mixed = []
    for unit in all_units()[start::step]:
        for call in unit.calls(options):
            if call.mixed:
                mixed.append(call)
            else:
                yield call.id, side_by_side([call]).function
    for batch in mixes(mixed):
        yield batch[0].id, (mix(batch) if len(batch) > 1 else side_by_side(batch)).function


def _programs(options: Options, found: Sequence[Collection], say: Say) -> None:
    """Run named, fused and random programs on ``cpu:0``, and lower what it lowers, which is all: no cache is read."""
    device = open_device("cpu:0")
    original = pipeline.lower

    def lower(function: Operation, *arguments: Any, **others: Any) -> pipeline.Lowered:
        for collection in found:
            collection.add(function, original)
        return original(function, *arguments, **others)

    uncached = patch.object(config, "cache", False)
    with uncached, patch.object(lowering, "lower", lower), patch.object(stepwise, "lower", lower):
        for module in (named, fused, fuzzing):
            for case in module.plan(device, options):
                if case.unsupported:
                    continue
                say(f"programs: {case.id}")
                rest: tuple[Any, ...] = (lambda: None,) if module is fuzzing else ()
                outcome = module.run(device, case.id, options, *rest)
                for collection in found:
                    collection.cut_short.extend([case.id] * (outcome.state != "passed"))


def _light_models() -> Iterator[tuple[str, Operation]]:
    for name in LIGHT_MODELS:
        model = Model(light_model(name), name=name)
        built = model.build({spec.name: tuple(int(d) for d in spec.dims or ()) for spec in model.inputs})  # type: ignore[arg-type]
        yield name, built.function  # type: ignore[union-attr]


def _models() -> Iterator[tuple[str, Operation]]:
    for name in MODELS:
        path = fetch(name)
        run = Model(onnx.load(path), path.parent, name).session("interpret").prepare(reference(name).inputs)
        yield name, run.function
