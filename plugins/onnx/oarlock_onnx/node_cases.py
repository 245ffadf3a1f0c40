"""The node cases of ``onnx.backend.test`` on a device: run in one process, every output compared, results counted.

``python -m oarlock_onnx.node_cases --device cpu`` prints the counts; ``--expected FILE`` compares with a stored list.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.test_case import TestCase

from oarlock.errors import OarlockError
from oarlock_onnx.engine import Engine, engine_for
from oarlock_onnx.model import Model
from oarlock_onnx.run import Session

__all__ = ["Outcome", "cases", "compared", "main", "run_case", "run_cases"]

Array = npt.NDArray[Any]
Status = Literal["passed", "unsupported", "wrong", "crashed"]

_ULPS = 2.0
"""A case's own tolerance is never below this many units in the last place of the largest expected value.

Expected values come from NumPy, which rounds after every step (in 16-bit types too) and whose transforms leave noise.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a case went: ``unsupported``: a deliberate error; ``wrong``: an output differs; ``crashed``: all else."""

    name: str
    status: Status
    message: str = ""


def cases() -> list[TestCase]:
    """All node cases, which ONNX makes when asked; in order of their names."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sorted(load_model_tests(kind="node"), key=lambda case: str(case.name))


def run_cases(
    chosen: Sequence[TestCase], engine: Engine, tell: Callable[[int], None] | None = None
) -> Iterator[Outcome]:
    """The outcomes of ``chosen``, one after another."""
    for number, case in enumerate(chosen):
        if tell is not None:
            tell(number)
        yield run_case(case, engine)


def run_case(case: TestCase, engine: Engine) -> Outcome:
    """Import the model, run every data set, compare every output in dtype, shape and values."""
    name = str(case.name)
    try:
        if case.model is None or case.data_sets is None:
            return Outcome(name, "crashed", "the case has no model or no data")
        session = Session(Model(case.model, None, name), engine)
        for inputs, expected in case.data_sets:
            problem = _run_set(session, inputs, expected, case.rtol, case.atol)
            if problem:
                return Outcome(name, "wrong", problem)
    except OarlockError as error:
        return Outcome(name, "unsupported", f"{type(error).__name__}: {error}")
    except Exception as error:  # a crash is a result here, and fails the suite
        return Outcome(name, "crashed", f"{type(error).__name__}: {error}")
    return Outcome(name, "passed")


def _run_set(session: Session, inputs: Sequence[Any], expected: Sequence[Any], rtol: float, atol: float) -> str:
    given = dict(zip([spec.name for spec in session.model.inputs], map(_array, inputs), strict=True))
    outputs = list(session.run(given).values())
    if len(outputs) != len(expected):
        return f"{len(outputs)} outputs, expected {len(expected)}"
    for got, want in zip(outputs, map(_array, expected), strict=True):
        problem = compared(got, want, rtol, atol)
        if problem:
            return problem
    return ""


def _array(value: Any) -> Array:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def compared(got: Array, want: Array, rtol: float, atol: float) -> str:
    """What is wrong with ``got``; empty when it equals ``want`` within the tolerance."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype} {list(got.shape)}, expected {want.dtype} {list(want.shape)}"
    if not _is_float(want):
        return "" if np.array_equal(got, want) else f"got {got.reshape(-1)[:4]}, expected {want.reshape(-1)[:4]}"
    left, right = got.astype(np.float64), want.astype(np.float64)
    finite = np.abs(right[np.isfinite(right)])
    floor = _ULPS * _spacing(want) * (float(finite.max()) if finite.size else 0.0)
    close = np.isclose(left, right, rtol=rtol, atol=max(atol, floor), equal_nan=True)
    if close.all():
        return ""
    worst = int(np.argmin(close.reshape(-1)))
    return f"{int((~close).sum())} of {close.size} differ; got {left.flat[worst]}, expected {right.flat[worst]}"


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def _spacing(array: Array) -> float:
    """One unit in the last place of 1."""
    return 2.0**-7 if array.dtype.name == "bfloat16" else float(np.finfo(array.dtype).eps)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases and print counts; status 1 where one is wrong, crashed, or passed before and does not now."""
    parser = argparse.ArgumentParser(prog="python -m oarlock_onnx.node_cases", description=__doc__)
    parser.add_argument("--device", default="cpu", help='a device, or "interpret" (default cpu)')
    parser.add_argument("--match", default="", help="only cases whose name contains this")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th case")
    parser.add_argument("--expected", type=Path, help="a stored list of names that must pass")
    parser.add_argument("--update", action="store_true", help="write that list")
    parser.add_argument("--verbose", action="store_true", help="print every case that does not pass")
    options = parser.parse_args(arguments)
    chosen = [case for case in cases() if options.match in case.name][:: options.every]
    with np.errstate(all="ignore"):
        outcomes = list(run_cases(chosen, engine_for(options.device), lambda n: _tell(n, len(chosen))))
    counts = Counter(outcome.status for outcome in outcomes)
    print(", ".join(f"{status} {counts[status]}" for status in ("passed", "unsupported", "wrong", "crashed")))
    bad = [outcome for outcome in outcomes if outcome.status in ("wrong", "crashed")]
    for outcome in outcomes if options.verbose else bad:
        if outcome.status != "passed":
            print(f"  {outcome.status} {outcome.name}: {outcome.message}")
    return _against_list(options, outcomes) or int(bool(bad))


def _against_list(options: argparse.Namespace, outcomes: Sequence[Outcome]) -> int:
    if options.expected is None:
        return 0
    passed = sorted(outcome.name for outcome in outcomes if outcome.status == "passed")
    if options.update:
        options.expected.write_text(json.dumps(passed, indent=1) + "\n", "utf-8")
        return 0
    known = set(json.loads(options.expected.read_text("utf-8")))
    lost = [outcome for outcome in outcomes if outcome.name in known and outcome.status != "passed"]
    for outcome in lost:
        print(f"  passed before: {outcome.name}: {outcome.status}: {outcome.message}")
    fresh = sorted(set(passed) - known)
    if fresh:
        print(f"  {len(fresh)} pass that are not in the list: {', '.join(fresh[:5])} ...")
    return int(bool(lost))


def _tell(number: int, total: int) -> None:
    if number % 200 == 0:
        print(f"  case {number} of {total}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
