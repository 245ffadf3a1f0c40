"""Error messages are part of the product: each mistake of the list is told with adapter, method, expectation, step."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from oarlock.codegen.kernel import signature_of
from oarlock.codegen.pipeline import render
from oarlock.errors import OarlockError
from oarlock.registry import adapter_report, get_adapter
from oarlock.runtime import Device, open_device
from oarlock_conformance import kernels
from oarlock_conformance.case import Options, Outcome
from oarlock_conformance.cases import level

sys.path.insert(0, str(Path(__file__).parent))
from mistakes import MISTAKES, Mistake

sys.path.pop(0)


def run_kernel(device: Device) -> None:
    """The first thing that an author tries: a kernel on two buffers, and its result."""
    function = kernels.increment()
    signature = signature_of(function, device.target)
    program = device.load(device.compile(render([function], device.target), [signature]))
    x, y = device.allocate(64), device.allocate(64)
    device.copy_in(x, 0, np.arange(16, dtype=np.int32))
    device.launch(program, "increment", (16, 1, 1), [(x, 0), (y, 0)], signature.pack([0, 0, 5]))
    host = np.zeros(16, np.int32)
    device.copy_out(host, y, 0)
    device.synchronize()
    assert host.tolist() == list(range(5, 21))


def use_streams(device: Device) -> None:
    """A stream, an event, and a wait."""
    stream = device.create_stream()
    event = stream.record()
    device.default_stream.wait(event)
    event.synchronize()


class Outcomes:
    """Keeps what cases gave."""

    def __init__(self) -> None:
        self.all: list[Outcome] = []

    def start(self, *cases: str) -> None: ...

    def beat(self) -> None: ...

    def end(self, outcome: Outcome) -> None:
        self.all.append(outcome)


def certify(name: str, case: str) -> str:
    """The text of a case that must fail, as the certificate has it."""
    outcomes = Outcomes()
    level("runtime").run(f"{name}:0", [case], Options(quick=True), False, outcomes)
    (outcome,) = outcomes.all
    assert outcome.state in ("failed", "error"), f"{case} passed"
    return outcome.reason


def told(name: str, mistake: Mistake) -> str:
    """What the author reads."""
    if mistake.trigger == "certify":
        return certify(name, mistake.case)
    if mistake.trigger == "doctor":
        report = adapter_report(name)
        return f"{report.name} {report.state}: {report.cause}"
    with pytest.raises(OarlockError) as caught:
        if mistake.trigger == "load":
            get_adapter(name)
        device = open_device(f"{name}:0")
        if mistake.trigger == "kernel":
            run_kernel(device)
        elif mistake.trigger == "streams":
            use_streams(device)
        elif mistake.trigger == "use":
            eval(f"[{mistake.use.replace(';', ',')}]", {"device": device})
    return str(caught.value)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistake_is_told_with_its_way_out(mistake: Mistake, plant: Callable[..., str]) -> None:
    name = plant(*mistake.changes, entries=mistake.entries)
    text = told(name, mistake)
    gc.collect()
    assert name in text, text
    for wanted in (mistake.method, mistake.expected, mistake.step):
        assert wanted in text, text


def test_the_adapter_without_a_mistake_works(plant: Callable[..., str]) -> None:
    device = open_device(f"{plant()}:0")
    run_kernel(device)
    outcomes = Outcomes()
    cases = sorted({mistake.case for mistake in MISTAKES if mistake.case} - {"memory.fill/ranges"})
    level("runtime").run(device.name, cases, Options(quick=True), False, outcomes)
    assert [(o.case, o.state, o.reason) for o in outcomes.all if o.state != "passed"] == []


def test_the_list_is_long_enough() -> None:
    names = [mistake.name for mistake in MISTAKES]
    assert len(names) == len(set(names)) >= 40
