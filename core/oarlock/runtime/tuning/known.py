"""What is known of a device's schedules: the user's database first, then what is shipped, then the rules."""

from __future__ import annotations

import functools
import hashlib
import json
import warnings
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.codegen.lower.subject import Subject
from oarlock.codegen.schedule import RULES, Schedule
from oarlock.config import config
from oarlock.errors import TuningError
from oarlock.target import Target

if TYPE_CHECKING:
    from oarlock.runtime.device import Device

__all__ = ["Known", "database", "driver_key", "forget", "schedules_of", "shipped", "target_key"]

_SHIPPED = Path(__file__).with_name("shipped.json")
_HELD = "schedules"


class Known:
    """Schedules by key; RULES for a subject of which nothing is known, and where one program serves many sizes."""

    def __init__(self, schedules: Mapping[str, Schedule]) -> None:
        self._schedules = dict(schedules)
        self._heads = {key.rpartition(" #")[0] for key in schedules}
        self._found: dict[Hashable, Schedule] = {}

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of all of it, for cache keys."""
        known = {key: schedule.to_json() for key, schedule in self._schedules.items()}
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]

    def __call__(self, subject: Subject) -> Schedule:
        if not subject.is_exact or subject.head not in self._heads:
            return RULES
        identity = subject.identity
        found = self._found.get(identity)
        if found is None:
            found = self._found[identity] = self._schedules.get(subject.key, RULES)
        return found


def database() -> Path:
    """Where the user's results lie."""
    return config.cache_dir / "schedules.sqlite"


def target_key(target: Target) -> str:
    """A hash of what kernels' speed depends on: the target, but for how much memory there is."""
    return target.with_limits(max_allocation=0, max_binding=0).fingerprint()


def driver_key(device: Device) -> str:
    """The adapter, its version, and those of its compiler and driver; and which accelerator, if it is one."""
    words = f"{device.adapter_name} {device.adapter.cache_key(device.target)}"
    if device.info.driver not in words:
        words += f" {device.info.driver}"
    return f"{words} {device.info.name}" if device.info.is_accelerator else words


def shipped(target: str, driver: str) -> dict[str, Schedule]:
    """What comes with Oarlock for a target and driver."""
    records: list[dict[str, Any]] = json.loads(_SHIPPED.read_text(encoding="utf-8"))["results"]
    return {
        r["subject"]: Schedule.from_json(r["schedule"])
        for r in records
        if r["target"] == target and r["driver"] == driver
    }


def schedules_of(device: Device) -> Known | None:
    """The schedules known for ``device``; None where there are none, or ``config.tuned`` says not to use them.

    A database that cannot be used is told of once, by a warning, and then does as if there were none.
    """
    if not config.tuned:
        return None
    if _HELD not in device.held:
        target, driver = target_key(device.target), driver_key(device)
        known = shipped(target, driver) | _own(target, driver)
        known = {key: schedule for key, schedule in known.items() if schedule != RULES}
        device.held[_HELD] = Known(known) if known else None
    found = device.held[_HELD]
    assert found is None or isinstance(found, Known)
    return found


def forget(device: Device) -> None:
    """Read the database again when a schedule is asked for next."""
    device.held.pop(_HELD, None)


def _own(target: str, driver: str) -> dict[str, Schedule]:
    if not database().exists():
        return {}
    from oarlock.runtime.tuning.store import Store

    try:
        results = Store(database()).read(target, driver)
    except TuningError as error:
        warnings.warn(f"{error}; until then schedules are as the rules say", RuntimeWarning, stacklevel=5)
        return {}
    return {result.subject: result.schedule for result in results}
