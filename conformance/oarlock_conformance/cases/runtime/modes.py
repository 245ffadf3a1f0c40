"""Cases run again in the other modes of the runtime: without the pool, without poison, and with a witness."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from oarlock.runtime import open_device
from oarlock_conformance.bench import Bench, expect, setting
from oarlock_conformance.registry import RUNTIME, runtime_case
from oarlock_conformance.witness import witnessed

_REPEATED = (
    "memory.copy_in/offset", "memory.copy/overlap", "memory.allocate/random_sizes", "memory.free/in_flight",
    "memory.reuse/across_streams", "launch.buffers/offsets", "launch.order/mixed", "program.free/in_flight",
    "event.wait/chain", "plan.replay/rebinds",
)  # fmt: skip
"""Cases in which memory, order or lifetime could go wrong in one mode and not in another."""


@contextlib.contextmanager
def _no_pool(bench: Bench) -> Iterator[None]:
    with setting("pool", False), setting("poison", True):
        yield


@contextlib.contextmanager
def _no_poison(bench: Bench) -> Iterator[None]:
    with setting("poison", False):
        yield


@contextlib.contextmanager
def _witnessed(bench: Bench) -> Iterator[None]:
    bench.device.trim()
    with witnessed(open_device(bench.name)) as witness:
        yield
        bench.device.synchronize()
    expect(bool(witness.calls), "the driver was never called")
    expect(not witness.breaches, f"the core breaks its promise to the driver: {(witness.breaches or [''])[0]}")


_MODES = {
    "no_pool": (_no_pool, "with the pool off and freed memory overwritten"),
    "no_poison": (_no_poison, "with freed memory left as it was"),
    "witnessed": (_witnessed, "with every call to the driver checked against what the contract promises"),
}


def _register(mode: str, repeated: str) -> None:
    enter, text = _MODES[mode]
    original = RUNTIME[repeated]

    @runtime_case(f"modes.{mode}/{repeated.replace('/', '-')}", f"{text}: {original.contract}", *original.needs)
    def check(bench: Bench) -> None:
        with enter(bench):
            original.check(bench)


for _mode in _MODES:
    for _case in _REPEATED:
        _register(_mode, _case)
