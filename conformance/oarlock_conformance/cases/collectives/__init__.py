"""The collectives level: groups of ranks on the device, on its vendor's engine where there is one, else composed."""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Sequence

from oarlock.errors import OarlockError
from oarlock.runtime import Device, open_devices
from oarlock_conformance.case import Case, Failure, Options, Outcome
from oarlock_conformance.cases import Report
from oarlock_conformance.cases.collectives.party import Party
from oarlock_conformance.cases.collectives.register import CASES

__all__ = ["plan", "run"]

_PATIENCE = 50
"""How often it is looked whether what a case dropped was given back, with 10 ms in between."""
for _name in ("values", "agreement", "failures", "streams", "engine"):
    importlib.import_module(f"{__name__}.{_name}")


def plan(device: Device, options: Options) -> list[Case]:
    """Every case; those that need what the device does not have are unsupported."""
    return [Case(c.id, "collectives", c.group, c.contract, c.unsupported(device)) for c in CASES.values()]


def run(device: str, cases: Sequence[str], options: Options, isolate: bool, report: Report) -> None:
    """Run cases by id."""
    party = Party(device, options)
    for identity in cases:
        report.start(identity)
        report.end(_outcome(party, identity))
    party.forget()


def _outcome(party: Party, identity: str) -> Outcome:
    before = _alive(party)
    start = time.perf_counter()
    try:
        CASES[identity].run(party)
    except Failure as failure:
        return Outcome(identity, "failed", time.perf_counter() - start, "value", str(failure))
    except Exception as error:
        return Outcome(identity, "failed", time.perf_counter() - start, "exception", f"{type(error).__name__}: {error}")
    seconds = time.perf_counter() - start
    leak = _leak(before, party)
    if leak:
        return Outcome(identity, "error", seconds, "leak", leak)
    return Outcome(identity, "passed", seconds)


def _alive(party: Party) -> dict[str, int]:
    """Live handles of every open device, by kind, once what was dropped has been given back."""
    gc.collect()
    found = {}
    for device in (party.device, *open_devices()):
        try:
            device.synchronize()
        except OarlockError:
            device.close()
            party.forget()
            continue
        stats = device.stats()
        for kind in ("buffers", "streams", "events"):  # plans are kept with their programs
            found[f"{kind} of {device.name}"] = getattr(stats, kind)
    return found


def _leak(before: dict[str, int], party: Party) -> str:
    """What a case left alive; empty for nothing."""
    for _ in range(_PATIENCE):
        grown = {name: count - before.get(name, 0) for name, count in _alive(party).items()}
        kinds = [f"{count} {name}" for name, count in grown.items() if count > 0]
        if not kinds:
            return ""
        time.sleep(0.01)
    return f"the case left {', '.join(kinds)} alive"
