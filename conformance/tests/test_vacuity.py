"""No case passes for nothing: zeroed results and scrambled operands fail every case that compares values."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RUN = Path(__file__).parent / "saboteurs" / "vacuous.py"


def measured(*words: str) -> list[dict[str, object]]:
    """What vacuous.py prints as JSON, a device each."""
    done = subprocess.run([sys.executable, str(RUN), "--json", *words], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr[-2000:]
    found: list[dict[str, object]] = json.loads(done.stdout)["devices"]
    return found


def check(found: list[dict[str, object]]) -> None:
    for device in found:
        assert device["vacuous"] == [], device["device"]
        assert isinstance(device["failed"], int) and device["failed"] > 0


def test_products_and_reductions_are_not_vacuous() -> None:
    check(measured("--only", "[mr][ae][td][mu][uc]*/float32/*"))


@pytest.mark.proof
def test_no_case_is_vacuous(proven: Callable[[str], dict[str, Any]]) -> None:
    check(proven("vacuity")["devices"])
