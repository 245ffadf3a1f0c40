"""The walk over a graph: names to values, nodes to operators, functions inlined, bodies of control flow imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto

from oarlock.errors import ModelError, OarlockError
from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder, NeedsValue
from oarlock_onnx.functions import schema_function
from oarlock_onnx.limits import MAX_GRAPH_DEPTH, one_line
from oarlock_onnx.node import Item, Node
from oarlock_onnx.registry import OPERATORS, normal_domain
from oarlock_onnx.tensors import to_array

__all__ = ["Functions", "Importer", "Weights"]

Array = npt.NDArray[Any]

Functions = Mapping[tuple[str, str], FunctionProto]
"""The functions that a model defines itself, by domain and name."""


class Weights:
    """The tensors of a model file, each decoded once for all programs built from it."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._arrays: dict[int, tuple[TensorProto, Array]] = {}

    def array(self, proto: TensorProto, what: str) -> Array:
        """The values of ``proto``, which must stay alive and unchanged with the model."""
        found = self._arrays.get(id(proto))
        if found is None or found[0] is not proto:
            found = (proto, to_array(proto, self._folder, what))
            self._arrays[id(proto)] = found
        return found[1]


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is visible where a node stands: names, operator set versions, a function's attributes, nesting depth."""

    names: Mapping[str, Item]
    opsets: Mapping[str, int]
    bindings: Mapping[str, AttributeProto]
    depth: int


class Importer:
    """Imports graphs and functions through a builder."""

    def __init__(self, builder: GraphBuilder, functions: Functions, weights: Weights) -> None:
        self.builder = builder
        self.functions = functions
        self.weights = weights

    def graph(self, graph: GraphProto, arguments: Mapping[str, Item], opsets: Mapping[str, int]) -> list[Item]:
        """Import the model's main graph; its outputs in order."""
        return self.body(graph, _Scope(arguments, opsets, {}, 0))

    def body(self, graph: GraphProto, scope: _Scope) -> list[Item]:
        """Import a graph in ``scope``, whose names hold its inputs; its outputs in order."""
        if scope.depth > MAX_GRAPH_DEPTH:
            raise ModelError(f"graphs and functions are nested more than {MAX_GRAPH_DEPTH} deep")
        names = dict(scope.names)
        if graph.sparse_initializer:
            raise ModelError("sparse initializers are not supported")
        for proto in graph.initializer:
            if not proto.name:
                raise ModelError("an initializer has no name")
            value = self.tensor(proto, f"initializer {proto.name!r}")
            value.name_hint = proto.name
            names[proto.name] = value
        self._nodes(graph.node, _Scope(names, scope.opsets, scope.bindings, scope.depth), names)
        return [_lookup(names, output.name, "the graph's output") for output in graph.output]

    def tensor(self, proto: TensorProto, what: str) -> Value:
        """A constant tensor of the model."""
        return self.builder.known(self.weights.array(proto, what))

    def _nodes(self, nodes: Sequence[NodeProto], scope: _Scope, names: dict[str, Item]) -> None:
        for proto in nodes:
            label = f"node {proto.name!r} ({proto.op_type})" if proto.name else f"node {proto.op_type}"
            outer, self.builder.location = self.builder.location, label
            try:
                results = self._node(proto, scope, names)
            except NeedsValue:
                raise
            except ModelError as error:
                text = str(error)
                raise ModelError(text if text.startswith("node ") else f"{label}: {text}") from error
            except OarlockError as error:
                raise ModelError(f"{label}: {error}") from error
            except (ValueError, TypeError, LookupError, ArithmeticError, MemoryError, AttributeError) as error:
                raise ModelError(f"{label}: it is malformed: {type(error).__name__}: {one_line(error)}") from error
            self.builder.location = outer
            self._bind(proto, results, names)

    def _bind(self, proto: NodeProto, results: Sequence[Item], names: dict[str, Item]) -> None:
        for name, item in zip(proto.output, results, strict=False):
            if name:
                if isinstance(item, Value) and item.name_hint is None:
                    item.name_hint = name
                names[name] = item
        for place, name in enumerate(proto.output):
            if name and (place >= len(results) or results[place] is None):
                raise ModelError(f"node {proto.op_type} gives no output number {place} ({name!r})")

    def _node(self, proto: NodeProto, scope: _Scope, names: Mapping[str, Item]) -> Sequence[Item]:
        inputs = [_lookup(names, name, "its input") if name else None for name in proto.input]
        attributes = _bound(proto, scope.bindings)
        domain = normal_domain(proto.domain)
        local = self.functions.get((domain, proto.op_type))
        if local is not None:
            return self._function(local, inputs, attributes, scope)
        version = scope.opsets.get(domain)
        if version is None:
            raise ModelError(f"the model does not import operator set {domain or 'ai.onnx'!r}")
        implementation = OPERATORS.get((domain, proto.op_type))
        if implementation is not None:
            bodies = _Bodies(self, _Scope(names, scope.opsets, scope.bindings, scope.depth + 1))
            results = implementation(self.builder, Node(proto, version, inputs, attributes, bodies))
            return results if isinstance(results, list) else [results]
        function = schema_function(proto, version, inputs, attributes)
        if function is None:
            raise ModelError(f"operator {domain + '.' if domain else ''}{proto.op_type} is not supported")
        return self._function(function, inputs, attributes, scope)

    def _function(
        self, function: FunctionProto, inputs: Sequence[Item], attributes: dict[str, AttributeProto], scope: _Scope
    ) -> list[Item]:
        if len(inputs) > len(function.input):
            raise ModelError(f"function {function.name} takes {len(function.input)} inputs, got {len(inputs)}")
        if scope.depth >= MAX_GRAPH_DEPTH:
            raise ModelError(f"graphs and functions are nested more than {MAX_GRAPH_DEPTH} deep")
        bindings = {default.name: default for default in function.attribute_proto} | attributes
        names: dict[str, Item] = dict.fromkeys(function.input)
        names.update(zip(function.input, inputs, strict=False))
        opsets = {normal_domain(entry.domain): entry.version for entry in function.opset_import}
        self._nodes(function.node, _Scope(names, opsets, bindings, scope.depth + 1), names)
        return [names.get(name) for name in function.output]


