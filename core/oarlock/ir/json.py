"""The JSON form of the representation, with versions: to_json and from_json, which are each other's inverse.

A document is ``{"oarlock": 1, "dialects": {"array": 1, ...}, "operation": OPERATION}``. An operation has ``name`` and,
where there are any, ``operands`` (numbers of values), ``attributes``, ``results``, ``regions`` (lists of blocks) and
``location``; a block has ``arguments`` and ``operations``; a result or argument is ``{"id", "type"[, "name"]}`` with an
``id`` that is unique in the document. Types and sizes are strings as in the text form. Attributes that JSON lacks are
objects of one key: ``float`` (decimal) ``nan`` (its bits) ``int`` (beyond 64 bits) ``characters`` (a string with
surrogates) ``dtype`` ``type`` ``size`` ``dense`` (dtype, shape, little-endian bytes in base64).
"""

from __future__ import annotations

import base64
import copy
import math
import struct
from collections.abc import Iterator
from typing import Any, NoReturn, cast

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import DTypeError, IRError, ParseError
from oarlock.ir.attribute_parser import dense_from_bytes, parse_size, parse_type
from oarlock.ir.attributes import Attribute, Dense
from oarlock.ir.context import Context
from oarlock.ir.operations import Block, Operation, Region, Value
from oarlock.ir.sizes import Size
from oarlock.ir.types import Type

__all__ = ["FORMAT", "from_json", "operations_in", "to_json"]

FORMAT = 1
"""The version of the document; dialects have their own."""

_REGION_DEPTH = 64
_VALUE_DEPTH = 128


def to_json(op: Operation, context: Context) -> dict[str, Any]:
    """``op`` and all that it holds as a JSON document, with the versions that its dialects have in ``context``.

    Raises IRError for an operand that is defined outside ``op``, and for a dialect that ``context`` lacks.
    """
    versions = {
        name: context.dialect(name).version for name in dict.fromkeys(inner.definition.dialect for inner in op.walk())
    }
    return {"oarlock": FORMAT, "dialects": versions, "operation": _Writer().operation(op)}


def from_json(data: object, context: Context) -> Operation:
    """The operation of a JSON document, brought up to the dialects' present versions; not yet verified.

    ``data`` is untrusted and stays as it is: whatever is wrong with it raises ParseError, which says where, which
    dialect is missing, or which versions do not fit.
    """
    try:
        document = _as_dict(data, "document")
        if document.get("oarlock") != FORMAT:
            raise ParseError(f"document has format {document.get('oarlock')!r}; this is Oarlock with format {FORMAT}")
        document = _patched(document, context)
        if "operation" not in document:
            raise ParseError("document has no 'operation'")
        return _Reader(context, document["dialects"]).operation(document["operation"], "operation", 0)
    except RecursionError:
        raise ParseError("document is nested too deeply") from None


def operations_in(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every operation object of a document, outer ones first: what a dialect's patch changes in place."""
    waiting = [document["operation"]]
    while waiting:
        operation = waiting.pop()
        yield operation
        for region in operation.get("regions", ()):
            for block in region:
                waiting += reversed(block["operations"])


def _patched(document: dict[str, Any], context: Context) -> dict[str, Any]:
    """``document`` with every dialect at its present version; a copy where anything had to change."""
    original = document
    for name, found in _as_dict(document.get("dialects"), "dialects").items():
        try:
            dialect = context.dialect(name)
        except IRError as error:
            raise ParseError(f"document cannot be read: {error}") from None
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            raise ParseError(f"dialect {name}: {found!r} is no version")
        if found > dialect.version:
            raise ParseError(
                f"document has version {found} of dialect {name}; version {dialect.version} is installed: update it"
            )
        for version in range(found, dialect.version):
            if version not in dialect.patches:
                raise ParseError(f"dialect {name} cannot read its version {found}: no patch from version {version}")
            document = copy.deepcopy(document) if document is original else document
            try:
                dialect.patches[version](document)
            except Exception as error:  # the document is untrusted: a patch may stumble over it in any way
                raise ParseError(f"dialect {name}: patch from version {version} failed: {error!r}") from error
    return document


# --- writing ---------------------------------------------------------------------------------------------------------


def _attribute(value: Attribute) -> Any:
    if isinstance(value, float):
        bits = struct.pack(">d", value).hex()
        return {"nan": bits} if math.isnan(value) else {"float": float.__repr__(value)}
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else {"int": hex(value)}
    if isinstance(value, str):
        surrogates = any("\ud800" <= c <= "\udfff" for c in value)
        return {"characters": list(map(ord, value))} if surrogates else value
    if isinstance(value, tuple):
        return list(map(_attribute, value))
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, Type):
        return {"type": str(value)}
    if isinstance(value, Size):
        return {"size": str(value)}
    data = base64.b64encode(value.array.tobytes()).decode()
    return {"dense": {"dtype": value.dtype.name, "shape": list(value.array.shape), "data": data}}


