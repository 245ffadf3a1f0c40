"""Operators that ONNX itself defines by a function over other operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto, defs, helper

from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock.ops.record import tensor
from oarlock_onnx.node import Item
from oarlock_onnx.registry import normal_domain
from oarlock_onnx.tensors import onnx_type_of

__all__ = ["has_function", "schema_function"]


def _schema(domain: str, name: str, version: int) -> Any:
    """The operator's schema (defs.OpSchema, whose stubs lack the functions), or None."""
    try:
        return defs.get_schema(name, max_inclusive_version=version, domain=normal_domain(domain))
    except defs.SchemaError:
        return None


def has_function(domain: str, name: str, version: int) -> bool:
    """Whether ONNX defines the operator by a function."""
    schema = _schema(domain, name, version)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def schema_function(
    proto: NodeProto, version: int, inputs: Sequence[Item], attributes: Mapping[str, AttributeProto]
) -> FunctionProto | None:
    """The function that defines this node, or None where ONNX has none; its bodies depend on types and attributes."""
    schema = _schema(proto.domain, proto.op_type, version)
    if schema is None:
        return None
    if schema.has_context_dependent_function:
        function = _context_dependent(schema, proto, version, inputs, attributes)
    elif schema.has_function:
        function = schema.function_body
    else:
        return None
    copy = FunctionProto()
    copy.CopyFrom(function)
    given = {default.name for default in copy.attribute_proto}
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.name:
            copy.attribute_proto.append(attribute.default_value)
    if not any(normal_domain(entry.domain) == "" for entry in copy.opset_import):
        copy.opset_import.append(helper.make_opsetid("", defs.onnx_opset_version()))
    return copy


def _context_dependent(
    schema: Any,
    proto: NodeProto,
    version: int,
    inputs: Sequence[Item],
    attributes: Mapping[str, AttributeProto],
) -> FunctionProto:
    node = NodeProto()
    node.CopyFrom(proto)
    del node.attribute[:]
    for name, attribute in attributes.items():
        copy = node.attribute.add()
        copy.CopyFrom(attribute)
        copy.name = name
    types = [_type_of(item).SerializeToString() for item in inputs]
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= version]
    try:
        data = schema.get_context_dependent_function_with_opset_version(
            max(versions) if versions else version, node.SerializeToString(), types
        )
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        raise ModelError(f"ONNX cannot expand it: {error}") from error
    if not data:
        raise ModelError("ONNX cannot expand it for these inputs and attributes")
    function: FunctionProto = FunctionProto.FromString(data)
    return function


def _type_of(item: Item) -> TypeProto:
    if not isinstance(item, Value):
        return TypeProto()
    kind = tensor(item)
    return helper.make_tensor_type_proto(onnx_type_of(kind.dtype), kind.static_shape)
