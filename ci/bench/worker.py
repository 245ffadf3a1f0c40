"""The process of one peer: makes works ready, checks them, times calls. Commands and answers are lines of JSON."""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
from ci.bench.peers import Array, Call, CannotError, make
from ci.bench.table import find
from ci.bench.works import Work

__all__ = ["main", "read_arrays", "wrong"]

LEAST, MOST = 3, 200


def read_arrays(folder: Path, kind: str) -> dict[str, Array]:
    """The arrays that were written as ``KIND-NUMBER-NAME.npy``, in order."""
    found = sorted(folder.glob(f"{kind}-*.npy"), key=lambda path: int(path.name.split("-")[1]))
    return {unquote(path.stem.split("-", 2)[2]): np.load(path) for path in found}


def wrong(results: Sequence[Array], expected: Sequence[Array], tolerance: float) -> str:
    """What is wrong with ``results``, or nothing: differences are relative to each value and to the rms of all."""
    if len(results) != len(expected):
        return f"{len(results)} results, {len(expected)} expected"
    for result, reference in zip(results, expected, strict=True):
        if result.shape != reference.shape:
            return f"shape {result.shape}, {reference.shape} expected"
        scale = float(np.sqrt(np.mean(np.square(reference))))
        ratio = np.abs(result - reference) / (scale + np.abs(reference))
        worst = float(np.max(ratio, initial=0.0))
        if not worst <= tolerance:
            return f"wrong: off by {worst:.2g} relative, {tolerance:g} allowed"
    return ""


class Worker:
    """Holds the peer, and the work that is ready."""

    def __init__(self, peer: str) -> None:
        self.peer = make(peer)
        self.call: Call | None = None
        self.work: Work | None = None

    def about(self) -> dict[str, Any]:
        """The versions, and what the thread pools of native libraries say of themselves."""
        try:
            from threadpoolctl import threadpool_info
        except ImportError:
            return {"version": self.peer.version(), "pools": []}
        keys = ("internal_api", "num_threads", "version", "architecture")
        pools = [{key: pool[key] for key in keys if key in pool} for pool in threadpool_info()]
        return {"version": self.peer.version(), "pools": pools}

    def prepare(self, work: str, folder: str) -> dict[str, Any]:
        """Make the work ready, call it once, and compare with the reference."""
        self.drop()
        entry = find(work)
        arrays = read_arrays(Path(folder), "in")
        start = time.perf_counter()
        call = self._ready(entry, Path(folder), arrays)
        call.run()
        first_s = time.perf_counter() - start
        results = call.result()
        if results:
            fault = wrong(results, list(read_arrays(Path(folder), "out").values()), entry.tolerance)
            if fault:
                return {"error": fault}
        self.call, self.work = call, entry
        for _ in range(3):  # compilers that decide on the second call
            call.run()
        return {"first_s": first_s, "note": call.note}

    def _ready(self, work: Work, folder: Path, arrays: Mapping[str, Array]) -> Call:
        if work.model:
            return self.peer.prepare_model(folder / "model.onnx", arrays)
        return self.peer.prepare(work, arrays)

    def run(self, seconds: float) -> dict[str, Any]:
        """Times of a call in ms, for about ``seconds``, after one that is not counted; page faults of a call."""
        assert self.call is not None and self.work is not None
        self.call.run()
        before = resource.getrusage(resource.RUSAGE_SELF)
        times = self._timed(seconds)
        after = resource.getrusage(resource.RUSAGE_SELF)
        faults = (after.ru_minflt - before.ru_minflt) / (len(times) * self.work.calls)
        return {"ms": times, "faults": faults}

    def _timed(self, seconds: float) -> list[float]:
        assert self.call is not None and self.work is not None
        own = getattr(self.call, "times", None)
        if own is not None:
            first = own(LEAST)
            more = int(seconds * 1e3 / max(first[0], 1e-3)) - LEAST
            return first + (own(min(more, MOST)) if more > 0 else [])
        run, calls, clock = self.call.run, self.work.calls, time.perf_counter
        times: list[float] = []
        end = clock() + seconds
        gc.disable()
        while len(times) < LEAST or (clock() < end and len(times) < MOST):
            start = clock()
            for _ in range(calls):
                run()
            times.append((clock() - start) * 1e3 / calls)
        gc.enable()
        return times

    def measure(self, work: str, folder: str) -> dict[str, Any]:
        """The memory of the plan that Oarlock made for a work."""
        from ci.bench.plan_memory import plan_memory

        found = self.prepare(work, folder)
        return found if "error" in found else plan_memory()

    def drop(self) -> None:
        """Forget the work, so that its memory can be used again."""
        self.call = self.work = None
        gc.collect()


def main(peer: str) -> None:
    """Serve commands from standard input until it ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not mix with answers
    worker: Worker | None = None
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if worker is None:
                worker = Worker(peer)
            answer = getattr(worker, command.pop("do"))(**command) or {}
        except CannotError as error:
            answer = {"cannot": str(error)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
        answers.write(json.dumps(answer) + "\n")
        del command


if __name__ == "__main__":
    main(sys.argv[1])
