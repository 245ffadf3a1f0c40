"""The models level: pretrained models on the device: outputs, determinism, memory, speed against its limits."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.codegen.values import shape_of
from oarlock.errors import ModelError, PluginError, UnsupportedError
from oarlock.ir import Operation
from oarlock.ops import tensor
from oarlock.registry import load
from oarlock.runtime import Device, from_numpy, open_device
from oarlock.runtime.execute import plan_for
from oarlock.runtime.plan import Plan
from oarlock_conformance.beating import beating
from oarlock_conformance.case import Case, Failure, Options, Outcome, State, Unavailable
from oarlock_conformance.cases import Report
from oarlock_conformance.cases.performance.limits import matrix_rate, memory_bandwidth
from oarlock_conformance.cases.performance.measure import Lab, Running, samples_of
from oarlock_conformance.figures import figure_of, figures_in, pace
from oarlock_conformance.models.fetch import ModelUnavailable, fetch
from oarlock_conformance.models.manifest import MODELS, reference

__all__ = ["TOLERANCE", "flops_of", "plan", "run"]

Array = npt.NDArray[Any]
Details = dict[str, Any]

TOLERANCE = (2e-4, 1e-4)
"""Allowed difference: absolute + relative x |expected|. Two right runtimes differ by up to 1.6e-4 on these models."""
_RUNS = 9
"""Timed runs, each waited for; in the quick setting fewer of a model that needs more than _ENOUGH_S for them."""
_FEWEST = 3
_ENOUGH_S = 4.0
_LONG_S = 0.05
"""A run that takes longer gains nothing from being given before the one before it has ended."""
_SIDE = 256
"""Side of the matrices whose product tells the device's rate beside each model."""


def plan(device: Device, options: Options) -> list[Case]:
    """One case per model of the manifest; each has a process of its own."""
    text = (
        "the outputs are within the tolerance of the reference, every run gives the same bits, and neither time nor "
        "memory is worse than the baseline's beyond the noise"
    )
    return [Case(f"model.{name}", "models", name, text) for name in MODELS]


def run(device: str, cases: Sequence[str], options: Options, isolate: bool, report: Report) -> None:
    """Run models by case id."""
    for case in cases:
        report.start(case)
        with beating(report):
            outcome = _outcome(device, case, options)
        report.end(outcome)


def _outcome(device: str, case: str, options: Options) -> Outcome:
    start = time.perf_counter()
    name = case.removeprefix("model.")
    details: Details = {}
    state: State = "passed"
    kind, reason = "", ""
    try:
        _run_model(open_device(device), name, options, details)
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
    return Outcome(case, state, time.perf_counter() - start, kind, reason, details)


def _needs_wide(device: Device, text: str) -> bool:
    """Whether a refusal names a 64-bit dtype that the device does not store."""
    wide = (dtypes.int64, dtypes.uint64, dtypes.float64)
    return any(dtype.name in text and not device.target.stores(dtype) for dtype in wide)


def _run_model(device: Device, name: str, options: Options, details: Details) -> None:
    path = fetch(name)
    session = _read(path).session(device.name)
    wanted = reference(name)
    began = time.perf_counter()
    prepared = session.prepare(wanted.inputs)
    details["compile_s"] = time.perf_counter() - began
    prepared.execute()
    first = prepared.outputs()
    details["differences"] = differences = _differences(first, wanted.outputs)
    details["largest_difference"] = max((item["largest"] or 0.0 for item in differences.values()), default=0.0)
    outside = [f"`{output}`: {item['problem']}" for output, item in differences.items() if item["problem"]]
    if outside:
        raise Failure("; ".join(outside))
    before = pace()
    seconds = _latencies(prepared, first, options)
    figures = {
        "latency": figure_of([each * 1e3 for each in seconds], "ms", "lower"),
        "memory": figure_of([device.stats().bytes_peak / 2**20], "MiB", "lower"),
    }
    operands = [from_numpy(wanted.inputs[each], device) for each in prepared.program.inputs]
    running = Running(device, plan_for(prepared.function, device), tuple(operands))
    rates = _rates(running, seconds, options)
    figures["throughput"] = figure_of(rates, "runs/s", "higher")
    details["pace"] = (before + pace()) / 2
    details["figures"] = {key: figure.to_json() for key, figure in figures.items()}
    _same(first, dict(zip(prepared.program.outputs, (x.numpy() for x in running.plan.run(operands)), strict=True)))
    details |= _against_limits(Lab(device, options), running.plan, figures["latency"].median)


