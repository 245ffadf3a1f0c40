"""The runner: breaking a run off stops its processes, a fallback fails its group, timing groups are alone."""

from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from oarlock_conformance import fallbacks, runner
from oarlock_conformance.case import Case, Options, Outcome
from oarlock_conformance.runner import Group, groups_of, run_groups

CASE = Case("launch.grid/row", "runtime", "launch", "it runs")


def test_broken_off_run_stops_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that would say nothing for a minute; the first group fails in this process at once."""
    code = "import time; time.sleep(60)"
    monkeypatch.setattr(runner, "command", lambda job: [sys.executable, "-c", code])
    started: list[Any] = []
    popen = runner.subprocess.Popen
    monkeypatch.setattr(runner.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1])
    told: list[Outcome] = []

    def interrupt(self: Any) -> None:
        while not started:
            time.sleep(0.01)
        raise KeyboardInterrupt

    original = runner._GroupRun.run
    monkeypatch.setattr(
        runner._GroupRun, "run", lambda self: interrupt(self) if self.group.name == "stop" else original(self)
    )
    groups = [Group("runtime", "stop", (CASE,)), Group("runtime", "launch", (CASE,))]
    began = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        run_groups("sim:0", groups, Options(), 2, told.append)
    assert time.perf_counter() - began < 30
    assert len(started) == 1 and started[0].poll() is not None
    assert not told, "what was broken off has no outcome"


def test_process_that_was_on_its_way_is_stopped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is broken off between the start of a process and the moment that the run knows of it."""
    monkeypatch.setattr(runner, "command", lambda job: [sys.executable, "-c", "import time; time.sleep(60)"])
    crew = runner._Crew(lambda outcome: None)
    crew.stop()
    began = time.perf_counter()
    with crew.child({}) as child:
        assert list(child.events(60)) == []
    assert time.perf_counter() - began < 30


def test_groups_that_measure_time_are_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    running: set[str] = set()
    seen: list[tuple[str, frozenset[str]]] = []
    lock = threading.Lock()

    def run(self: Any) -> None:
        with lock:
            running.add(self.group.name)
            seen.append((self.group.name, frozenset(running)))
        time.sleep(0.02)
        with lock:
            running.discard(self.group.name)

    monkeypatch.setattr(runner._GroupRun, "run", run)
    cases = [Case(f"{level}.{i}/x", level, f"{level}{i}", "") for level in ("models", "runtime") for i in range(3)]
    run_groups("sim:0", groups_of(cases), Options(), 3, lambda outcome: None)
    names = [name for name, _ in seen]
    assert {*names[:3]} == {"runtime0", "runtime1", "runtime2"}
    assert all(together == {name} for name, together in seen[3:])


def test_host_function_that_is_not_declared_is_a_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    host = SimpleNamespace(host_operations=lambda: {"nonzero": 3, "matmul": 2})
    monkeypatch.setitem(sys.modules, "oarlock.program.host", host)
    assert fallbacks.fallbacks() == {"matmul": 2}
    assert "nonzero" in fallbacks.declared()


def test_fallback_fails_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        '{"event": "start", "cases": ["launch.grid/row"]}',
        '{"event": "end", "outcome": {"case": "launch.grid/row", "state": "passed"}}',
        '{"event": "done", "alive": "", "fallbacks": {"matmul": 2}}',
    ]
    code = f"print({chr(10).join(lines)!r})"
    monkeypatch.setattr(runner, "command", lambda job: [sys.executable, "-c", code])
    told: dict[str, Outcome] = {}
    run_groups("sim:0", groups_of([CASE]), Options(), 1, lambda outcome: told.update({outcome.case: outcome}))
    assert told[CASE.id].state == "passed"
    process = told["process/runtime.launch"]
    assert (process.state, process.kind) == ("error", "fallback")
    assert "matmul (2 times)" in process.reason


def test_declared_host_functions_are_all_there_are() -> None:
    """Every name that the array functions count is declared, so that nothing new runs on the host unseen."""
    import re
    from pathlib import Path

    import oarlock.program

    folder = Path(str(oarlock.program.__file__)).parent
    used = {name for path in folder.glob("*.py") for name in re.findall(r'host_function\(\s*"(\w+)"', path.read_text())}
    assert used and used <= fallbacks.HOST_FUNCTIONS
