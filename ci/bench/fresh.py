"""Fresh processes: the import of a library, and the first call of a work with cold or warm caches on disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ci.bench.coordinator import ROOT, Measured, environment
from ci.bench.peers import PEERS, CannotError
from ci.bench.works import Work

__all__ = ["measure_fresh"]

_QUICK = {"torch-compile": {"OARLOCK_BENCH_TORCH_MODE": "default"}, "tinygrad": {"BEAM": "0"}}
"""First calls are made as users make them first: without a search for the best kernels."""
_IMPORT = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
_BUILT_BEFORE = ("onnxruntime", "onnxruntime-plain")
"""Peers that compile when the work is made ready, not at the first call: for them both count."""


def measure_fresh(
    work: Work, peers: Sequence[str], case: Path, rounds: int, timeout_s: float, say: Callable[[str], None]
) -> dict[str, Measured]:
    """Each peer's seconds as ms, a process for every round; a row with a warm cache begins with a run not counted."""
    columns = {peer: Measured() for peer in peers}
    with tempfile.TemporaryDirectory(prefix="oarlock-bench-cache-") as cache:
        for number in range(-1 if work.kind in ("warm", "import") else 0, rounds):
            for peer, measured in columns.items():
                if measured.error or measured.cannot:
                    continue
                say(f"{peer}, process {number + 1}/{rounds}")
                if work.kind == "cold":
                    shutil.rmtree(Path(cache) / peer, ignore_errors=True)
                answer = _process(work, peer, case, Path(cache), timeout_s)
                measured.error, measured.cannot = answer.get("error", ""), answer.get("cannot", "")
                measured.note = answer.get("note", "")
                if number >= 0 and "seconds" in answer:
                    measured.ms.append(answer["seconds"] * 1e3)
    return columns


def _process(work: Work, peer: str, case: Path, cache: Path, timeout_s: float) -> dict[str, Any]:
    if work.kind == "import":
        command = [sys.executable, "-c", _IMPORT.format(PEERS[peer].library)]
    else:
        command = [sys.executable, "-m", "ci.bench.fresh", peer, work.name, str(case)]
    variables = environment(peer, cache) | _QUICK.get(peer, {})
    try:
        done = subprocess.run(
            command, env=variables, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"took longer than {timeout_s:g} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1][:300]}
    told = json.loads(done.stdout.splitlines()[-1])
    return told if isinstance(told, dict) else {"seconds": told}


def _main(peer: str, name: str, case: str) -> dict[str, Any]:
    """In the fresh process: the first call of the work, its result compared with the reference."""
    from ci.bench.peers import make
    from ci.bench.table import find
    from ci.bench.worker import read_arrays, wrong

    work, folder = find(name), Path(case)
    arrays, expected = read_arrays(folder, "in"), list(read_arrays(folder, "out").values())
    begin = time.perf_counter()
    library = make(peer)
    imported = time.perf_counter()
    call = library.prepare_model(folder / "model.onnx", arrays) if work.model else library.prepare(work, arrays)
    ready = time.perf_counter()
    call.run()
    end = time.perf_counter()
    fault = wrong(call.result(), expected, work.tolerance)
    if fault:
        return {"error": fault}
    start = imported if peer in _BUILT_BEFORE else ready
    note = f"import {imported - begin:.2f} s, arrays and device {ready - imported:.2f} s, call {end - ready:.3f} s"
    return {"seconds": end - start, "note": note}


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answer
    try:
        told = _main(*sys.argv[1:])
    except CannotError as error:
        told = {"cannot": str(error)}
    print(json.dumps(told), file=answers, flush=True)
