"""No false alarms: a healthy adapter passes in any order."""

from __future__ import annotations

import pytest

from oarlock_conformance.case import Options
from oarlock_conformance.certify import Request, certify

ORDERS = 10


def problems(device: str, seed: int, only: str = "") -> list[str]:
    """Cases that do not pass in the order of ``seed``."""
    request = Request(device, levels=("runtime",), only=only, jobs=2, options=Options(quick=True), shuffle=seed)
    found = certify(request)
    return [f"{case.id}: {outcome.reason}" for case, outcome in found.problems]


@pytest.mark.parametrize("seed", range(2))
def test_healthy_device_passes_in_any_order_of_memory_and_plans(seed: int) -> None:
    assert problems("sim:0", seed, "[mp][el][ma][on]*") == []


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(ORDERS))
@pytest.mark.parametrize("device", ["sim:0", "sim:1", "cpu:0"])
def test_healthy_device_passes_in_any_order(device: str, seed: int) -> None:
    assert problems(device, seed) == []