class _Bodies:
    """The bodies of a control flow node: they see the names around it."""

    def __init__(self, importer: Importer, scope: _Scope) -> None:
        self._importer = importer
        self._scope = scope

    def run(self, graph: GraphProto, arguments: Sequence[Item]) -> list[Item]:
        if len(arguments) != len(graph.input):
            raise ModelError(f"body {graph.name!r} takes {len(graph.input)} inputs, it is given {len(arguments)}")
        inputs = {given.name: item for given, item in zip(graph.input, arguments, strict=True)}
        scope = self._scope
        return self._importer.body(graph, _Scope({**scope.names, **inputs}, scope.opsets, scope.bindings, scope.depth))

    def tensor(self, proto: TensorProto, what: str) -> Value:
        return self._importer.tensor(proto, what)


def _lookup(names: Mapping[str, Item], name: str, what: str) -> Item:
    if name not in names:
        raise ModelError(f"{what} {name!r} is defined nowhere before it")
    return names[name]


def _bound(proto: NodeProto, bindings: Mapping[str, AttributeProto]) -> dict[str, AttributeProto]:
    """The node's attributes; references to a function's attributes resolved (an absent one stays absent)."""
    attributes: dict[str, AttributeProto] = {}
    for attribute in proto.attribute:
        if not attribute.ref_attr_name:
            attributes[attribute.name] = attribute
            continue
        source = bindings.get(attribute.ref_attr_name)
        if source is not None:
            attributes[attribute.name] = source
    return attributes
