"""Interprets programs over NumPy: the oracle that every device is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.errors import IRError, ShapeError, UnsupportedError
from oarlock.ir.attributes import Attribute
from oarlock.ir.dialects import traits
from oarlock.ir.operations import Block, Operation, Region, Value
from oarlock.ir.sizes import Size, evaluate
from oarlock.ir.types import ScalarType, TensorType, Type

__all__ = ["Array", "Evaluate", "Interpreter", "interpret"]

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Evaluate:
    """The interface by which an operation is interpreted; in ``OpDefinition.interfaces`` under this class.

    ``function(op, operands, interpreter)`` gives the results: arrays of the dtypes and shapes of ``op``'s results. It
    must not change its operands. What ends a region needs none: its operands are the region's results.
    """

    function: Callable[[Operation, Sequence[Array], Interpreter], Sequence[Array]]

    def __call__(self, op: Operation, operands: Sequence[Array], interpreter: Interpreter) -> Sequence[Array]:
        """The results of ``op``."""
        return self.function(op, operands, interpreter)


class Interpreter:
    """The values of one activation of a function, and the sizes that its symbols stand for."""

    def __init__(self, function: Operation) -> None:
        self.function = function
        self.sizes: dict[str, int] = {}
        self._values: dict[Value, Array] = {}
        self._dying: dict[Block, dict[Operation, list[Value]]] = {}

    def attributes(self, op: Operation) -> Mapping[str, Attribute]:
        """The attributes of ``op`` with every symbolic size replaced by its number."""
        return {name: self._concrete(value) for name, value in op.attributes.items()}

    def _concrete(self, value: Attribute) -> Attribute:
        if isinstance(value, Size):
            return evaluate(value, self.sizes)
        if isinstance(value, tuple):
            return tuple(map(self._concrete, value))
        return value

    def run(self, region: Region, arguments: Sequence[Array]) -> list[Array]:
        """The operands of the terminator of ``region``, which has one block that takes ``arguments``."""
        block = region.block
        if len(arguments) != len(block.args):
            raise IRError(f"region takes {len(block.args)} arguments; got {len(arguments)}")
        for argument, array in zip(block.args, arguments, strict=True):
            self._values[argument] = array
        dying = self._dying.get(block)
        if dying is None:
            dying = self._dying[block] = _last_uses(block)
        results: list[Array] = []
        for op in block.ops:
            operands = [self._values[operand] for operand in op.operands_]
            if op.definition.has(traits.TERMINATOR):
                results = operands
            else:
                self._step(op, operands)
            for value in dying.get(op, ()):
                del self._values[value]
        return results

    def _step(self, op: Operation, operands: list[Array]) -> None:
        evaluator = op.definition.interface(Evaluate)
        if evaluator is None:
            raise UnsupportedError(f"{op.name} cannot be interpreted: its definition has no Evaluate interface")
        try:
            arrays = evaluator(op, operands, self)
            if len(arrays) != len(op.results):
                raise IRError(f"{op.name} gave {len(arrays)} results, not {len(op.results)}")
            for result, array in zip(op.results, arrays, strict=True):
                self._values[result] = self.check(array, result.type, f"a result of {op.name}")
        except Exception as error:
            error.add_note(f"while interpreting {op.name} ({op.location or 'unknown location'})")
            raise

    def call(self, function: Operation, arguments: Sequence[Array]) -> list[Array]:
        """The results of another function."""
        return interpret(function, arguments)

    def bind(self, arguments: Sequence[Array]) -> None:
        """Learn the symbols of the parameters' shapes from ``arguments``; raises ShapeError when they disagree."""
        for argument, array in zip(self.function.regions[0].block.args, arguments, strict=True):
            if not isinstance(argument.type, TensorType) or argument.type.rank != array.ndim:
                continue
            for dim, extent in zip(argument.type.shape, array.shape, strict=True):
                if not isinstance(dim, Size) or dim.operator != "sym":
                    continue
                if self.sizes.setdefault(dim.name, extent) != extent:
                    raise ShapeError(f"size {dim.name} is {self.sizes[dim.name]} and {extent}")

    def check(self, array: object, type: Type, what: str) -> Array:
        """``array``, which must be of ``type``."""
        if not isinstance(array, (np.ndarray, np.generic)):
            raise IRError(f"{what} is no array: {array!r}")
        if not isinstance(type, (TensorType, ScalarType)):
            raise UnsupportedError(f"{what} is a {type}, which cannot be interpreted")
        shape = tuple(evaluate(d, self.sizes) for d in type.shape) if isinstance(type, TensorType) else ()
        if dtypes.from_numpy(array.dtype) != type.dtype or array.shape != shape:
            raise ShapeError(f"{what} should be {type.dtype} {shape}; it is {array.dtype} {array.shape}")
        return np.asarray(array)


def _last_uses(block: Block) -> dict[Operation, list[Value]]:
    """For each operation of ``block``, the block's own values that nothing after it uses."""
    last: dict[Value, Operation] = {}
    for op in block.ops:
        for result in op.results:
            last[result] = op
    own = {*block.args, *last}
    for op in block.ops:
        for inner in op.walk():
            for operand in inner.operands_:
                if operand in own:
                    last[operand] = op
    dying: dict[Operation, list[Value]] = {}
    for value, op in last.items():
        dying.setdefault(op, []).append(value)
    return dying


def interpret(function: Operation, arguments: Sequence[npt.ArrayLike]) -> list[Array]:
    """The results of ``function`` (a ``builtin.function``) for ``arguments``, one array per parameter.

    Symbolic sizes are learnt from the arguments' shapes. Values are freed after their last use. Raises ShapeError where
    an argument or an intermediate result does not fit its type, UnsupportedError for an operation without ``Evaluate``.
    """
    parameters = function.regions[0].block.args
    name = function.attributes.get("name", function.name)
    if len(arguments) != len(parameters):
        raise ShapeError(f"{name} takes {len(parameters)} arguments; got {len(arguments)}")
    interpreter = Interpreter(function)
    arrays = [np.asarray(argument) for argument in arguments]
    interpreter.bind(arrays)
    checked = [
        interpreter.check(array, parameter.type, f"argument {parameter.index} of {name}")
        for parameter, array in zip(parameters, arrays, strict=True)
    ]
    return interpreter.run(function.regions[0], checked)
