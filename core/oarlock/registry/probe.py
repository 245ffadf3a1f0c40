"""Looks at one adapter in a process of its own: ``python -m oarlock.registry.probe NAME`` prints a report as JSON.

``Adapter.devices`` may load a vendor's libraries, and some of those hang or crash, or make a later ``fork()`` hang.
So listings and error texts ask a child process, which is killed when it takes too long.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from oarlock.errors import OarlockError
from oarlock.hal import Adapter, DeviceInfo
from oarlock.registry.checks import check_devices
from oarlock.registry.failures import Failure, failure_of
from oarlock.registry.loading import outcome_of

__all__ = ["look", "main", "run"]

_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from oarlock.registry.probe import main; sys.exit(main(sys.argv[1]))"
)


def look(name: str) -> dict[str, Any]:
    """Load adapter ``name`` in this process and list its devices; what fails is part of the answer."""
    try:
        outcome = outcome_of("oarlock.adapters", name)
    except OarlockError as error:
        return {"stage": "load", "failure": _json(Failure(type(error).__name__, str(error), ""))}
    if outcome.failure is not None:
        return {"stage": "load", "failure": _json(outcome.failure)}
    adapter: Adapter = outcome.value
    answer: dict[str, Any] = {"stage": "devices", "version": adapter.version, "contract": list(adapter.contract)}
    try:
        answer["devices"] = [_device(info) for info in check_devices(name, adapter.devices())]
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        answer["failure"] = _json(failure_of(error, outcome.folder))
    return answer


def run(name: str, timeout_s: float) -> dict[str, Any]:
    """``look(name)`` in a child process, of at most ``timeout_s`` seconds. A crash or a hang is part of the answer."""
    command = [sys.executable, "-c", _CHILD, name, json.dumps(sys.path)]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as noise:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=noise, start_new_session=os.name == "posix"
        )
        try:
            status = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return _ended(f"listing its devices took longer than {timeout_s:g} s and was stopped", noise.fileno())
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        output.seek(0)
        try:
            return dict(json.loads(output.read()))  # a crash after the answer, while libraries unload, does not matter
        except ValueError:
            return _ended(f"listing its devices ended the process: {_status_text(status)}", noise.fileno())


def main(name: str) -> int:
    """Print the JSON of ``look(name)``. Whatever libraries print to standard output goes to standard error."""
    sys.stdout.flush()
    answer = os.dup(1)
    os.dup2(2, 1)
    text = json.dumps(look(name))
    sys.stdout.flush()
    with os.fdopen(answer, "w", encoding="utf-8") as stream:
        stream.write(text)
    return 0


def _ended(message: str, noise: int) -> dict[str, Any]:
    os.lseek(noise, 0, os.SEEK_SET)
    printed = os.read(noise, 65536).decode("utf-8", "replace").strip()
    last = printed.splitlines()[-1] if printed else ""
    if last:
        message = f"{message}; it printed: {last}"
    return {"stage": "devices", "failure": _json(Failure("ProbeError", message, "", printed))}


def _status_text(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"


def _device(info: DeviceInfo) -> dict[str, Any]:
    target = info.target
    return {
        "name": info.name,
        "vendor": info.vendor,
        "driver": info.driver,
        "memory": info.memory,
        "language": target.language,
        "arch": target.arch,
        "stores": sorted(set(target.compute) | {name for name, _ in target.storage}),
        "capabilities": sorted(info.capabilities),
        "accelerator": info.is_accelerator,
        "notes": list(info.notes),
    }


def _json(failure: Failure) -> dict[str, str]:
    return {
        "kind": failure.kind,
        "message": failure.message,
        "where": failure.where,
        "details": failure.details,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