class _Writer:
    """Numbers values in the order in which they are met."""

    def __init__(self) -> None:
        self._ids: dict[Value, int] = {}

    def _define(self, value: Value) -> dict[str, Any]:
        self._ids[value] = len(self._ids)
        result: dict[str, Any] = {"id": self._ids[value], "type": str(value.type)}
        if value.name_hint is not None:
            result["name"] = _attribute(value.name_hint)
        return result

    def operation(self, op: Operation) -> dict[str, Any]:
        result: dict[str, Any] = {"name": op.name}
        if op.operands_:
            outside = next((v for v in op.operands_ if v not in self._ids), None)
            if outside is not None:
                raise IRError(f"{op.name} uses a {outside.type} from outside; write the operation that holds both")
            result["operands"] = [self._ids[value] for value in op.operands_]
        if op.attributes:
            result["attributes"] = {name: _attribute(value) for name, value in sorted(op.attributes.items())}
        if op.results:
            result["results"] = list(map(self._define, op.results))
        if op.regions:
            result["regions"] = [[self._block(block) for block in region.blocks] for region in op.regions]
        if op.location is not None:
            result["location"] = _attribute(op.location)
        return result

    def _block(self, block: Block) -> dict[str, Any]:
        return {
            "arguments": list(map(self._define, block.args)),
            "operations": list(map(self.operation, block.ops)),
        }


# --- reading ---------------------------------------------------------------------------------------------------------


def _fail(where: str, message: str) -> NoReturn:
    raise ParseError(f"{where}: {message}")


def _as_dict(data: object, where: str) -> dict[str, Any]:
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        _fail(where, f"expected an object, found {_brief(data)}")
    return cast("dict[str, Any]", data)


def _as_list(data: object, where: str) -> list[Any]:
    if not isinstance(data, list):
        _fail(where, f"expected a list, found {_brief(data)}")
    return data


def _as_text(data: object, where: str) -> str:
    if not isinstance(data, str):
        _fail(where, f"expected a string, found {_brief(data)}")
    return data


def _as_number(data: object, where: str) -> int:
    """A number that is not negative."""
    if not isinstance(data, int) or isinstance(data, bool) or not 0 <= data < 1 << 63:
        _fail(where, f"expected a number, found {_brief(data)}")
    return data


def _brief(data: object) -> str:
    if isinstance(data, (dict, list)):
        return "an object" if isinstance(data, dict) else "a list"
    text = repr(data) if not isinstance(data, int) or abs(data) < 1 << 64 else "a huge number"
    return text if len(text) < 40 else text[:36] + " ..."


