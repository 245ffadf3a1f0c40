"""Runs a model: programs are built per input shapes (and values that shapes depend on), and kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from oarlock.errors import ModelError
from oarlock.ir import Operation
from oarlock.ir.interpret import interpret
from oarlock_onnx.model import Model
from oarlock_onnx.program import ImportedProgram, Stage

__all__ = ["Engine", "HostEngine", "Session"]

Array = npt.NDArray[Any]

_KEPT = 16
"""Programs kept per session; the one unused for longest goes first."""
_MAX_STAGES = 1000


class Engine(Protocol):
    """What runs a function: on a device, or by the interpreter."""

    def run(self, function: Operation, parameters: Sequence[Array], inputs: Sequence[Array]) -> list[Array]:
        """The results; ``parameters`` are the same arrays whenever ``function`` is."""
        ...


class HostEngine:
    """The interpreter over NumPy: the oracle."""

    def run(self, function: Operation, parameters: Sequence[Array], inputs: Sequence[Array]) -> list[Array]:
        """The results of interpreting ``function``."""
        return interpret(function, [*parameters, *inputs])


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """A built program and what it was built for."""

    shapes: Mapping[str, tuple[int, ...]]
    answers: tuple[Array, ...]
    built: ImportedProgram | Stage

    def fits(self, shapes: Mapping[str, tuple[int, ...]], inputs: Mapping[str, Array], answers: Sequence[Array]) -> bool:
        program = self.built.program if isinstance(self.built, Stage) else self.built
        return (
            self.shapes == shapes
            and len(self.answers) == len(answers)
            and all(_same(left, right) for left, right in zip(self.answers, answers, strict=True))
            and all(_same(value, inputs[name]) for name, value in program.specialised.items())
        )


def _same(left: Array, right: Array) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


class Session:
    """A model and the engine that runs it."""

    def __init__(self, model: Model, engine: Engine | None = None) -> None:
        self.model = model
        self.engine: Engine = engine or HostEngine()
        self._entries: list[_Entry] = []

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name. Raises ModelError for inputs that do not fit."""
        program, arrays = self.prepare(inputs)
        results = self.engine.run(program.function, list(program.parameters.values()), arrays)
        return dict(zip(program.outputs, results, strict=True))

    def prepare(self, inputs: Mapping[str, Array]) -> tuple[ImportedProgram, list[Array]]:
        """The program for these inputs, and those of them that it takes, in order."""
        given = {name: np.asarray(array) for name, array in inputs.items()}
        self.model.check_inputs(given)
        answers: list[Array] = []
        while True:
            built = self._built(given, answers)
            if isinstance(built, ImportedProgram):
                return built, [given[name] for name in built.inputs]
            if len(answers) >= _MAX_STAGES:
                raise ModelError(f"{self.model.name}: its shapes depend on more than {_MAX_STAGES} computed values")
            part = built.program
            arrays = [given[name] for name in part.inputs]
            answers.append(self.engine.run(part.function, list(part.parameters.values()), arrays)[0])

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
