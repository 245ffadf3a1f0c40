"""A model's graph as one function of the IR, for concrete input shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from onnx import GraphProto

from oarlock.errors import ModelError
from oarlock.ir import Block, Operation, Region, TensorType, Value, traits
from oarlock.ops import array_context
from oarlock_onnx.builder import GraphBuilder, NeedsValue
from oarlock_onnx.importer import Functions, Importer, Weights
from oarlock_onnx.limits import check_size
from oarlock_onnx.node import Item

if TYPE_CHECKING:
    from oarlock_onnx.model import TensorSpec

__all__ = ["ImportedProgram", "Stage", "build"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class ImportedProgram:
    """A function and its arguments: first ``parameters`` (constant, to be put on a device once), then ``inputs``.

    An input that the results do not depend on, or only through its value while building, is no argument.
    ``specialised`` holds the inputs whose values the program was built for: with other values, build again.
    """

    function: Operation
    parameters: Mapping[str, Array]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    specialised: Mapping[str, Array]


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A first part of a model: its one result must be known before the rest can be built."""

    program: ImportedProgram


def build(
    graph: GraphProto,
    opsets: Mapping[str, int],
    functions: Functions,
    weights: Weights,
    inputs: Sequence[TensorSpec],
    shapes: Mapping[str, Sequence[int]],
    values: Mapping[str, Array],
    answers: Sequence[Array],
) -> ImportedProgram | Stage:
    """Import ``graph`` for these shapes; see ``Model.build``."""
    block = Block()
    builder = GraphBuilder(array_context(), block, values, answers)
    arguments: dict[str, Item] = {}
    for spec in inputs:
        shape = tuple(int(dim) for dim in shapes[spec.name])
        check_size(f"input {spec.name!r}", shape, spec.dtype)
        argument = block.add_argument(TensorType(spec.dtype, shape))
        argument.name_hint = spec.name
        builder.inputs[argument] = spec.name
        arguments[spec.name] = argument
    try:
        items = Importer(builder, functions, weights).graph(graph, arguments, opsets)
    except NeedsValue as request:
        return Stage(_finish(builder, graph.name, [request.value], ["value"]))
    names = [output.name for output in graph.output]
    results: list[Value] = []
    for name, item in zip(names, items, strict=True):
        if not isinstance(item, Value):
            raise ModelError(f"output {name!r} is no tensor; only tensors are supported")
        results.append(item)
    return _finish(builder, graph.name, results, names)


def _finish(builder: GraphBuilder, name: str, results: Sequence[Value], names: Sequence[str]) -> ImportedProgram:
    block = builder.block
    builder.location = None
    builder.create("builtin.return", results)
    _remove_dead(block)
    used = [argument for argument in block.args if argument.uses]
    parameters = [argument for argument in used if argument in builder.parameters]
    block.args[:] = parameters + [argument for argument in used if argument in builder.inputs]
    for index, argument in enumerate(block.args):
        argument.index = index
    held: dict[str, Array] = {}
    for argument in parameters:
        hint = argument.name_hint or f"constant_{argument.index}"
        key = hint if hint not in held else f"{hint}_{argument.index}"
        held[key] = builder.parameters[argument]
    definition = builder.context.definition("builtin.function")
    function = Operation(definition, (), {"name": name or "model"}, (), [Region([block])])
    inputs = tuple(builder.inputs[argument] for argument in block.args if argument in builder.inputs)
    return ImportedProgram(function, held, inputs, tuple(names), dict(builder.specialised))


def _remove_dead(block: Block) -> None:
    """Erase pure operations whose results nobody uses, last first."""
    op = block.last_op
    while op is not None:
        before = op.prev_op
        if op.definition.has(traits.PURE) and not any(result.uses for result in op.results):
            op.erase()
        op = before
