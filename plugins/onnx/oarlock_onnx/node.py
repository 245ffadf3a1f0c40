"""One node as an operator's function sees it: inputs as values, attributes with their types checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from onnx import AttributeProto, GraphProto, NodeProto, SparseTensorProto, TensorProto

from oarlock.errors import ModelError
from oarlock.ir import Value

__all__ = ["Graphs", "Item", "Node"]

Item = Value | tuple[Value, ...] | None
"""What a name stands for: a tensor, a sequence of tensors, or an absent optional."""


class Graphs(Protocol):
    """What control flow needs of the importer."""

    def run(self, graph: GraphProto, arguments: Sequence[Item]) -> list[Item]:
        """Import a body with these inputs, seeing all outer names; its outputs."""
        ...

    def tensor(self, proto: TensorProto, what: str) -> Value:
        """A constant tensor of the model."""
        ...


class Node:
    """A node: ``op_type``, ``domain``, ``version`` (of the domain's operator set), ``inputs``, ``outputs`` (names)."""

    def __init__(
        self,
        proto: NodeProto,
        version: int,
        inputs: Sequence[Item],
        attributes: Mapping[str, AttributeProto],
        graphs: Graphs,
    ) -> None:
        self.proto = proto
        self.op_type: str = proto.op_type
        self.domain: str = proto.domain
        self.version = version
        self.inputs = inputs
        self.outputs: tuple[str, ...] = tuple(proto.output)
        self.attributes = attributes
        self.graphs = graphs

    def __len__(self) -> int:
        return len(self.inputs)

    def input(self, index: int, name: str = "") -> Value:
        """Input ``index``, a tensor; raises ModelError where it is absent."""
        item = self.item(index, name)
        if not isinstance(item, Value):
            raise ModelError(f"input {name or index} must be a tensor")
        return item

    def optional(self, index: int) -> Value | None:
        """Input ``index``, a tensor, or None where it is absent."""
        return self.input(index) if index < len(self.inputs) and self.inputs[index] is not None else None

    def item(self, index: int, name: str = "") -> Item:
        """Input ``index`` of any kind; raises ModelError where it is absent."""
        if index >= len(self.inputs) or self.inputs[index] is None:
            raise ModelError(f"input {name or index} is missing")
        return self.inputs[index]

    def all_inputs(self) -> list[Value]:
        """All inputs of a variadic operator, at least one."""
        if not self.inputs:
            raise ModelError("it has no inputs")
        return [self.input(index) for index in range(len(self.inputs))]

    def wants(self, index: int) -> bool:
        """Whether output ``index`` is asked for."""
        return index < len(self.outputs) and self.outputs[index] != ""

    def has(self, name: str) -> bool:
        """Whether the attribute is given."""
        return name in self.attributes

    def _get(self, name: str, kind: int) -> AttributeProto | None:
        attribute = self.attributes.get(name)
        if attribute is not None and attribute.type != kind:
            names = AttributeProto.AttributeType
            given = attribute.type if attribute.type not in names.values() else names.Name(attribute.type)
            raise ModelError(f"attribute {name} must be of type {names.Name(kind)}, it is {given}")
        return attribute

    def _required(self, name: str, value: Any) -> Any:
        if value is None:
            raise ModelError(f"attribute {name} is missing")
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer attribute; required where ``default`` is None."""
        attribute = self._get(name, AttributeProto.INT)
        return self._required(name, default if attribute is None else attribute.i)  # type: ignore[no-any-return]

    def flag(self, name: str, default: bool = False) -> bool:
        """An integer attribute that means yes or no."""
        return self.integer(name, int(default)) != 0

    def real(self, name: str, default: float | None = None) -> float:
        """A float attribute (float32 in the file); required where ``default`` is None."""
        attribute = self._get(name, AttributeProto.FLOAT)
        return self._required(name, default if attribute is None else attribute.f)  # type: ignore[no-any-return]

    def string(self, name: str, default: str | None = None) -> str:
        """A string attribute; required where ``default`` is None."""
        attribute = self._get(name, AttributeProto.STRING)
        if attribute is None:
            return self._required(name, default)  # type: ignore[no-any-return]
        return _text(name, attribute.s)

    def integers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """A list of integers; required where ``default`` is None."""
        attribute = self._get(name, AttributeProto.INTS)
        return tuple(self._required(name, default if attribute is None else attribute.ints))

    def reals(self, name: str, default: Sequence[float] | None = None) -> tuple[float, ...]:
        """A list of floats; required where ``default`` is None."""
        attribute = self._get(name, AttributeProto.FLOATS)
        return tuple(self._required(name, default if attribute is None else attribute.floats))

    def strings(self, name: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        """A list of strings; required where ``default`` is None."""
        attribute = self._get(name, AttributeProto.STRINGS)
        if attribute is None:
            return tuple(self._required(name, default))
        return tuple(_text(name, item) for item in attribute.strings)

    def tensor(self, name: str) -> TensorProto | None:
        """A tensor attribute, or None."""
        attribute = self._get(name, AttributeProto.TENSOR)
        return None if attribute is None else attribute.t

    def sparse(self, name: str) -> SparseTensorProto | None:
        """A sparse tensor attribute, or None."""
        attribute = self._get(name, AttributeProto.SPARSE_TENSOR)
        return None if attribute is None else attribute.sparse_tensor

    def graph(self, name: str) -> GraphProto:
        """A graph attribute; required."""
        attribute = self._required(name, self._get(name, AttributeProto.GRAPH))
        return attribute.g  # type: ignore[no-any-return]


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ModelError(f"attribute {name} is no UTF-8 text") from None
