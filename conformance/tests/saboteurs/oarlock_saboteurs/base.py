"""What every broken adapter is made of: the simulator, a count of how often its fault was active, and the register."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, ClassVar

from oarlock.hal import Adapter, DeviceInfo, Driver
from oarlock.plugin import hookimpl
from oarlock.runtime.cache import DiskCache
from oarlock.target import Target
from oarlock_sim.compiler import toolchain
from oarlock_sim.device import SimAdapter, SimDriver

__all__ = ["DISTRIBUTION", "HEALTHY", "SABOTEURS", "BrokenAdapter", "BrokenDriver", "Saboteur", "healthy", "saboteur"]

DISTRIBUTION = "oarlock-saboteurs"
"""The distribution that installs them: beside its metadata lie the counts of how often faults were active."""
_compiled: dict[str, bytes] = {}


def compiled(target: Target, source: str, entries: Sequence[str], compile_: Callable[[], bytes]) -> bytes:
    """What ``compile_`` gives, kept in this process and on disk for all broken adapters together."""
    parts = [target.fingerprint(), list(target.flags), list(entries), source, toolchain(target.language)]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    if key not in _compiled:
        disk = DiskCache(_kernels())
        payload = disk.read(key)
        if payload is None:
            payload = compile_()
            disk.write(key, payload)
        _compiled[key] = payload
    return _compiled[key]


@functools.cache
def _kernels() -> Path:
    """The folder of compiled kernels; whoever installed the broken adapters has written where it is."""
    return Path(Path(str(distribution(DISTRIBUTION).locate_file("kernels"))).read_text())


@functools.cache
def _tally(name: str) -> int:
    """A file that gets a byte whenever the fault of saboteur ``name`` is active; of any process."""
    path = Path(str(distribution(DISTRIBUTION).locate_file("reached")), name)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


class Faulty:
    """Something with a planted fault."""

    fault_name: ClassVar[str] = ""

    def hit(self) -> None:
        """Count that the fault was active."""
        os.write(_tally(self.fault_name), b".")


class BrokenDriver(Faulty, SimDriver):
    """The simulated device's driver, to be broken in one place."""


class BrokenAdapter(Faulty, SimAdapter):
    """The simulator with its roomy device alone, opened with ``driver``. Each kernel is compiled once."""

    driver: type[SimDriver] = BrokenDriver

    def devices(self) -> list[DeviceInfo]:
        return super().devices()[:1]

    def open(self, index: int) -> Driver:
        return self.driver(self.devices()[index], self.plan)

    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        return compiled(target, source, entries, lambda: SimAdapter.compile(self, target, source, entries))


@dataclass(frozen=True, slots=True)
class Saboteur:
    """A planted fault: what it breaks, and the adapter that has it."""

    name: str
    surface: str
    fault: str
    make: Callable[[], Adapter]

    @hookimpl
    def oarlock_adapter(self) -> Adapter:
        return self.make()


SABOTEURS: dict[str, Saboteur] = {}
HEALTHY: dict[str, Saboteur] = {}


def saboteur(surface: str, fault: str, base: type[BrokenAdapter] = BrokenAdapter) -> Callable[[type[Any]], type[Any]]:
    """Register a broken driver (of the adapter ``base``) or a broken adapter class, by its name in lower case with
    underscores."""

    def register(kind: type[Any]) -> type[Any]:
        name = _snake(kind.__name__)
        if name in SABOTEURS:
            raise ValueError(f"two saboteurs are called {name}")
        kind.fault_name = name
        adapter = kind
        if "driver" in vars(kind):
            kind.driver.fault_name = name
        if issubclass(kind, SimDriver):
            members = {"driver": kind, "fault_name": name, "__module__": kind.__module__}
            adapter = type(f"{kind.__name__}Adapter", (base,), members)
        SABOTEURS[name] = Saboteur(name, surface, fault, adapter)
        return kind

    return register


def healthy(kind: type[BrokenAdapter]) -> type[BrokenAdapter]:
    """Register an adapter class as one without a fault, which surfaces compare with."""
    name = _snake(kind.__name__)
    HEALTHY[name] = Saboteur(name, "", "none", kind)
    return kind


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
