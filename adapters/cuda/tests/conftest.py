"""A child process that sees two simulated CUDA devices, or, loudly, none: what the tests of the adapter run in."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent
Done = subprocess.CompletedProcess[str]


def simulated_driver() -> ModuleType:
    """The module that builds the simulation. It is no package: a vendor may run it as a script."""
    spec = importlib.util.spec_from_file_location("oarlock_cuda_build", HERE / "simulated_driver" / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def simulated() -> dict[str, str]:
    """The environment variables of a process that sees the simulated devices; built at first use, then kept."""
    if sys.platform != "linux":
        pytest.skip("UNAVAILABLE: the simulated CUDA driver is for Linux")
    module = simulated_driver()
    try:
        built: dict[str, str] = module.environment(module.default_folder())
    except module.BuildError as error:
        pytest.skip(f"UNAVAILABLE: the simulated CUDA driver cannot be built: {error}")
    return built


@pytest.fixture
def child(simulated: dict[str, str]) -> Callable[..., Done]:
    """Runs Python code in a process that sees the simulated devices; keywords are settings, ``CHECK="1"`` for one.

    ``from rig import *`` gives the code hand-written kernels on an open device.
    """

    def run(code: str, timeout_s: float = 120, **settings: str) -> Done:
        return run_python(simulated, "-c", textwrap.dedent(code), timeout_s=timeout_s, **settings)

    return run


@pytest.fixture(scope="session")
def python() -> Callable[..., Done]:
    """Runs Python with chosen variables of the simulation's."""
    return run_python


def run_python(variables: dict[str, str], *arguments: str, timeout_s: float = 120, **settings: str) -> Done:
    """Run Python with the simulation's ``variables`` and OARLOCK_CUDA_SIM_<setting> for each of ``settings``."""
    wanted = {f"OARLOCK_CUDA_SIM_{name}": value for name, value in settings.items()}
    path = os.pathsep.join((variables.get("PYTHONPATH", ""), str(HERE)))
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **variables, "PYTHONPATH": path, **wanted},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
