"""Walks over a model's protobuf that check it before anything is built from it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import ParamSpec, TypeVar

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from oarlock.errors import ModelError
from oarlock_onnx.limits import MAX_GRAPH_DEPTH, one_line

__all__ = ["all_nodes", "check_texts", "tidy_errors"]

P = ParamSpec("P")
R = TypeVar("R")


def tidy_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Let every ModelError of ``function`` be one line of bounded length, whatever names the model has."""

    @functools.wraps(function)
    def tidy(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except ModelError as error:
            text = one_line(error)
            if text == str(error):
                raise
            raise ModelError(text) from error

    return tidy


def all_nodes(nodes: Iterable[NodeProto], depth: int = 0) -> Iterator[NodeProto]:
    """All nodes, with those of graphs in attributes; raises ModelError where these are nested too deep."""
    if depth > MAX_GRAPH_DEPTH:
        raise ModelError(f"graphs are nested more than {MAX_GRAPH_DEPTH} deep")
    for node in nodes:
        yield node
        for graph in _graphs(node):
            yield from all_nodes(graph.node, depth + 1)


def _graphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def check_texts(proto: ModelProto, label: str) -> None:
    """Raise ModelError when a name is not UTF-8; protobuf hands such a name out as bytes."""
    for text in _texts(proto):
        if not isinstance(text, str):
            raise ModelError(f"{label}: it is no ONNX model: a name is not UTF-8")


def _texts(proto: ModelProto) -> Iterator[object]:
    yield from (entry.domain for entry in proto.opset_import)
    yield from _graph_texts(proto.graph, 0)
    for function in proto.functions:
        yield from (function.name, function.domain, *function.input, *function.output, *function.attribute)
        yield from (entry.domain for entry in function.opset_import)
        yield from (default.name for default in function.attribute_proto)
        yield from _node_texts(function.node, 0)


def _graph_texts(graph: GraphProto, depth: int) -> Iterator[object]:
    if depth > MAX_GRAPH_DEPTH:
        raise ModelError(f"graphs are nested more than {MAX_GRAPH_DEPTH} deep")
    yield graph.name
    for value in (*graph.input, *graph.output):
        yield value.name
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
    for tensor in graph.initializer:
        yield tensor.name
        yield from (part for entry in tensor.external_data for part in (entry.key, entry.value))
    yield from _node_texts(graph.node, depth)


def _node_texts(nodes: Iterable[NodeProto], depth: int) -> Iterator[object]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield from (attribute.name, attribute.ref_attr_name)
            yield from (part for entry in attribute.t.external_data for part in (entry.key, entry.value))
        for graph in _graphs(node):
            yield from _graph_texts(graph, depth + 1)
