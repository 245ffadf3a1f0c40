"""Installs the fake adapter as a real distribution, in this process or for a child."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from oarlock import registry
from oarlock.config import config
from oarlock.runtime import Device, open_device, opening

SOURCE = Path(__file__).parent / "fake_adapter"


def install(folder: Path) -> list[str]:
    """Write the fake adapter's metadata to ``folder``; returns the path entries that make it importable."""
    info = folder / "oarlock_fake-7.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: oarlock-fake\nVersion: 7.1\n")
    (info / "entry_points.txt").write_text("[oarlock.adapters]\nfake = oarlock_fake\n")
    return [str(folder), str(SOURCE)]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the fake adapter, installed; its devices are closed and checked for breaches afterwards."""
    for entry in install(tmp_path / "site"):
        monkeypatch.syspath_prepend(entry)
    monkeypatch.setattr(config, "cache_dir", tmp_path / "cache")
    registry.forget()
    module = importlib.import_module("oarlock_fake")
    module.configure()
    module.LIVE.clear()
    module.COMPILED.clear()
    yield module
    for device in opening.open_devices():
        if device.adapter_name == "fake":
            device.close()
    breaches = [breach for driver in module.LIVE for breach in driver.breaches]
    registry.forget()
    assert breaches == []


@pytest.fixture
def make(fake: ModuleType) -> Callable[..., Device]:
    """Open fake:0 with options."""

    def opened(name: str = "fake:0", **options: object) -> Device:
        fake.configure(**options)
        return open_device(name)

    return opened


@pytest.fixture
def child(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python code in a child process that has the fake adapter, with a deadline."""
    paths = install(tmp_path / "child-site")

    def run(code: str, timeout_s: float = 60.0, **environment: str) -> subprocess.CompletedProcess[str]:
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
            "OARLOCK_CACHE_DIR": str(tmp_path / "child-cache"),
            **environment,
        }
        return subprocess.run(
            [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    return run
