"""``oarlock run``: a model file on a device, with inputs from a file or random, timed, compared, traced."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from oarlock.cli.arrays import (
    Difference,
    InputSpec,
    Tolerance,
    compare,
    parse_shape,
    random_input,
    read_npz,
    split_reference,
    write_npz,
)
from oarlock.cli.spans import Spans
from oarlock.config import config
from oarlock.errors import ModelError, PluginError
from oarlock.ir import Operation
from oarlock.plugin import Importer
from oarlock.registry import load, names
from oarlock.runtime.profile import LaunchSpan, profiled

__all__ = ["Model", "add_arguments", "random_inputs", "read_model", "run"]

Array = npt.NDArray[Any]
_IMPORTERS = "oarlock.importers"


class Run(Protocol):
    """A model's program with its inputs on the device."""

    @property
    def function(self) -> Operation:
        """The program."""
        ...

    @property
    def parameters(self) -> int:
        """How many of its first arguments are the same in every run."""
        ...

    def execute(self) -> None: ...
    def outputs(self) -> dict[str, Array]: ...


class Session(Protocol):
    """A model on a device."""

    def prepare(self, inputs: Mapping[str, Array]) -> Run: ...


class Model(Protocol):
    """What an importer reads."""

    @property
    def inputs(self) -> Sequence[InputSpec]: ...

    def check_inputs(self, inputs: Mapping[str, Array]) -> None: ...

    def session(
        self,
        device: str,
        progress: Callable[[int, int], None] | None = None,
        span: Callable[[str], AbstractContextManager[object]] | None = None,
    ) -> Session: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("model", metavar="MODEL", type=Path, help="the model file, such as model.onnx")
    parser.add_argument("--device", default=config.device, metavar="NAME", help=f"default: {config.device}")
    parser.add_argument("--input", type=Path, metavar="IN.npz", help="inputs by name; without it they are random")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=1,3,8", help="shape of a random input")
    parser.add_argument("--seed", type=int, default=0, help="seed of random inputs (default 0)")
    parser.add_argument("--output", type=Path, metavar="OUT.npz", help="write the outputs by name")
    parser.add_argument(
        "--compare",
        type=Path,
        metavar="REF.npz",
        help="expected outputs by name; a reference file with in::NAME and out::NAME gives the inputs too",
    )
    parser.add_argument(
        "--tolerance",
        default="1e-4,1e-4",
        metavar="ABS[,REL]",
        help="allowed difference: ABS + REL * |expected| (default 1e-4,1e-4)",
    )
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="timed runs, after the first (default 1)")
    parser.add_argument("--profile", type=Path, metavar="TRACE.json", help="write a trace for Perfetto or Chrome")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a run gave."""

    outputs: dict[str, Array]
    first_s: float
    times_s: tuple[float, ...]
    differences: tuple[Difference, ...]

    @property
    def run_s(self) -> float:
        return statistics.median(self.times_s)


def run(arguments: argparse.Namespace) -> int:
    """Run the model; exit status 1 where an output is outside the tolerance."""
    if arguments.repeat < 1:
        raise ModelError(f"--repeat {arguments.repeat}: at least 1")
    tolerance = _tolerance(arguments.tolerance)
    spans = Spans(progress=not arguments.quiet)
    try:
        with spans("parse"):
            model = read_model(arguments.model)
        inputs, expected = _inputs(arguments, model)
        session = model.session(arguments.device, spans.compiling, spans)
        outcome, launches = _execute(session, inputs, expected, arguments, tolerance)
    finally:
        spans.clear()
    if arguments.output is not None:
        write_npz(arguments.output, outcome.outputs)
    if arguments.profile is not None:
        _write_trace(spans, launches, arguments)
    if arguments.json:
        print(json.dumps(_as_json(arguments, outcome, spans), indent=2))
    else:
        spans.say(_summary(spans))
        print("\n".join(_lines(outcome, tolerance)))
    return 0 if all(difference.within for difference in outcome.differences) else 1


def read_model(path: Path) -> Model:
    """The model in ``path``, by the importer for its suffix."""
    known: list[str] = []
    failures: list[str] = []
    for name in names(_IMPORTERS):
        try:
            importer: Importer = load(_IMPORTERS, name)
        except PluginError as error:
            failures.append(str(error))
            continue
        if path.suffix.lower() in importer.suffixes:
            model: Model = importer.read(path)
            return model
        known += importer.suffixes
    reasons = "; ".join([f"there are importers for {', '.join(known) or 'nothing'}", *failures])
    raise ModelError(f"{path}: no importer reads {path.suffix or 'files without a suffix'} ({reasons})")


def _inputs(arguments: argparse.Namespace, model: Model) -> tuple[dict[str, Array], dict[str, Array]]:
    """The inputs, checked, and the expected outputs (none: nothing to compare)."""
    given: dict[str, Array] = {}
    expected: dict[str, Array] = {}
    if arguments.compare is not None:
        given, expected = split_reference(read_npz(arguments.compare))
        if not expected:
            raise ModelError(f"{arguments.compare}: it holds no expected outputs")
    if arguments.input is not None:
        given = read_npz(arguments.input)
    elif not given:
        given = random_inputs(model, arguments.shape, arguments.seed)
    model.check_inputs(given)
    return given, expected


def random_inputs(model: Model, given: Sequence[str], seed: int = 0) -> dict[str, Array]:
    """Random inputs of the declared shapes, or of those ``given`` as ``NAME=1,3,8``; raises ModelError."""
    shapes = dict(map(parse_shape, given))
    known = [spec.name for spec in model.inputs]
    unknown = [name for name in shapes if name not in known]
    if unknown:
        raise ModelError(f"--shape: no input {unknown[0]!r}; the model takes {', '.join(known) or 'no inputs'}")
    generator = np.random.default_rng(seed)
    return {spec.name: random_input(spec, shapes.get(spec.name), generator) for spec in model.inputs}


def _execute(
    session: Session,
    inputs: Mapping[str, Array],
    expected: Mapping[str, Array],
    arguments: argparse.Namespace,
    tolerance: Tolerance,
) -> tuple[_Outcome, Sequence[LaunchSpan]]:
    """What the runs gave; with ``--profile`` one more, whose launches are noted, for that takes time."""
    prepared = session.prepare(inputs)
    first = _timed(prepared)
    times = tuple(_timed(prepared) for _ in range(arguments.repeat))
    launches: Sequence[LaunchSpan] = ()
    if arguments.profile is not None:
        with profiled() as profile:
            prepared.execute()
        launches = profile.spans()
    outputs = prepared.outputs()
    return _Outcome(outputs, first, times, tuple(compare(outputs, expected, tolerance))), launches


def _timed(prepared: Run) -> float:
    start = time.perf_counter()
    prepared.execute()
    return time.perf_counter() - start


def _tolerance(text: str) -> Tolerance:
    parts = text.split(",")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or not all(number >= 0 for number in numbers):
        raise ModelError(f"--tolerance {text!r}: write ABS or ABS,REL, such as 1e-4,1e-4")
    return Tolerance(numbers[0], numbers[1] if len(numbers) == 2 else 0.0)


def _write_trace(spans: Spans, launches: Sequence[LaunchSpan], arguments: argparse.Namespace) -> None:
    try:
        spans.write(arguments.profile, {"model": str(arguments.model), "device": arguments.device}, launches)
    except OSError as error:
        raise ModelError(f"{arguments.profile}: cannot write it: {error.strerror}") from error


def _summary(spans: Spans) -> str:
    """Where the time went before the first run."""
    phases = [f"{name} {spans.total(name):.2f} s" for name in ("parse", "build", "compile", "load")]
    if spans.kernels:
        phases[2] += f" ({spans.kernels} kernels)"
    return f"  {', '.join(phases)}"


def _lines(outcome: _Outcome, tolerance: Tolerance) -> list[str]:
    """One line an output: name, dtype, shape; the time of a run; then the comparisons."""
    cells = [(name, f"{array.dtype} [{', '.join(map(str, array.shape))}]") for name, array in outcome.outputs.items()]
    widths = [max((len(cell[column]) for cell in cells), default=0) for column in (0, 1)]
    lines = [f"  {name:<{widths[0]}}  {what:<{widths[1]}}" for name, what in cells]
    if lines:
        lines[0] += f"   {outcome.run_s * 1e3:.1f} ms a run"
    for difference in outcome.differences:
        verdict = "within" if difference.within else "OUTSIDE"
        limit = f"{tolerance.absolute:g} + {tolerance.relative:g} x |expected|"
        lines.append(f"  {difference.output}: largest difference {difference.largest:.3g}, {verdict} {limit}")
        if difference.problem:
            lines.append(f"    {difference.problem}")
    return lines


def _as_json(arguments: argparse.Namespace, outcome: _Outcome, spans: Spans) -> dict[str, Any]:
    return {
        "model": str(arguments.model),
        "device": arguments.device,
        "outputs": [
            {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
            for name, array in outcome.outputs.items()
        ],
        "seconds": {
            **{name: spans.total(name) for name in ("parse", "build", "compile", "load")},
            "first_run": outcome.first_s,
            "run": outcome.run_s,
            "runs": list(outcome.times_s),
        },
        "compared": [
            {"name": d.output, "largest_difference": d.largest, "within": d.within, "problem": d.problem}
            for d in outcome.differences
        ],
    }
