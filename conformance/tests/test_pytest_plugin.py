"""The suite under pytest: an item per case, and no trace of it in other runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PATHS = os.pathsep.join(path for path in sys.path if path)
SUITE = ("--pyargs", "oarlock_conformance")


def under_pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """pytest in an empty folder, with the plugin as an entry point would give it."""
    environment = {**os.environ, "PYTHONPATH": PATHS, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "oarlock_conformance.pytest_plugin", "-q", "-ra", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def test_cases_are_items(tmp_path: Path) -> None:
    done = under_pytest(
        tmp_path, *SUITE, "--device", "sim:1", "--quick", "--level", "runtime", "-k", "launch.grid or plan.prepare"
    )
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout
    assert "unsupported: capability plans is not declared" in done.stdout


def test_mistyped_device_is_an_error(tmp_path: Path) -> None:
    done = under_pytest(tmp_path, *SUITE, "--device", "sim:9", "--quick", "--level", "runtime")
    assert done.returncode not in (0, 5)
    assert 'no device "sim:9": sim has 2 devices' in done.stdout + done.stderr


def test_other_runs_have_no_such_options(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--device', default='mine')\n"
    )
    (tmp_path / "test_mine.py").write_text(
        "import sys\ndef test_mine(request):\n    assert request.config.getoption('--device') == 'mine'\n"
        "    assert 'oarlock' not in sys.modules\n"
    )
    done = under_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
