"""The models level: pretrained models on the device, against reference outputs, with the time of a run."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.errors import ModelError, PluginError, UnsupportedError
from oarlock.registry import load
from oarlock.runtime import Device, open_device
from oarlock_conformance.case import Case, Failure, Options, Outcome, Unavailable
from oarlock_conformance.cases import Report
from oarlock_conformance.models.fetch import ModelUnavailable, fetch
from oarlock_conformance.models.manifest import MODELS, reference

__all__ = ["TOLERANCE", "plan", "run"]

Array = npt.NDArray[Any]

TOLERANCE = (2e-4, 1e-4)
"""Allowed difference: absolute + relative x |expected|. Two right runtimes differ by up to 1.6e-4 on these models."""
_BEAT_S = 5.0
_RUNS = {True: 3, False: 9}
_ENOUGH_S = 3.0
"""Timed runs end after so many seconds."""


def plan(device: Device, options: Options) -> list[Case]:
    """One case per model of the manifest; each has a process of its own."""
    text = "the outputs are within the tolerance of the reference, and a second run gives the same bits"
    return [Case(f"model.{name}", "models", name, text) for name in MODELS]


def run(device: str, cases: Sequence[str], options: Options, isolate: bool, report: Report) -> None:
    """Run models by case id."""
    for case in cases:
        report.start(case)
        with _beating(report):
            outcome = _outcome(device, case, options, report)
        report.end(outcome)


@contextmanager
def _beating(report: Report) -> Iterator[None]:
    """Tell at intervals that this process is alive, while a model is fetched or compiled."""
    done = threading.Event()

    def beat() -> None:
        while not done.wait(_BEAT_S):
            report.beat()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _outcome(device: str, case: str, options: Options, report: Report) -> Outcome:
    start = time.perf_counter()
    name = case.removeprefix("model.")
    details: dict[str, Any] = {}
    state, kind, reason = "passed", "", ""
    try:
        _run_model(device, name, options, details)
    except (ModelUnavailable, Unavailable) as error:
        state, kind, reason = "unavailable", "unavailable", str(error)
    except Failure as failure:
        state, kind, reason = "failed", "value", str(failure)
    except UnsupportedError as error:
        state, kind, reason = "failed", "exception", f"{type(error).__name__}: {error}"
        if _needs_wide(open_device(device), str(error)):
            state, kind = "unsupported", ""
    except Exception as error:
        state, kind, reason = "failed", "exception", f"{type(error).__name__}: {error}"
    return Outcome(case, state, time.perf_counter() - start, kind, reason, details)  # type: ignore[arg-type]


def _needs_wide(device: Device, text: str) -> bool:
    """Whether a refusal names a 64-bit dtype that the device does not store."""
    wide = (dtypes.int64, dtypes.uint64, dtypes.float64)
    return any(dtype.name in text and not device.target.stores(dtype) for dtype in wide)


def _run_model(device: str, name: str, options: Options, details: dict[str, Any]) -> None:
    path = fetch(name)
    session = _read(path).session(device)
    wanted = reference(name)
    began = time.perf_counter()
    prepared = session.prepare(wanted.inputs)
    details["compile_s"] = time.perf_counter() - began
    prepared.execute()
    first = prepared.outputs()
    details["differences"] = differences = _differences(first, wanted.outputs)
    details["largest_difference"] = max((item["largest"] for item in differences.values()), default=0.0)
    details["ms"] = statistics.median(_times(prepared, _RUNS[options.quick]))
    again = prepared.outputs()
    outside = [f"`{output}`: {item['problem']}" for output, item in differences.items() if item["problem"]]
    if outside:
        raise Failure("; ".join(outside))
    for output, array in first.items():
        if array.tobytes() != again[output].tobytes():
            raise Failure(
                f"output `{output}` of a later run differs from the first by {_gap(array, again[output]):.3g}"
            )


def _read(path: Path) -> Any:
    try:
        return load("oarlock.importers", "onnx").read(path)
    except PluginError as error:
        raise Unavailable(f"{error}; install oarlock[onnx]") from error
    except ModelError as error:
        raise Failure(str(error)) from error


def _times(prepared: Any, runs: int) -> list[float]:
    """Milliseconds of some runs."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < runs and (not times or time.perf_counter() - began < _ENOUGH_S):
        start = time.perf_counter()
        prepared.execute()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def _differences(got: Mapping[str, Array], want: Mapping[str, Array]) -> dict[str, dict[str, Any]]:
    return {name: _difference(got.get(name), array) for name, array in want.items()}


def _difference(got: Array | None, want: Array) -> dict[str, Any]:
    """The largest difference of an output, and what is wrong with it (empty: nothing)."""
    if got is None:
        return {"largest": None, "problem": "there is no such output"}
    if got.shape != want.shape or got.dtype != want.dtype:
        return {"largest": None, "problem": f"is {got.dtype} {got.shape}, expected {want.dtype} {want.shape}"}
    left, right = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.where((left == right) | (np.isnan(left) & np.isnan(right)), 0.0, np.abs(left - right))
        error = np.where(np.isnan(error), np.inf, error)
        wrong = error > TOLERANCE[0] + TOLERANCE[1] * np.abs(right)
    largest = float(error.max(initial=0.0))
    if not wrong.any():
        return {"largest": largest, "problem": ""}
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(error)), error.shape))
    text = f"off by {largest:.3g} at {at} (got {got[at]}, expected {want[at]}); {int(wrong.sum())} of {want.size} wrong"
    return {"largest": largest, "problem": text}


def _gap(left: Array, right: Array) -> float:
    return float(np.abs(left.astype(np.float64) - right.astype(np.float64)).max(initial=0.0))
