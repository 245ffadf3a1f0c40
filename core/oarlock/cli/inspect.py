"""``oarlock inspect``: what each stage of the compiler makes of a model, or of a program given as text or JSON."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from oarlock.cli.run import random_inputs, read_model
from oarlock.cli.spans import Spans
from oarlock.cli.stages import (
    Choice,
    Pipeline,
    Stage,
    array_stage,
    fused_stage,
    kernel_stage,
    plan_stage,
    source_stage,
)
from oarlock.config import config
from oarlock.errors import IRError, ModelError, UnsupportedError
from oarlock.ir import Operation, ScalarType, TensorType
from oarlock.ir.json import from_json
from oarlock.ir.reproducer import reproducer_of
from oarlock.ir.text import parse
from oarlock.ir.verify import verify
from oarlock.registry.compiler import all_passes, context, plugin_passes
from oarlock.transforms import choose_passes

__all__ = ["add_arguments", "open_parameterised", "open_program", "run"]

_STAGES = ("array", "fused", "kernel", "source", "plan")
_SUFFIXES = (".txt", ".json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "model", metavar="MODEL", type=Path, help="a model file such as model.onnx, or a program in .txt or .json"
    )
    parser.add_argument(
        "--stage",
        choices=_STAGES,
        default="array",
        help="array: the program before and after passes; fused: what shares a kernel; kernel: each kernel; "
        "source: their text in the device's language; plan: steps and memory (default array)",
    )
    parser.add_argument("--device", default=config.device, metavar="NAME", help=f"default: {config.device}")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=1,3,8", help="shape of an input")
    parser.add_argument("--only", metavar="PATTERN", help="only what has this in its name; * and ? are wildcards")
    parser.add_argument("--passes", action="store_true", help="with --stage array: what each pass did")
    parser.add_argument(
        "--print-after",
        action="append",
        default=[],
        metavar="PASS",
        help="with --stage array: the program after this pass as well; all: after each",
    )
    parser.add_argument(
        "--pipeline",
        metavar="PASSES",
        help="the passes to run: fold,dce is these alone, --pipeline=-sink,+horizontal changes what is usual",
    )
    parser.add_argument(
        "--level", type=int, choices=range(4), default=2, help="run the passes up to this level (default 2)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def run(arguments: argparse.Namespace) -> int:
    """Print the stage."""
    for option, given in (("--passes", arguments.passes), ("--print-after", arguments.print_after)):
        if given and arguments.stage != "array":
            raise ModelError(f"{option} goes with --stage array, not with --stage {arguments.stage}")
    spans = Spans(progress=not arguments.quiet)
    try:
        with spans("open"):
            function = open_program(arguments.model, arguments.shape)
        with spans(arguments.stage):
            stage = _stage(arguments, function, spans)
    finally:
        spans.clear()
    print(json.dumps(stage.data, indent=2) if arguments.json else stage.text)
    return 0


def _stage(arguments: argparse.Namespace, function: Operation, spans: Spans) -> Stage:
    choice = Choice(arguments.only)
    pipeline = _pipeline(arguments)
    if arguments.stage == "array":
        return array_stage(function, choice, arguments.passes, pipeline)
    for op in function.regions[0].block.ops:
        if op.regions:
            raise UnsupportedError(f"{op.name}: control flow is not compiled yet; --stage array shows it")
    from oarlock.runtime import open_device

    device = open_device(arguments.device)
    if arguments.stage == "plan":
        if pipeline.passes is not None or arguments.level != 2:
            raise ModelError(
                "--pipeline and --level go with --stage array, fused, kernel or source: plans are as usual"
            )
        return plan_stage(function, device, choice, spans.compiling)
    return {"fused": fused_stage, "kernel": kernel_stage, "source": source_stage}[arguments.stage](
        function, device, choice, pipeline
    )


def _pipeline(arguments: argparse.Namespace) -> Pipeline:
    """The passes that were asked for; those of a reproducer where the program is one."""
    failed = _reproduced(arguments.model) if arguments.pipeline is None else None
    text = arguments.pipeline if failed is None else ",".join(failed)
    chosen = None if text is None else tuple(choose_passes(text, plugin_passes()))
    shown = frozenset(arguments.print_after)
    known = {item.name for item in (all_passes() if chosen is None else chosen)}
    for name in sorted(shown - known - {"all"}):
        raise ModelError(f"--print-after {name}: no such pass runs; there are {', '.join(sorted(known))}")
    return Pipeline(
        chosen,
        arguments.level if chosen is None else 3,
        True if "all" in shown else shown,
        None if failed is not None else config.cache_dir / "reproducers",
    )


def _reproduced(path: Path) -> tuple[str, ...] | None:
    """The passes of a file that is a reproducer."""
    if path.suffix.lower() != ".json":
        return None
    told = reproducer_of(json.loads(path.read_text(encoding="utf-8")))
    return told[0] if told is not None else None


def open_program(path: Path, shapes: list[str]) -> Operation:
    """The program in ``path``: a function of array operators with static shapes; ``shapes`` are ``NAME=1,3,8``.

    A model is imported for random inputs. Raises ModelError or UnsupportedError with one clear line.
    """
    return open_parameterised(path, shapes)[0]


def open_parameterised(path: Path, shapes: list[str]) -> tuple[Operation, int]:
    """``open_program``, and how many of the first arguments are parameters: the same in every run."""
    parameters = 0
    if path.suffix.lower() in _SUFFIXES:
        if shapes:
            raise ModelError(f"--shape: the shapes in {path.name} are fixed; edit the file, or give a model")
        function = _read_ir(path)
    else:
        model = read_model(path)
        run = model.session("interpret").prepare(random_inputs(model, shapes))
        function, parameters = run.function, run.parameters
    _check(function, path)
    return function, parameters


def _read_ir(path: Path) -> Operation:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelError(f"{path}: cannot read it: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: it is no text: {error}") from error
    known = context()
    try:
        function = parse(text, known) if path.suffix.lower() == ".txt" else from_json(json.loads(text), known)
        verify(function)
    except (IRError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(f"{path}: it is no program: {reason}") from error
    return function


def _check(function: Operation, path: Path) -> None:
    """Raise where the compiler would have nothing to begin with."""
    if function.name != "builtin.function":
        raise ModelError(f"{path}: it holds a {function.name}; only a builtin.function can be inspected")
    for op in function.regions[0].block.ops:
        for value in (*op.operands, *op.results):
            if isinstance(value.type, TensorType) and not value.type.is_static:
                raise UnsupportedError(f"{path}: {op.name} has {value.type}; only static shapes can be compiled so far")
            if not isinstance(value.type, (TensorType, ScalarType)):
                raise ModelError(f"{path}: {op.name} has a {value.type}; programs hold tensors and scalars")
