"""Drives the peers' processes: one runs, the others sleep on their pipes; round by round, in changing order."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ci.bench.peers import PEERS, THREADS

__all__ = ["Measured", "Process", "environment", "rounds", "start"]

ROOT = Path(__file__).resolve().parents[2]
_SETTLE_S = 0.02
"""Pause before each turn, in which the threads of the last peer stop spinning."""


def environment(peer: str, cache: Path) -> dict[str, str]:
    """The environment of a peer's process: memory is kept and on huge pages, no more than two threads, and bytecode is
    kept too, as it is of installed packages."""
    entry = PEERS[peer]
    left_out = ("OPENBLAS_CORETYPE", "OMP_", "PYTHONDONTWRITEBYTECODE")
    made = {key: value for key, value in os.environ.items() if not key.startswith(left_out)}
    made |= {
        "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
        "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
        "MALLOC_TOP_PAD_": str(256 << 20),
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        "OMP_NUM_THREADS": str(THREADS),
        "OPENBLAS_NUM_THREADS": str(THREADS),
        "OPENBLAS_THREAD_TIMEOUT": "22",
        "OARLOCK_THREADS": str(THREADS),
        "POCL_CPU_MAX_CU_COUNT": str(THREADS),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        **entry.environment,
    }
    if entry.cache:
        made[entry.cache] = str(cache / peer)
    return made


class Process:
    """A peer's process. A call that takes longer than its time ends the process, and is an error."""

    def __init__(self, peer: str, cache: Path, log: Path) -> None:
        self.peer = peer
        self._cache, self._log = cache, log
        self._process: subprocess.Popen[str] | None = None

    def ask(self, timeout_s: float, **command: Any) -> dict[str, Any]:
        """Send a command, and wait for its answer."""
        if self._process is None:
            with self._log.open("a") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "ci.bench.worker", self.peer], env=environment(self.peer, self._cache),
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1, cwd=ROOT,
                )  # fmt: skip
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        timer = threading.Timer(timeout_s, process.kill)
        timer.start()
        try:
            process.stdin.write(json.dumps(command) + "\n")
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            late = not timer.is_alive()
            timer.cancel()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self.close()
        return {"error": f"took longer than {timeout_s:g} s" if late else "the process died; see its log"}

    def cpu_s(self) -> float:
        """Processor time of the process so far; 0 where the system does not tell."""
        if self._process is None:
            return 0.0
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        try:
            process.stdin.close()
            process.wait(5)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()


@dataclass(slots=True)
class Measured:
    """One peer's times of one work: the median of each round in ms, or why there are none."""

    ms: list[float] = field(default_factory=list)
    faults: float = 0.0
    first_s: float = 0.0
    note: str = ""
    error: str = ""
    cannot: str = ""

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if getattr(self, name)}


def start(peers: Sequence[str], cache: Path, logs: Path) -> dict[str, Process]:
    """The peers' processes, not yet running."""
    logs.mkdir(parents=True, exist_ok=True)
    return {peer: Process(peer, cache, logs / f"{peer}.log") for peer in peers}


def prepare(process: Process, work: str, folder: Path, timeout_s: float) -> Measured:
    """Have a peer make a work ready."""
    answer = process.ask(timeout_s, do="prepare", work=work, folder=str(folder))
    return Measured(**{key: answer[key] for key in ("first_s", "note", "error", "cannot") if key in answer})


def rounds(
    ready: dict[str, tuple[Process, Measured]],
    count: int,
    seconds: float,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, float]:
    """Fill in the times of peers that are ready, one turn each in every round, the order changing.

    Returns how busy the processors were during turns with what is not the peer whose turn it was: ``others``, the
    share taken by the other peers, and ``outside``, by anything else.
    """
    names = list(ready)
    lost: dict[str, list[float]] = {"others": [], "outside": []}
    for number in range(count if names else 0):
        say(f"round {number + 1}/{count}")
        order = names[number % len(names) :] + names[: number % len(names)]
        for name in order if number % 2 == 0 else reversed(order):
            process, measured = ready[name]
            if measured.error:
                continue
            time.sleep(_SETTLE_S)
            before = _usage(ready)
            answer = process.ask(600, do="run", seconds=seconds)
            after = _usage(ready)
            if "error" in answer:
                measured.error = answer["error"]
                measured.ms.clear()
                continue
            measured.ms.append(statistics.median(answer["ms"]))
            measured.faults = max(measured.faults, answer["faults"])
            _note_loss(lost, name, before, after)
    return {key: statistics.fmean(values) if values else 0.0 for key, values in lost.items()}


def _usage(ready: dict[str, tuple[Process, Measured]]) -> dict[str, float]:
    """Seconds: the clock, all processors' busy time, and each peer's."""
    try:
        fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    except OSError:
        fields = []
    busy = (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK") if fields else 0.0
    used = {name: process.cpu_s() for name, (process, _) in ready.items()}
    return {"": busy, "clock": time.perf_counter(), **used}


def _note_loss(lost: dict[str, list[float]], name: str, before: dict[str, float], after: dict[str, float]) -> None:
    spent = {key: after[key] - before[key] for key in before}
    span = max(spent["clock"], 1e-6) * (os.cpu_count() or 1)
    own = spent[name]
    others = sum(value for key, value in spent.items() if key not in ("", "clock", name))
    lost["others"].append(others / span)
    lost["outside"].append(max(0.0, spent[""] - own - others) / span)
