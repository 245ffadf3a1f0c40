"""Plants mistakes: a tiny adapter of the host, changed in one place, installed as a vendor's distribution is."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oarlock import registry
from oarlock.config import config
from oarlock.runtime import opening

ADAPTER = (Path(__file__).parent / "acme.py").read_text()
_numbers = itertools.count()


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """``plant(old, new, ...)`` installs the adapter with texts replaced; returns its name, ``acme_N``."""
    monkeypatch.setattr(config, "cache_dir", tmp_path / "cache")
    monkeypatch.setattr(config, "watchdog_s", 20.0)

    def planted(*changes: str, entries: int = 1) -> str:
        number = next(_numbers)
        name, module = f"acme_{number}", f"oarlock_acme_{number}"
        text = ADAPTER
        for old, new in zip(changes[::2], changes[1::2], strict=True):
            assert text.count(old) >= 1, f"the adapter does not hold {old!r}"
            text = text.replace(old, new)
        site = tmp_path / f"site{number}"
        site.mkdir()
        (site / f"{module}.py").write_text(text)
        for copy in range(entries):
            info = site / f"oarlock_acme_{number}_{copy}-0.{copy + 1}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: oarlock-acme-{number}-{copy}\nVersion: 0.{copy + 1}\n"
            )
            (info / "entry_points.txt").write_text(f"[oarlock.adapters]\n{name} = {module}\n")
        monkeypatch.syspath_prepend(str(site))
        registry.forget()
        return name

    yield planted
    for device in opening.open_devices():
        if device.adapter_name.startswith("acme_"):
            device.close()
    for module in [module for module in sys.modules if module.startswith("oarlock_acme_")]:
        del sys.modules[module]
    registry.forget()