class _Reader:
    """Builds operations from checked pieces of a document."""

    def __init__(self, context: Context, dialects: dict[str, int]) -> None:
        self._context = context
        self._dialects = dialects
        self._values: dict[int, Value] = {}
        self._types: dict[str, Type] = {}

    def operation(self, data: object, where: str, depth: int) -> Operation:
        fields = _as_dict(data, where)
        for key in fields:
            if key not in ("name", "operands", "attributes", "results", "regions", "location"):
                _fail(where, f"an operation has no {key!r}")
        name = _as_text(fields.get("name"), f"{where}.name")
        if name.split(".", 1)[0] not in self._dialects:
            _fail(where, f"the document gives no version for the dialect of {name}")
        try:
            definition = self._context.definition(name)
        except IRError as error:
            _fail(where, str(error))
        operands = [self._use(number, where) for number in _as_list(fields.get("operands", []), f"{where}.operands")]
        attributes = {
            key: self._attribute(value, f"{where}.attributes.{key}", 0)
            for key, value in _as_dict(fields.get("attributes", {}), f"{where}.attributes").items()
        }
        results = _as_list(fields.get("results", []), f"{where}.results")
        op = Operation(definition, operands, attributes, [self._type_of(r, f"{where}.results") for r in results])
        for result, value in zip(results, op.results, strict=True):
            self._define(result, value, f"{where}.results")
        for index, region in enumerate(_as_list(fields.get("regions", []), f"{where}.regions")):
            op.add_region(self._region(region, f"{where}.regions[{index}]", depth + 1))
        if fields.get("location") is not None:
            op.location = self._string(fields["location"], f"{where}.location")
        return op

    def _region(self, data: object, where: str, depth: int) -> Region:
        if depth > _REGION_DEPTH:
            _fail(where, "nested too deeply")
        region = Region()
        for number, item in enumerate(_as_list(data, where)):
            place = f"{where}[{number}]"
            fields = _as_dict(item, place)
            arguments = _as_list(fields.get("arguments", []), f"{place}.arguments")
            block = region.add_block(Block([self._type_of(a, f"{place}.arguments") for a in arguments]))
            for argument, value in zip(arguments, block.args, strict=True):
                self._define(argument, value, f"{place}.arguments")
            for index, inner in enumerate(_as_list(fields.get("operations", []), f"{place}.operations")):
                block.append(self.operation(inner, f"{place}.operations[{index}]", depth))
        return region

    def _use(self, number: object, where: str) -> Value:
        value = self._values.get(_as_number(number, f"{where}.operands"))
        if value is None:
            _fail(f"{where}.operands", f"value {number} is not defined above")
        return value

    def _define(self, data: dict[str, Any], value: Value, where: str) -> None:
        number = _as_number(data.get("id"), f"{where}.id")
        if number in self._values:
            _fail(where, f"value {number} is defined twice")
        self._values[number] = value
        if data.get("name") is not None:
            value.name_hint = self._string(data["name"], f"{where}.name")

    def _type_of(self, data: object, where: str) -> Type:
        text = _as_text(_as_dict(data, where).get("type"), f"{where}.type")
        if text not in self._types:
            self._types[text] = self._read(parse_type, text, where)
        return self._types[text]

    @staticmethod
    def _read(read: Any, text: str, where: str) -> Any:
        try:
            return read(text)
        except (ParseError, DTypeError) as error:
            _fail(where, f"{_brief(text)}: {error}")

    def _string(self, data: object, where: str) -> str:
        value = self._attribute(data, where, 0)
        return _as_text(value, where)

    def _attribute(self, data: object, where: str, depth: int) -> Attribute:
        if data is None or isinstance(data, (bool, int, str)):
            return data
        if isinstance(data, list):
            if depth > _VALUE_DEPTH:
                _fail(where, "nested too deeply")
            return tuple(self._attribute(item, where, depth + 1) for item in data)
        fields = _as_dict(data, where)
        if len(fields) != 1:
            _fail(where, f"expected an object of one key, found {len(fields)}")
        ((kind, content),) = fields.items()
        if kind == "dense":
            return self._dense(_as_dict(content, where), where)
        if kind == "characters":
            codes = [_as_number(code, where) for code in _as_list(content, where)]
            if any(code > 0x10FFFF for code in codes):
                _fail(where, "a character is beyond 0x10ffff")
            return "".join(map(chr, codes))
        readers: dict[str, Any] = {
            "dtype": dtypes.by_name, "type": parse_type, "size": parse_size,
            "float": _read_float, "nan": _read_nan, "int": _read_int,
        }  # fmt: skip
        if kind not in readers:
            _fail(where, f"no attribute has the key {kind!r}")
        return cast(Attribute, self._read(readers[kind], _as_text(content, where), where))

    def _dense(self, fields: dict[str, Any], where: str) -> Dense:
        dtype = self._read(dtypes.by_name, _as_text(fields.get("dtype"), where), where)
        shape = tuple(_as_number(dim, where) for dim in _as_list(fields.get("shape"), where))
        data = _as_text(fields.get("data"), where)
        try:
            return dense_from_bytes(dtype, shape, data)
        except ParseError as error:
            _fail(where, str(error))


def _read_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ParseError("not a float") from None


def _read_nan(text: str) -> float:
    try:
        return float(struct.unpack(">d", bytes.fromhex(text))[0])
    except (ValueError, struct.error):
        raise ParseError("not the 16 hexadecimal digits of a float") from None


def _read_int(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        raise ParseError("not a hexadecimal number") from None
