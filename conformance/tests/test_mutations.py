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
"""Kernels that the set may have at most."""
_FATAL = """
import json, sys
sys.path.insert(0, sys.argv[1])
import attempt, catalogue, run
attempt.PROGRAMS = tuple(p for p in attempt.PROGRAMS if p.name == "fused chain")
place = "return b.select(b.lt(x, y) if largest else b.lt(y, x), y, x)"
planted = [
    catalogue.Mutation("dies", "lower.elementwise", place, "__import__('signal').raise_signal(11)"),
    catalogue.Mutation("hangs", "lower.elementwise", place, "[None for _ in iter(int, 1)]"),
    catalogue.Mutation("lives", "lower.elementwise", place, "return b.select(b.lt(x, y), y, x)"),
    catalogue.Mutation("wrong", "lower.elementwise", place, "return b.select(b.lt(y, x), y, x)"),
]
catalogue.MUTATIONS.clear()
catalogue.MUTATIONS.update({mutation.name: mutation for mutation in planted})
print(json.dumps(run.run_table(planted, 2, False, lambda line: None, 6.0).to_json()))
"""


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


_STALE = """
import importlib.util, json, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from catalogue import MUTATIONS
def times(mutation):
    spec = importlib.util.find_spec("oarlock.codegen." + mutation.module)
    return Path(spec.origin).read_text().count(mutation.old)
print(json.dumps([m.name for m in MUTATIONS.values() if times(m) != 1]))
"""


def test_every_mutation_finds_its_text() -> None:
    """The whole catalogue, for a run of CI plants only a part of it: who moves code sees here what to write anew."""
    done = subprocess.run([sys.executable, "-c", _STALE, str(RUN.parent)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_unknown_mutation_ends_with_2() -> None:
    done = subprocess.run([sys.executable, str(RUN), "--only", "no_such"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no mutation matches no_such" in done.stderr


def test_attempt_that_dies_or_hangs_ends_as_such() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FATAL, str(RUN.parent)], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    ends = {row["name"]: (row["caught"], row["by"], row["changed"], row["looked"]) for row in found["rows"]}
    assert ends == {
        "dies": (True, "crash", 1, 1),
        "hangs": (True, "time-out", 1, 1),
        "lives": (False, "", 0, 3),
        "wrong": (True, "value", 1, 1),
    }
    reasons = {row["name"]: (row["first"], row["reason"]) for row in found["rows"]}
    first = "kernel: fused chain on functions"
    assert reasons["dies"] == (first, "its process died of SIGSEGV")
    assert reasons["hangs"] == (first, "its process said nothing for 6 s")
    assert found["by"] == {"crash": 1, "time-out": 1, "value": 1}
    assert found["crash_only"] == ["dies", "hangs"]
    assert (found["wrong"], found["planted"], found["caught"]) == ([], 4, 3)
