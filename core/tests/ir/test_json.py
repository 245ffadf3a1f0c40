"""The JSON form: versions, patches, and what its errors say."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.errors import IRError, ParseError
from oarlock.ir import Context, Dense, Dialect, OpDefinition, parse
from oarlock.ir.json import from_json, operations_in, to_json

ANY = OpDefinition("t.op", operands=None, results=None, regions=None)
CONTEXT = Context([Dialect("t", 2, [ANY])])
TEXT = """\
t.op() (%x: tensor<4xfloat32>) {
  %y = t.op(%x) {f = 1.5, d = dense<2xint16: [1, -1]>, t = [1, none]} : (tensor<4xfloat32>) -> tensor<(n)xbool>
} at "here"
"""


def document() -> dict[str, Any]:
    return to_json(parse(TEXT, CONTEXT), CONTEXT)


def test_document_has_this_form() -> None:
    assert document() == {
        "oarlock": 1,
        "dialects": {"t": 2},
        "operation": {
            "name": "t.op",
            "location": "here",
            "regions": [
                [
                    {
                        "arguments": [{"id": 0, "type": "tensor<4xfloat32>", "name": "x"}],
                        "operations": [
                            {
                                "name": "t.op",
                                "operands": [0],
                                "attributes": {
                                    "d": {"dense": {"dtype": "int16", "shape": [2], "data": "AQD//w=="}},
                                    "f": {"float": "1.5"},
                                    "t": [1, None],
                                },
                                "results": [{"id": 1, "type": "tensor<(n)xbool>", "name": "y"}],
                            }
                        ],
                    }
                ]
            ],
        },
    }


@pytest.mark.parametrize(
    "value",
    [math.inf, -math.inf, math.nan, -0.0, 5e-324, 1 << 63, -(1 << 200), "\ud83d\ude00", "😀", "\ud800", True, 1],
)
def test_awkward_attributes_survive_the_json_module(value: Any) -> None:
    op = parse("t.op()", CONTEXT)
    op.attributes["a"] = value
    again = from_json(json.loads(json.dumps(to_json(op, CONTEXT), allow_nan=False)), CONTEXT).attributes["a"]
    assert type(again) is type(value)
    assert repr(again) == repr(value)


def test_dense_bytes_are_little_endian_and_own_their_memory() -> None:
    op = parse("t.op()", CONTEXT)
    op.attributes["a"] = Dense(np.array([1, 2], ">u4"))
    data = to_json(op, CONTEXT)
    assert data["operation"]["attributes"]["a"]["dense"]["data"] == "AQAAAAIAAAA="
    assert from_json(data, CONTEXT).attributes["a"] == op.attributes["a"]


def test_operand_from_outside_is_refused() -> None:
    inner = next(parse(TEXT, CONTEXT).regions[0].block.ops)
    with pytest.raises(IRError, match=r"t\.op uses a tensor<4xfloat32> from outside"):
        to_json(inner, CONTEXT)


# --- versions --------------------------------------------------------------------------------------------------------


def _rename(old: str, new: str) -> Any:
    def patch(data: dict[str, Any]) -> None:
        for operation in operations_in(data):
            if operation["name"] == old:
                operation["name"] = new

    return patch


def test_patches_bring_old_documents_up_to_date_one_version_at_a_time() -> None:
    final = Context([Dialect("t", 4, [ANY], {2: _rename("t.first", "t.second"), 3: _rename("t.second", "t.op")})])
    old = document()
    old["operation"]["name"] = "t.first"
    old["operation"]["regions"][0][0]["operations"][0]["name"] = "t.second"
    untouched = copy.deepcopy(old)
    assert [op.name for op in from_json(old, final).walk()] == ["t.op", "t.op"]
    assert old == untouched


def test_newer_document_is_refused_with_both_versions() -> None:
    data = document()
    data["dialects"]["t"] = 3
    with pytest.raises(ParseError, match="document has version 3 of dialect t; version 2 is installed"):
        from_json(data, CONTEXT)


def test_version_without_patch_is_refused() -> None:
    data = document()
    data["dialects"]["t"] = 1
    with pytest.raises(ParseError, match="dialect t cannot read its version 1: no patch from version 1"):
        from_json(data, CONTEXT)


def test_failing_patch_is_named() -> None:
    def patch(data: dict[str, Any]) -> None:
        raise KeyError("gone")

    with pytest.raises(ParseError, match=r"dialect t: patch from version 2 failed: KeyError\('gone'\)"):
        from_json(document(), Context([Dialect("t", 3, [ANY], {2: patch})]))


def test_missing_dialect_is_named() -> None:
    with pytest.raises(ParseError, match="no dialect 't': a plugin is missing; there are builtin"):
        from_json(document(), Context())


def _set(*path: Any) -> Any:
    """A change of the document: everything but the last is a path, the last the new value."""

    def change(data: Any) -> None:
        for key in path[:-2]:
            data = data[key]
        data[path[-2]] = path[-1]

    return change


INNER = ("operation", "regions", 0, 0, "operations", 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("oarlock", 2), "document has format 2; this is Oarlock with format 1"),
        (_set("dialects", {}), "the document gives no version for the dialect of t.op"),
        (_set("dialects", {"t": "2"}), "dialect t: '2' is no version"),
        (_set("dialects", []), "dialects: expected an object, found a list"),
        (_set(*INNER, "name", "t.gone"), "operations[0]: dialect t (version 2) has no operation t.gone"),
        (_set(*INNER, "extra", 1), "an operation has no 'extra'"),
        (_set(*INNER, "operands", [7]), "operation.regions[0][0].operations[0].operands: value 7 is not defined above"),
        (_set(*INNER, "operands", [True]), "expected a number, found True"),
        (_set(*INNER, "results", 0, "id", 0), "value 0 is defined twice"),
        (_set(*INNER, "results", 0, "type", "tensor<4xint7>"), "no data type 'int7'"),
        (_set(*INNER, "attributes", "f", 1.5), "operations[0].attributes.f: expected an object, found 1.5"),
        (_set(*INNER, "attributes", "f", {"float": "x"}), "'x': not a float"),
        (_set(*INNER, "attributes", "f", {"nan": "00"}), "not the 16 hexadecimal digits of a float"),
        (_set(*INNER, "attributes", "f", {"int": "zz"}), "not a hexadecimal number"),
        (_set(*INNER, "attributes", "f", {"dtype": "int7"}), "no data type 'int7'"),
        (_set(*INNER, "attributes", "f", {"pickle": ""}), "no attribute has the key 'pickle'"),
        (_set(*INNER, "attributes", "f", {"characters": [1 << 40]}), "a character is beyond 0x10ffff"),
        (_set(*INNER, "attributes", "d", "dense", "shape", [1 << 40]), "takes 2199023255552 bytes"),
        (_set(*INNER, "attributes", "d", "dense", "shape", [-1]), "expected a number, found -1"),
        (_set(*INNER, "attributes", "d", "dense", "data", "AQD//w=!"), "dense of int16 (2,)"),
        (_set("operation", "regions", [{}]), "operation.regions[0]: expected a list, found an object"),
        (_set("operation", None), "operation: expected an object, found None"),
    ],
)
def test_broken_document_says_where_and_what(change: Any, message: str) -> None:
    data = document()
    change(data)
    with pytest.raises(ParseError) as caught:
        from_json(data, CONTEXT)
    assert message in str(caught.value)


@pytest.mark.parametrize("nested", ["regions", "attributes"])
def test_deep_documents_are_refused(nested: str) -> None:
    deep: Any = {"name": "t.op"} if nested == "regions" else 1
    for _ in range(10_000):
        deep = {"name": "t.op", "regions": [[{"operations": [deep]}]]} if nested == "regions" else [deep]
    data = document()
    data["operation"] = deep if nested == "regions" else {"name": "t.op", "attributes": {"a": deep}}
    with pytest.raises(ParseError, match="nested too deeply"):
        from_json(data, CONTEXT)
    for change in (data, [data], None, 1):
        with pytest.raises(ParseError):
            from_json(change, Context([Dialect("t", 3, [ANY], {2: lambda data: None})]))


def test_every_dtype_survives() -> None:
    for dtype in dtypes.ALL:
        op = parse("t.op()", CONTEXT)
        op.attributes["a"] = Dense(np.ones((2, 3), dtype.numpy))
        assert from_json(to_json(op, CONTEXT), CONTEXT).attributes["a"] == op.attributes["a"]