def _latencies(prepared: Any, first: Mapping[str, Array], options: Options) -> list[float]:
    """Seconds of runs that are waited for one by one; each must give the bits of the first."""
    found: list[float] = []
    began = time.perf_counter()
    while len(found) < _RUNS:
        start = time.perf_counter()
        prepared.execute()
        found.append(time.perf_counter() - start)
        if len(found) in (1, _RUNS) or not options.quick:
            _same(first, prepared.outputs())
        if options.quick and len(found) >= _FEWEST and time.perf_counter() - began > _ENOUGH_S:
            break
    return found


def _rates(running: Running, seconds: Sequence[float], options: Options) -> list[float]:
    """Runs a second, when several are given before the first has ended."""
    if min(seconds) > _LONG_S:
        return [1 / each for each in seconds]
    lab = Lab(running.device, options)
    samples = samples_of(running.submit, running.device.synchronize, _RUNS, lab.budget_s, least_s=4 * min(seconds))
    return [1 / each for each in samples]


def _same(first: Mapping[str, Array], later: Mapping[str, Array]) -> None:
    for output, array in first.items():
        if array.tobytes() != later[output].tobytes():
            gap = float(np.abs(array.astype(np.float64) - later[output].astype(np.float64)).max(initial=0.0))
            raise Failure(f"output `{output}` of a later run differs from the first by {gap:.3g}")


def _against_limits(lab: Lab, plan: Plan, latency_ms: float) -> Details:
    """How the model stands against what the device reaches, measured beside it: the time that its operations, or the
    bytes that its kernels exchange with memory, take at those rates."""
    rate = figures_in(matrix_rate(lab, dtypes.float32, _SIDE))["rate"]
    bandwidth = figures_in(memory_bandwidth(lab))["rate"]
    flops, nbytes = flops_of(plan.function), _bytes_of(plan)
    bound_ms = max(flops / rate.median, nbytes / bandwidth.median) / 1e6
    return {
        "flops": flops,
        "bytes": nbytes,
        "kernels": len(plan.steps),
        "limits": {"GFLOP/s": rate.median, "GB/s": bandwidth.median},
        "bound_ms": bound_ms,
        "share": bound_ms / latency_ms,
    }


def flops_of(function: Operation) -> int:
    """Operations of the products and convolutions of a program as it is lowered, two per multiplication with its sum.

    A loop's body counts once.
    """
    total = 0
    for op in function.walk():
        if op.name == "array.dot_general":
            contracted, _ = op.attributes["contract"]  # type: ignore[misc]
            shape = shape_of(op.operands[0])
            total += 2 * math.prod(shape_of(op.result)) * math.prod(shape[i] for i in contracted)  # type: ignore[has-type]
        elif op.name == "schedule.packed_product":
            steps = op.attributes["steps"]
            assert isinstance(steps, int)
            total += 2 * math.prod(shape_of(op.result)) * math.prod(shape_of(op.operands[1])[-1 - steps : -1])
        elif op.name == "schedule.window_product":
            total += 2 * math.prod(shape_of(op.result)) * math.prod(shape_of(op.operands[1])[1:-1])
        elif op.name in ("array.convolution", "schedule.convolution"):
            total += 2 * math.prod(shape_of(op.result)) * math.prod(shape_of(op.operands[1])[1:])
    return total


def _bytes_of(plan: Plan) -> int:
    """Bytes that the kernels of a plan exchange with memory, each operand and result once."""
    storage_of = plan.device.target.storage_of
    values = [value for step in plan.steps for value in dict.fromkeys(step.buffers)]
    return sum(math.prod(shape_of(value)) * storage_of(tensor(value).dtype).itemsize for value in values)


def _read(path: Path) -> Any:
    try:
        return load("oarlock.importers", "onnx").read(path)
    except PluginError as error:
        raise Unavailable(f"{error}; install oarlock[onnx]") from error
    except ModelError as error:
        raise Failure(str(error)) from error


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
