"""Faults planted in the simulated driver are caught by the conformance suite: a few of them here, all in the proof."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent
QUICK = ("copy_in_offset", "wait_nothing", "launch_last_block", "graph_update_nothing")


def load() -> ModuleType:
    """The table of faults, which is a script too."""
    spec = importlib.util.spec_from_file_location("oarlock_cuda_planted", HERE / "planted.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


planted = load()


def test_table_names_every_fault_that_the_driver_knows() -> None:
    texts = [path.read_text() for path in (HERE / "simulated_driver").iterdir() if path.suffix in (".cpp", ".h")]
    known = {name for text in texts for name in re.findall(r'fault\("(\w+)"\)', text)}
    assert known == set(planted.FAULTS)
    assert {fault.surface for fault in planted.FAULTS.values()} == set(planted.SURFACES)


def caught(simulated: dict[str, str], name: str) -> None:
    found = planted.trial(simulated, planted.FAULTS[name].surface, name)
    assert found.reached > 0, f"{name} was never active in {found.cases} cases"
    assert found.failing, f"{name}: all {found.cases} cases passed"


@pytest.mark.parametrize("name", QUICK)
def test_planted_fault_is_caught(simulated: dict[str, str], name: str) -> None:
    caught(simulated, name)


@pytest.mark.proof
@pytest.mark.parametrize("name", sorted(set(planted.FAULTS) - set(QUICK)))
def test_every_planted_fault_is_caught(simulated: dict[str, str], name: str) -> None:
    caught(simulated, name)


@pytest.mark.proof
@pytest.mark.parametrize("surface", sorted(planted.SURFACES))
def test_without_a_fault_the_same_cases_pass(simulated: dict[str, str], surface: str) -> None:
    found = planted.trial(simulated, surface)
    assert found.cases and not found.failing
