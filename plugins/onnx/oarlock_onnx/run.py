"""Runs a model: programs are built per input shapes (and values that shapes depend on), and kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock.errors import ModelError
from oarlock.ir import Operation
from oarlock_onnx.engine import Engine, HostEngine, Loaded
from oarlock_onnx.model import Model
from oarlock_onnx.program import ImportedProgram, Stage

__all__ = ["Run", "Session", "Span"]

Array = npt.NDArray[Any]
Span = Callable[[str], AbstractContextManager[object]]
"""Called with the name of each phase: ``build``, ``compile``, ``load``, ``execute``, ``fetch``."""

_KEPT = 16
"""Programs kept per session; the one unused for longest goes first."""
_MAX_STAGES = 1000


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """A built program and what it was built for."""

    shapes: Mapping[str, tuple[int, ...]]
    answers: tuple[Array, ...]
    built: ImportedProgram | Stage

    def fits(
        self, shapes: Mapping[str, tuple[int, ...]], inputs: Mapping[str, Array], answers: Sequence[Array]
    ) -> bool:
        program = self.built.program if isinstance(self.built, Stage) else self.built
        return (
            self.shapes == shapes
            and len(self.answers) == len(answers)
            and all(_same(left, right) for left, right in zip(self.answers, answers, strict=True))
            and all(_same(value, inputs[name]) for name, value in program.specialised.items())
        )


def _same(left: Array, right: Array) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


class Run:
    """A program with its inputs in place: ``execute`` any number of times, then take the ``outputs``."""

    def __init__(self, program: ImportedProgram, loaded: Loaded, span: Span) -> None:
        self.program = program
        self._loaded = loaded
        self._span = span

    @property
    def function(self) -> Operation:
        """The program as it was imported."""
        return self.program.function

    @property
    def parameters(self) -> int:
        """How many of its first arguments are parameters: the same in every run."""
        return len(self.program.parameters)

    def execute(self) -> None:
        """Run once, and wait for the end."""
        with self._span("execute"):
            self._loaded.run()

    def outputs(self) -> dict[str, Array]:
        """What the last run gave, by name."""
        with self._span("fetch"):
            return dict(zip(self.program.outputs, self._loaded.results(), strict=True))


class Session:
    """A model and the engine that runs it (the interpreter by default). Safe from several threads."""

    def __init__(self, model: Model, engine: Engine | None = None, span: Span | None = None) -> None:
        self.model = model
        self.engine: Engine = engine or HostEngine()
        self._span: Span = span or (lambda name: nullcontext())
        self._entries: list[_Entry] = []
        self._lock = threading.Lock()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name. Raises ModelError for inputs that do not fit."""
        run = self.prepare(inputs)
        run.execute()
        return run.outputs()

    def prepare(self, inputs: Mapping[str, Array]) -> Run:
        """The program for these inputs, compiled, with its arguments in place."""
        given = {name: np.asarray(array) for name, array in inputs.items()}
        self.model.check_inputs(given)
        answers: list[Array] = []
        while True:
            with self._span("build"), self._lock:
                built = self._built(given, answers)
            if isinstance(built, ImportedProgram):
                return self._loaded(built, given)
            if len(answers) >= _MAX_STAGES:
                raise ModelError(f"{self.model.name}: its shapes depend on more than {_MAX_STAGES} computed values")
            part = self._loaded(built.program, given)
            part.execute()
            answers.extend(part.outputs().values())

    def _loaded(self, program: ImportedProgram, inputs: Mapping[str, Array]) -> Run:
        with self._span("compile"):
            self.engine.compile(program.function, list(program.parameters.values()))
        with self._span("load"):
            arrays = [inputs[name] for name in program.inputs]
            loaded = self.engine.load(program.function, list(program.parameters.values()), arrays)
        return Run(program, loaded, self._span)

    def _built(self, inputs: Mapping[str, Array], answers: Sequence[Array]) -> ImportedProgram | Stage:
        shapes = {name: array.shape for name, array in inputs.items()}
        for entry in self._entries:
            if entry.fits(shapes, inputs, answers):
                self._entries.remove(entry)
                self._entries.append(entry)
                return entry.built
        built = self.model.build(shapes, inputs, answers)
        self._entries.append(_Entry(shapes, tuple(answers), built))
        del self._entries[:-_KEPT]
        return built
