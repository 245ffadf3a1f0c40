"""Measures one row: writes inputs and the float64 reference, makes the peers ready, runs the rounds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zlib import crc32

import numpy as np
from ci.bench.coordinator import Measured, Process, prepare, rounds
from ci.bench.fresh import measure_fresh
from ci.bench.works import Work

__all__ = ["Settings", "columns_of", "measure", "write_case"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How long a row takes: rounds, seconds of a turn, and the most seconds to make a peer ready."""

    rounds: int
    seconds: float
    timeout_s: float

    @property
    def fresh(self) -> int:
        """Processes of rows that take a fresh one for each number."""
        return min(self.rounds, 5)


def write_case(work: Work, folder: Path) -> None:
    """Write inputs, the reference's results, and the model if it is one, to ``folder``."""
    arrays = work.inputs(np.random.default_rng(crc32(work.name.encode())))
    for number, (name, array) in enumerate(arrays.items()):
        np.save(folder / f"in-{number}-{quote(name, safe='')}.npy", array)
    if work.model:
        from ci.bench.models import model_file, model_reference

        path = model_file(work.model, folder / "model.onnx")
        results = model_reference(path, arrays)
    else:
        from ci.bench.peers.numpy_peer import NumpyWords

        wide = [array.astype(np.float64) if array.dtype.kind == "f" else array for array in arrays.values()]
        made = work.function(NumpyWords(), *wide)
        results = made if isinstance(made, list | tuple) else [made]
    for number, result in enumerate(results):
        np.save(folder / f"out-{number}-out{number}.npy", result)


def columns_of(work: Work, peers: Iterable[str]) -> list[str]:
    """Those of ``peers`` that take part in the row."""
    return [peer for peer in peers if not work.peers or peer in work.peers]


def measure(
    work: Work, processes: dict[str, Process], settings: Settings, say: Callable[[str], None]
) -> dict[str, Any]:
    """The row as JSON: per column the medians of the rounds or an error, and how disturbed the rounds were."""
    names = columns_of(work, processes)
    lost: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="oarlock-bench-") as name:
        folder = Path(name)
        say("reference")
        if work.kind != "import":
            write_case(work, folder)
        if work.kind == "rounds":
            columns, lost = _in_rounds(work, {name: processes[name] for name in names}, folder, settings, say)
        elif work.kind == "plan":
            columns = {name: _plan(work, processes[name], folder, settings) for name in names}
        else:
            columns = measure_fresh(work, names, folder, settings.fresh, settings.timeout_s, say)
    return {
        "row": work.name,
        "rounds": settings.rounds,
        "lost": {key: round(value, 4) for key, value in lost.items()},
        "columns": {peer: column.as_json() for peer, column in columns.items()},
    }


def _in_rounds(
    work: Work, processes: dict[str, Process], folder: Path, settings: Settings, say: Callable[[str], None]
) -> tuple[dict[str, Measured], dict[str, float]]:
    columns: dict[str, Measured] = {}
    for peer, process in processes.items():
        say(f"prepare {peer}")
        columns[peer] = prepare(process, work.name, folder, settings.timeout_s)
    ready = {n: (processes[n], made) for n, made in columns.items() if not made.error and not made.cannot}
    lost = rounds(ready, settings.rounds, settings.seconds, say)
    for process, _ in ready.values():
        process.ask(60, do="drop")
    return columns, lost


def _plan(work: Work, process: Process, folder: Path, settings: Settings) -> Measured:
    """A process of its own, so that the plan is the only one."""
    process.close()
    answer = process.ask(settings.timeout_s, do="measure", work=work.name, folder=str(folder))
    return Measured(**{key: answer[key] for key in ("ms", "note", "error", "cannot") if key in answer})
