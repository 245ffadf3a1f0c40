"""The node cases of ``onnx.backend.test``: what passed must go on passing, and nothing may be silently wrong."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from onnx.backend.test.case.test_case import TestCase

from oarlock_onnx.engine import engine_for
from oarlock_onnx.node_cases import cases, compared, run_cases

EXPECTED = frozenset(json.loads(Path(__file__).with_name("node_expected.json").read_text("utf-8")))


@pytest.fixture(scope="module")
def all_cases() -> list[TestCase]:
    return cases()


def check(chosen: list[TestCase], device: str) -> None:
    """Fail where a case is wrong, crashes, or passed before and does not now."""
    with np.errstate(all="ignore"):
        outcomes = list(run_cases(chosen, engine_for(device)))
    counts = Counter(outcome.status for outcome in outcomes)
    print(f"{device}: {dict(counts)}")
    fresh = [o.name for o in outcomes if o.status == "passed" and o.name not in EXPECTED]
    if fresh:
        print(f"newly passing, add them to node_expected.json: {fresh}")
    bad = [o for o in outcomes if o.status in ("wrong", "crashed")]
    lost = [o for o in outcomes if o.status == "unsupported" and o.name in EXPECTED]
    assert not bad + lost, "\n".join(f"{o.status} {o.name}: {o.message}" for o in bad + lost)


def test_node_cases_pass_by_interpreter(all_cases: list[TestCase]) -> None:
    check(all_cases, "interpret")


@pytest.mark.proof
@pytest.mark.parametrize("device", ["cpu", "opencl:0", "sim:0"])
def test_node_cases_pass_on_devices(all_cases: list[TestCase], device: str) -> None:
    check(all_cases, device)


def test_expected_list_holds_more_than_1600_of_the_cases(all_cases: list[TestCase]) -> None:
    assert len(EXPECTED & {str(case.name) for case in all_cases}) >= 1600


def test_compared_finds_values_dtypes_and_shapes() -> None:
    one = np.float32([1, 2])
    assert compared(one, one, 1e-3, 1e-7) == ""
    assert "differ" in compared(one, np.float32([1, 2.1]), 1e-3, 1e-7)
    assert "expected float64" in compared(one, np.float64([1, 2]), 1e-3, 1e-7)
    assert "expected" in compared(one, one[:1], 1e-3, 1e-7)
    assert compared(np.float32([np.nan]), np.float32([1]), 1e-3, 1e-7)
    assert compared(np.int64([1]), np.int64([2]), 1e-3, 1e-7)
