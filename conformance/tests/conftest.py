"""Installs the broken adapters as a real distribution, for this process and the children it starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock import registry
from oarlock.config import config
from oarlock.runtime import opening

SOURCE = Path(__file__).parent / "saboteurs"


@pytest.fixture(scope="module")
def saboteurs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The prefix of the devices' names: saboteur ``x`` is the device ``broken_x:0``."""
    site = tmp_path_factory.mktemp("site")
    before = list(sys.path)
    sys.path[:0] = [str(site), str(SOURCE)]
    from oarlock_saboteurs import SABOTEURS

    info = site / "oarlock_saboteurs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: oarlock-saboteurs\nVersion: 1.0\n")
    entries = "\n".join(f"broken_{name} = oarlock_saboteurs:{name}" for name in SABOTEURS)
    (info / "entry_points.txt").write_text(f"[oarlock.adapters]\n{entries}\n")
    registry.forget()
    yield "broken_"
    for device in opening.open_devices():
        if device.adapter_name.startswith("broken_"):
            device.close()
    sys.path[:] = before
    registry.forget()


@pytest.fixture
def uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled kernels are not kept on disk, and freed memory is poisoned, as in a worker."""
    monkeypatch.setattr(config, "cache", False)
    monkeypatch.setattr(config, "poison", True)
    monkeypatch.setattr(config, "watchdog_s", 20.0)
