"""The generated kernels find planted errors of the compiler: every mutation gives a wrong result, none gives none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

RUN = Path(__file__).parent / "mutations" / "run.py"
KERNELS = 300


def table(*words: str) -> dict[str, object]:
    """What run.py prints as JSON: in a process of its own, for it must not have imported the compiler."""
    done = subprocess.run([sys.executable, str(RUN), "--json", *words], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr[-2000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found


def check(found: dict[str, object]) -> None:
    rows, kernels = found["rows"], found["kernels"]
    assert isinstance(rows, list) and isinstance(kernels, dict)
    assert found["wrong"] == []
    assert all(0 < count <= KERNELS for count in kernels.values())
    assert [(row["name"], row["reason"]) for row in rows if not row["caught"]] == []


def test_part_of_the_mutations_is_caught(part: str) -> None:
    check(table("--shard", part))


@pytest.mark.proof
def test_every_mutation_is_caught(proven: Callable[[str], dict[str, object]]) -> None:
    found = proven("mutations")
    check(found)
    assert isinstance(found["planted"], int) and found["planted"] >= 40


def test_unknown_mutation_ends_with_2() -> None:
    done = subprocess.run([sys.executable, str(RUN), "--only", "no_such"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no mutation matches no_such" in done.stderr
