"""The child process of a group: runs cases on a device and tells each result at once, as a line of JSON.

``python -m oarlock_conformance.worker JOB`` writes events to standard output: ``{"event": "start", "cases": [...]}``,
``{"event": "end", "outcome": {...}}``, ``{"event": "beat"}``, ``{"event": "planned", ...}``,
``{"event": "refused", ...}`` and, last, ``{"event": "done", ...}``. What libraries print to standard output goes to
standard error, where anything at all is stray output. A job is a JSON object: ``device``, ``options`` and
either ``levels`` (tell what there is) or ``level``, ``cases``, ``isolate`` (run cases).
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from oarlock.config import config
from oarlock.errors import ConfigError, DeviceError, DeviceNotFoundError, OarlockError
from oarlock.registry import get_adapter
from oarlock.registry.loading import owners
from oarlock.runtime import Device, open_device
from oarlock_conformance.case import ALONE, LEVELS, Options, Outcome
from oarlock_conformance.cases import level
from oarlock_conformance.environment import about_device, adapter_folder
from oarlock_conformance.fallbacks import fallbacks
from oarlock_conformance.waivers import FILE, Waiver, for_device, read_waivers

__all__ = ["Channel", "command", "main", "perform"]

_PATIENCE = 50
"""How often it is looked whether everything was given back, with 10 ms in between."""
_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from oarlock_conformance.worker import main; sys.exit(main(sys.argv[1]))"
)


def command(job: Mapping[str, Any]) -> list[str]:
    """The command line of a child that does ``job``, with the packages of this process."""
    return [sys.executable, "-c", _CHILD, json.dumps(job), json.dumps(sys.path)]


class Channel:
    """Writes events as lines of JSON."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, event: str, **content: Any) -> None:
        with self._lock:
            self._stream.write(json.dumps({"event": event, **content}) + "\n")
            self._stream.flush()

    def start(self, *cases: str) -> None:
        self.send("start", cases=cases)

    def end(self, outcome: Outcome) -> None:
        self.send("end", outcome=outcome.to_json())

    def beat(self) -> None:
        self.send("beat")


def main(text: str) -> int:
    """Do the job ``text``; the exit status is 0 whatever the cases gave."""
    faulthandler.enable()
    sys.stdout.flush()
    answer = os.dup(1)
    os.dup2(2, 1)
    job = json.loads(text)
    with os.fdopen(answer, "w", encoding="utf-8") as stream:
        channel = Channel(stream)
        try:
            perform(job, channel)
        except OarlockError as error:
            channel.send("refused", why=why_refused(job["device"], error), reason=str(error))
    return 0


def perform(job: Mapping[str, Any], channel: Channel) -> None:
    """Do a job in this process. Raises OarlockError when the device cannot be opened."""
    options = Options(**job["options"])
    config.watchdog_s = options.deadline_s * 0.9  # so that a wait that hangs is told as what it is
    config.poison = job.get("level") not in ALONE  # overwriting freed memory takes time
    device = open_device(job["device"])
    if "level" not in job:
        _plan(device, job["levels"], options, channel)
        return
    level(job["level"]).run(device.name, job["cases"], options, job["isolate"], channel)
    channel.send("done", alive=_alive(device.name), fallbacks=fallbacks())


def _plan(device: Device, levels: Sequence[str], options: Options, channel: Channel) -> None:
    cases = [case.to_json() for name in LEVELS if name in levels for case in level(name).plan(device, options)]
    folder = adapter_folder(device.adapter_name)
    waivers: tuple[Waiver, ...] = ()
    wrong = ""
    try:
        if folder is not None:
            waivers = for_device(read_waivers(folder / FILE), device.name, device.info.driver)
    except ConfigError as error:
        wrong = str(error)
    entries = [waiver.to_json() for waiver in waivers]
    channel.send("planned", device=about_device(device), cases=cases, waivers=entries, waivers_wrong=wrong)


def why_refused(name: str, error: OarlockError) -> str:
    """Why nothing could be done: "mistyped" (the device's name), "absent" (its driver or hardware), "broken", or
    "unready" (what the suite itself needs is missing)."""
    if isinstance(error, ConfigError):
        return "unready"
    if not isinstance(error, DeviceNotFoundError):
        return "broken"
    if error.__cause__ is not None:
        return "absent" if isinstance(error.__cause__, (DeviceError, OSError, ImportError)) else "broken"
    adapter = name.partition(":")[0]
    if not owners("oarlock.adapters", adapter):
        return "mistyped"
    return "mistyped" if get_adapter(adapter).devices() else "absent"


def _alive(name: str) -> str:
    """What is still alive on the device when its work is over; empty for nothing."""
    device = open_device(name)
    for _ in range(_PATIENCE):
        gc.collect()
        device.synchronize()
        stats = device.stats()
        counts = {"streams": stats.streams, "events": stats.events}
        if not any(counts.values()):
            return ""
        time.sleep(0.01)
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
