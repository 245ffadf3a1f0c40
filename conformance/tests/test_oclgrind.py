"""The reader of Oclgrind's log; and, where Oclgrind is installed, that a planted fault is seen and ours are clean."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "ci" / "oclgrind.py"
LOG = """
Invalid write of size 4 at global memory address 0x2000000000010
\tKernel: planted
\tEntity: Global(3,0,0) Local(3,0,0) Group(0,0,0)
\t  store i32 %5, i32 addrspace(1)* %arrayidx5, align 4

Read-write data race at global memory address 0x2000000000004
\tKernel: planted

\tFirst entity:  Global(1,0,0) Local(1,0,0) Group(0,0,0)
\t  %1 = load i32, i32 addrspace(1)* %arrayidx, align 4

\tSecond entity: Global(0,0,0) Local(0,0,0) Group(0,0,0)
\t  store i32 %5, i32 addrspace(1)* %arrayidx5, align 4

Work-group divergence detected (barrier):
\tKernel: other
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("oclgrind_script", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def test_log_is_read_entry_by_entry(script: ModuleType) -> None:
    found = script.findings(LOG)
    assert [finding.kind for finding in found] == [
        "Invalid write", "Read-write data race", "Work-group divergence detected (barrier):",
    ]  # fmt: skip
    assert [finding.kernel for finding in found] == ["planted", "planted", "other"]
    assert "Second entity" in found[1].text
    assert script.findings("\n  \n") == []


def test_absent_oclgrind_is_told(script: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert script.library(str(tmp_path / "nothing.so")) is None
    (tmp_path / "oclgrind").mkdir()
    driver = tmp_path / "oclgrind" / script.NAME
    driver.touch()
    assert script.library(str(driver)) == driver
    variables = script.environment(driver, tmp_path)
    assert (Path(variables["OCL_ICD_VENDORS"]) / "oclgrind.icd").read_text() == f"{driver}\n"
    assert variables["OARLOCK_POOL"] == "0"


def test_planted_fault_is_seen_and_kernels_are_clean(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """A quick part: the reductions, whose kernels have local memory and barriers."""
    driver = script.library(os.environ.get("OARLOCK_OCLGRIND", ""))
    if driver is None:
        pytest.skip("Oclgrind is not installed; OARLOCK_OCLGRIND may name its driver")
    status = script.run(driver, main_only=True, only="reduce_")
    output = capsys.readouterr().out
    assert status == 0, output
    assert "Invalid write" in output and "data race" in output  # the planted kernel's
    assert "0 findings, 0 wrong values" in output
