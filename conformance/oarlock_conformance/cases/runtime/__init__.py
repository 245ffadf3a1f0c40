"""The runtime level: every statement of the contract that can be seen from outside, on one device."""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Callable, Sequence

import numpy as np

from oarlock.errors import OarlockError
from oarlock.runtime import Device, Stats
from oarlock_conformance.advice import advice
from oarlock_conformance.bench import Bench, peer_of
from oarlock_conformance.case import Case, Failure, Options, Outcome
from oarlock_conformance.cases import Report
from oarlock_conformance.registry import RUNTIME

__all__ = ["plan", "run"]

_PATIENCE = 50
"""How often it is looked whether what a case dropped was given back, with 10 ms in between."""
_MODULES = (
    "discovery",
    "sweep",
    "claims",
    "capabilities",
    "memory",
    "copies",
    "launches",
    "programs",
    "streams",
    "timing",
    "ordering",
    "plans",
    "stale",
    "failures",
    "threads",
    "devices",
    "cache",
    "lifetime",
    "endings",
    "neighbours",
    "modes",
)
for _name in _MODULES:
    importlib.import_module(f"{__name__}.{_name}")


_PROPERTIES: dict[str, tuple[Callable[[Device], bool], str]] = {
    "threads": (lambda device: device.target.has_threads, "the target's blocks have no threads"),
    "scope stream": (lambda device: device.info.failure_scope == "stream", "failure_scope is device"),
    "peer": (lambda device: peer_of(device) >= 0, "no other device of the adapter declares peer_copy"),
    "can_be_filled": (lambda device: device.info.memory <= 8 << 30, "more than 8 GiB of memory: not filled"),
    "two_devices": (lambda device: len(device.adapter.devices()) > 1, "the adapter has one device"),
}
"""What a case may need besides capabilities, and what is said where it is absent."""


_COMPUTES = "computes "


def plan(device: Device, options: Options) -> list[Case]:
    """Every runtime case; those that need what the device does not declare are unsupported."""
    return [Case(c.id, "runtime", c.group, c.contract, _absent(device, c.needs)) for c in RUNTIME.values()]


def _absent(device: Device, needs: Sequence[str]) -> str:
    """Why a case does not apply; empty when it does."""
    reasons = []
    for name in needs:
        if name in _PROPERTIES:
            holds, text = _PROPERTIES[name]
            reasons += [] if holds(device) else [text]
        elif name.startswith(_COMPUTES):
            dtype = name.removeprefix(_COMPUTES)
            reasons += [] if dtype in device.target.compute else [f"the target does not compute {dtype}"]
        elif name not in device.info.capabilities:
            reasons.append(f"capability {name} is not declared")
    return "; ".join(reasons)


def run(device: str, cases: Sequence[str], options: Options, isolate: bool, report: Report) -> None:
    """Run runtime cases by id."""
    bench = Bench(device, options)
    gc.collect()
    gc.freeze()  # what exists now is kept anyway: looking through it again for every case takes a tenth of a second
    try:
        for identity in cases:
            report.start(identity)
            report.end(_outcome(bench, identity))
        bench.forget()
    finally:
        gc.unfreeze()


def _outcome(bench: Bench, identity: str) -> Outcome:
    bench.random = np.random.default_rng(bench.options.seed)
    before = _settled(bench)
    start = time.perf_counter()
    try:
        RUNTIME[identity].check(bench)
    except Failure as failure:
        text = f"{bench.name}: {failure}. {advice(identity)}"
        return Outcome(identity, "failed", time.perf_counter() - start, "value", text)
    except Exception as error:
        text = f"{bench.name}: {type(error).__name__}: {error}. {advice(identity)}"
        return Outcome(identity, "failed", time.perf_counter() - start, "exception", text)
    seconds = time.perf_counter() - start
    leak = _leak(before, bench)
    if leak:
        return Outcome(identity, "error", seconds, "leak", leak)
    return Outcome(identity, "passed", seconds)


def _settled(bench: Bench) -> Stats:
    """What the device holds once what was dropped has been given back."""
    gc.collect()
    try:
        bench.device.synchronize()
    except OarlockError:
        bench.device.close()
        bench.forget()
    return bench.device.stats()


def _leak(before: Stats, bench: Bench) -> str:
    """What a case left alive; empty for nothing. Giving back takes a moment: dropped memory is overwritten first."""
    for _ in range(_PATIENCE):
        after = _settled(bench)
        grown = {
            name: getattr(after, name) - getattr(before, name) for name in ("buffers", "streams", "events", "plans")
        }
        kinds = [f"{count} {name}" for name, count in grown.items() if count > 0]
        if not kinds:
            return ""
        time.sleep(0.01)
    return f"the case left {', '.join(kinds)} alive"
