"""`oarlock certify cuda` under the simulated driver: the unmodified adapter and pycuda, the same CUDA C++ text.

It is a simulation: what is shown is that calls and text are right, and nothing about a GPU's speed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_COMMAND = ("-c", "import sys; from oarlock.cli import main; sys.exit(main())", "certify", "cuda:0", "--quick")
_SIMULATED = "simulated CUDA device (no GPU)"


def certify(variables: dict[str, str], report: Path, *options: str, timeout_s: float = 1800) -> dict[str, Any]:
    """The certificate of a run that must end conformant."""
    command = [sys.executable, *_COMMAND, "--report", str(report), *options]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    (path,) = report.glob("*.json")
    certificate: dict[str, Any] = json.loads(path.read_text())
    assert certificate["device"]["name"] == _SIMULATED  # nobody takes it for a GPU's
    return certificate


def passed(certificate: dict[str, Any]) -> int:
    return sum(case["state"] == "passed" for case in certificate["cases"])


def test_runtime_level_is_conformant(simulated: dict[str, str], tmp_path: Path) -> None:
    assert passed(certify(simulated, tmp_path, "--level", "runtime")) > 250


@pytest.mark.parametrize("pattern", ["matmul/*", "reduce_sum/*", "softmax/*", "scatter/*", "sort/*", "fused.*"])
def test_operators_are_conformant(simulated: dict[str, str], tmp_path: Path, pattern: str) -> None:
    assert passed(certify(simulated, tmp_path, "--level", "operators", "--only", pattern)) > 1


@pytest.mark.parametrize("name", ["silero_vad_op18_ifless", "ppocr_cls"])
def test_small_model_is_conformant(simulated: dict[str, str], tmp_path: Path, name: str) -> None:
    options = ("--level", "models", "--only", f"model.{name}", "--allow-unavailable")
    certificate = certify(simulated, tmp_path, *options)
    for case in certificate["cases"]:
        if case["state"] == "unavailable":
            pytest.skip(f"UNAVAILABLE: {case['reason']}")
    assert passed(certificate) > 1


@pytest.mark.proof
@pytest.mark.parametrize("level", ["operators", "programs", "collectives", "models", "performance"])
def test_level_is_conformant(simulated: dict[str, str], tmp_path: Path, level: str) -> None:
    assert passed(certify(simulated, tmp_path, "--level", level)) > 1
