"""Broken adapters: each is the simulator with one planted fault, installed under a name of its own.

A saboteur declares the surface that it breaks, never a case. ``SABOTEURS`` holds all of them; the attribute called like
one is its plugin object, so that an entry point ``broken_x = oarlock_saboteurs:x`` installs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oarlock.hal import Adapter, DeviceInfo, Driver
from oarlock.plugin import hookimpl
from oarlock.target import Target
from oarlock_sim.device import SimAdapter, SimDriver

__all__ = ["SABOTEURS", "BrokenAdapter", "BrokenDriver", "Saboteur", "saboteur"]

_compiled: dict[tuple[str, str, tuple[str, ...]], bytes] = {}


class BrokenDriver(SimDriver):
    """The simulated device's driver, to be broken in one place."""


class BrokenAdapter(SimAdapter):
    """The simulator with its roomy device alone, opened with ``driver``. Kernels are compiled once per process."""

    driver: type[SimDriver] = BrokenDriver

    def devices(self) -> list[DeviceInfo]:
        return super().devices()[:1]

    def open(self, index: int) -> Driver:
        return self.driver(self.devices()[index], self.plan)

    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        key = (target.fingerprint(), source, tuple(entries))
        if key not in _compiled:
            _compiled[key] = super().compile(target, source, entries)
        return _compiled[key]


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


def saboteur(surface: str, fault: str) -> Callable[[type[Any]], type[Any]]:
    """Register a broken driver or a broken adapter class, by its name in lower case with underscores."""

    def register(kind: type[Any]) -> type[Any]:
        name = "".join(f"_{c.lower()}" if c.isupper() else c for c in kind.__name__).lstrip("_")
        if issubclass(kind, SimDriver):
            adapter = type(f"{kind.__name__}Adapter", (BrokenAdapter,), {"driver": kind, "__module__": kind.__module__})
        else:
            adapter = kind
        SABOTEURS[name] = Saboteur(name, surface, fault, adapter)
        return kind

    return register


from oarlock_saboteurs import launching, memory, numerics, process, streaming  # noqa: E402  (they register)

del launching, memory, numerics, process, streaming


def __getattr__(name: str) -> Saboteur:
    try:
        return SABOTEURS[name]
    except KeyError:
        raise AttributeError(name) from None
