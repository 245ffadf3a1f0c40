"""Random programs: every recipe is a program, and a failure becomes a file that shows it with oarlock alone."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from oarlock import dtypes, registry
from oarlock.errors import ConfigError
from oarlock.ir import interpret, verify
from oarlock.runtime import open_device, open_devices
from oarlock_conformance.case import Options
from oarlock_conformance.cases.operators import fuzzing
from oarlock_conformance.cases.operators.fuzzing import recipes
from oarlock_conformance.cases.operators.recipes import Recipe, program_of

KINDS = (dtypes.float32, dtypes.int32, dtypes.bool_, dtypes.float16, dtypes.uint8, dtypes.int64)
TWISTED = '''
"""The simulator with one fault: kernels that reduce to the largest value add one to some of it."""
import numpy as np
from oarlock.plugin import hookimpl
from oarlock_sim.device import SimAdapter, SimDriver
from oarlock_sim.memory import Allocation
from oarlock_sim.program import Program


class Driver(SimDriver):
    def _run(self, step):
        super()._run(step)
        if "maximum" not in step.entry:
            return
        signatures = self.find(step.program, Program, "twist").signatures
        for (handle, _, _), argument in zip(step.buffers, signatures[step.entry].buffers):
            if argument.access != "read" and argument.dtype.name == "float32":
                memory = self.find(handle, Allocation, "twist")
                values = np.frombuffer(memory.view[: memory.nbytes // 4 * 4], np.float32)
                values[1::2] += 1


class Adapter(SimAdapter):
    def devices(self):
        return super().devices()[:1]

    def open(self, index):
        return Driver(self.devices()[index], self.plan)


class Plugin:
    @hookimpl
    def oarlock_adapter(self):
        return Adapter()


twisted = Plugin()
'''


@pytest.fixture(scope="module")
def twisted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a device that computes maximum wrongly, and whose adapter is installed like any other."""
    site = tmp_path_factory.mktemp("twisted")
    (site / "oarlock_twisted.py").write_text(TWISTED)
    info = site / "oarlock_twisted-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: oarlock-twisted\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[oarlock.adapters]\ntwisted = oarlock_twisted:twisted\n")
    before = list(sys.path)
    sys.path.insert(0, str(site))
    registry.forget()
    yield "twisted:0"
    for device in open_devices():
        if device.adapter_name == "twisted":
            device.close()
    sys.path[:] = before
    registry.forget()


@pytest.mark.parametrize("flavour", ["exact", "any"])
def test_every_recipe_is_a_program(flavour: str) -> None:
    counts = []

    @settings(max_examples=300, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(recipes(flavour))  # type: ignore[arg-type]
    def check(recipe: Recipe) -> None:
        program = program_of(recipe, KINDS)
        verify(program.function)
        with np.errstate(all="ignore"):
            found = interpret(program.function, program.operands)
        counts.append(sum(1 for _ in program.function.regions[0].block.ops) - 1)
        if flavour == "exact":
            for value in found:
                if value.dtype.kind == "f":
                    assert not (np.abs(value.astype(np.float64)) > 64).any()

    check()
    assert max(counts) > 8


def _keeper(texts: list[str]) -> Callable[[Recipe], None]:
    def keep(recipe: Recipe) -> None:
        texts.append(repr(recipe))

    return keep


def test_same_seed_same_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    for _ in range(2):
        device = open_device("sim")
        search = fuzzing._Search(device, "random.exact/1", "exact", Options(quick=True, seed=5), lambda: None)
        texts: list[str] = []
        monkeypatch.setattr(search, "_try", _keeper(texts))
        search.go()
        seen.append(texts)
    assert seen[0] == seen[1]
    assert len(seen[0]) >= 3


def test_healthy_device_passes_and_tells_its_seed(uncached: None) -> None:
    beats: list[int] = []
    options = Options(quick=True, seed=3, examples=2)
    outcome = fuzzing.run(open_device("sim"), "random.exact/0", options, lambda: beats.append(1))
    assert outcome.state == "passed", outcome.reason
    assert outcome.details["examples"] == 2
    assert outcome.details["programs"] == len(beats) >= 2
    assert isinstance(outcome.details["seed"], int)


def test_failure_shrinks_to_a_file_that_shows_it(twisted: str, uncached: None, tmp_path: Path) -> None:
    options = Options(quick=True, examples=40, repro=str(tmp_path / "repro"))
    outcome = fuzzing.run(open_device(twisted), "random.exact/0", options, lambda: None)
    assert outcome.state == "failed"
    assert outcome.kind == "value"
    path = Path(outcome.details["file"])
    assert path.parent == tmp_path / "repro"
    source = path.read_text("utf-8")
    assert source == outcome.details["reproduction"]
    assert "conformance" not in source
    assert source.count("= array.") <= 8, source  # of up to twelve steps, and what keeps values small

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        code = "import json, runpy, sys; sys.path[:0] = json.loads(sys.argv.pop(1)); sys.argv.pop(0); "
        start = code + "runpy.run_path(sys.argv[0], run_name='__main__')"
        command = [sys.executable, "-c", start, json.dumps(sys.path), str(path), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    done = run()
    assert done.returncode == 1, done.stderr
    assert "expected" in done.stdout and "got" in done.stdout
    assert "twisted:0: the results differ" in done.stdout
    done = run("sim:0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sim:0: all is well" in done.stdout


def test_without_hypothesis_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"oarlock\[certify\]"):
        fuzzing.plan(open_device("sim"), Options(quick=True))
