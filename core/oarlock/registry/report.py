"""Reports on adapters: found, version, contract, driver, devices, state and the real cause of what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from threading import Lock
from typing import Any, Literal

from oarlock.registry import probe
from oarlock.registry.failures import Failure
from oarlock.registry.loading import names, owners

__all__ = ["AdapterReport", "DeviceReport", "State", "adapter_report", "adapter_reports", "known_reports"]

State = Literal["ready", "no devices", "not available", "broken", "duplicate"]
"""ready: it has devices; no devices: its stack works and finds none; not available: listing devices failed, as where
the driver is missing; broken: the plugin cannot be loaded or is refused; duplicate: two distributions claim it."""

PROBE_TIMEOUT_S = 30.0
"""How long a child process may take to list the devices of one adapter."""


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """One device, written ``id`` (``name:index``). ``memory`` in bytes; ``stores`` names the dtypes it can hold."""

    id: str
    name: str
    vendor: str
    driver: str
    memory: int
    language: str
    arch: str
    stores: tuple[str, ...]
    capabilities: tuple[str, ...]
    accelerator: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AdapterReport:
    """One adapter. ``distribution`` and its ``version`` are what pip shows; ``contract`` is empty where unknown."""

    name: str
    distribution: str
    version: str
    module: str
    contract: str
    state: State
    devices: tuple[DeviceReport, ...]
    failure: Failure | None

    @property
    def driver(self) -> str:
        """Name and version of the vendor's driver, as its first device says; empty where there is none."""
        return self.devices[0].driver if self.devices else ""

    @property
    def cause(self) -> str:
        """Why it is not ready, in one line; empty when it is."""
        if self.state == "no devices":
            return "its driver works and finds no device"
        return "" if self.failure is None else str(self.failure)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return {**asdict(self), "driver": self.driver, "cause": self.cause}


_lock = Lock()
_reports: dict[str, AdapterReport] = {}


def adapter_report(name: str) -> AdapterReport:
    """The report on an installed adapter, from a child process; looked up once per process.

    Raises nothing: what fails is in the report. A name that is not installed gives a report in state "broken".
    """
    known = _reports.get(name)
    if known is None:
        known = _report(name)
        with _lock:
            known = _reports.setdefault(name, known)
    return known


def adapter_reports(wanted: Sequence[str] | None = None) -> tuple[AdapterReport, ...]:
    """Reports on ``wanted`` adapters, or on all that are installed, in that order; a few children at a time."""
    chosen = names() if wanted is None else tuple(wanted)
    with ThreadPoolExecutor(max_workers=4) as threads:
        return tuple(threads.map(adapter_report, chosen))


def known_reports() -> tuple[AdapterReport, ...]:
    """The reports that were already made; starts nothing."""
    return tuple(_reports.values())


def forget() -> None:
    """Look again next time."""
    with _lock:
        _reports.clear()


def after_fork() -> None:
    """Replace the lock, which another thread may have held when this process was forked."""
    global _lock
    _lock = Lock()


def _report(name: str) -> AdapterReport:
    answer = probe.run(name, PROBE_TIMEOUT_S)
    claims = owners("oarlock.adapters", name)
    failure = Failure(**answer["failure"]) if "failure" in answer else None
    devices = tuple(_device(f"{name}:{index}", item) for index, item in enumerate(answer.get("devices", ())))
    return AdapterReport(
        name=name,
        distribution=" and ".join(entry.distribution for entry in claims),
        version=" and ".join(entry.version for entry in claims),
        module=" and ".join(entry.value for entry in claims),
        contract=".".join(map(str, answer.get("contract", ()))),
        state=_state(answer, len(claims), failure),
        devices=devices,
        failure=failure,
    )


def _state(answer: dict[str, Any], claims: int, failure: Failure | None) -> State:
    if claims > 1:
        return "duplicate"
    if failure is not None:
        return "broken" if answer["stage"] == "load" else "not available"
    return "ready" if answer["devices"] else "no devices"


def _device(identity: str, item: dict[str, Any]) -> DeviceReport:
    lists = {key: tuple(item[key]) for key in ("stores", "capabilities", "notes")}
    return DeviceReport(id=identity, **{**item, **lists})
