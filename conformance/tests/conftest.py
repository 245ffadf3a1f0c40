"""Shared by the tests: the broken adapters as a real distribution, and which part of a long table this commit runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.config import config
from oarlock.runtime import opening
from oarlock_conformance.environment import suite_hash

HERE = Path(__file__).parent
SOURCE = HERE / "saboteurs"
PROOF = HERE.parents[1] / "docs" / "proof"
if str(SOURCE) not in sys.path:
    sys.path.append(str(SOURCE))

PARTS = 8
"""Parts that the long tables are cut into: a commit's tests run one of them."""


@pytest.fixture(scope="session")
def part() -> str:
    """The part of the tables that this commit runs, written I/N; without a repository, the suite's own hash chooses."""
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False)
    commit = git.stdout.strip() if git.returncode == 0 else suite_hash()
    return f"{int(commit, 16) % PARTS + 1}/{PARTS}"


@pytest.fixture(scope="session")
def proven() -> Callable[[str], dict[str, Any]]:
    """Run a part of the proof whole, store it in docs/proof with its page, and give what it found."""

    def prove(part: str) -> dict[str, Any]:
        subprocess.run([sys.executable, str(HERE / "prove.py"), "--only", part], check=False)
        found: dict[str, Any] = json.loads((PROOF / f"{part}.json").read_text())
        return found

    return prove


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder where the broken adapters are installed, for this process and the children it starts."""
    from trial import PREFIX, installed

    with installed(tmp_path_factory.mktemp("saboteurs") / "site") as folder:
        yield folder
        for device in opening.open_devices():
            if device.adapter_name.startswith(PREFIX):
                device.close()


@pytest.fixture(scope="module")
def saboteurs(site: Path) -> str:
    """The prefix of the devices' names: saboteur ``x`` is the device ``broken_x:0``."""
    from trial import PREFIX

    return PREFIX


@pytest.fixture
def uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled kernels are not kept on disk, and freed memory is poisoned, as in a worker."""
    monkeypatch.setattr(config, "cache", False)
    monkeypatch.setattr(config, "poison", True)
    monkeypatch.setattr(config, "watchdog_s", 20.0)
