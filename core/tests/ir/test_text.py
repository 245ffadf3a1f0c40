"""The text form: what it looks like, and what its errors say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.errors import ParseError
from oarlock.ir import (
    Block,
    Builder,
    Context,
    Dense,
    Dialect,
    OpDefinition,
    Operation,
    Region,
    TensorType,
    parse,
    print_op,
    symbol,
)
from oarlock.ir.attribute_parser import parse_size, parse_type
from oarlock.ir.printer import attribute_text

CONTEXT = Context([Dialect("t", 1, [OpDefinition("t.op", operands=None, results=None, regions=None)])])
F4 = TensorType(dtypes.float32, (4,))

PROGRAM = """\
builtin.module() {
  builtin.function() {name = "main"} (%x: tensor<4xfloat32>, %0: tensor<(n)x4xfloat32>) {
    %y, %"/conv 1" = t.op(%x, %x) {axis = 1} : (tensor<4xfloat32>, tensor<4xfloat32>) -> (tensor<int8>, scalar<bool>)
    %x#1 = t.op(%y) : (tensor<int8>) -> tensor<int8> {
    ^0 (%1: tensor<int8>):
      t.op(%1)
    ^1:
    } {}
    t.op() {
    ^0:
    }
    builtin.return(%x#1)
  }
}"""


def test_program_prints_as_it_was_read() -> None:
    module = parse(PROGRAM, CONTEXT)
    assert print_op(module) == PROGRAM
    assert str(module) == PROGRAM
    regions = [op for op in module.walk() if op.name == "t.op"][1].regions
    assert [len(region.blocks) for region in regions] == [2, 0]


def test_comments_and_layout_do_not_matter() -> None:
    text = '  # first\n builtin.function( ){ # name\n"name"="f"}{builtin.return()}  # last'
    assert print_op(parse(text, CONTEXT)) == 'builtin.function() {name = "f"} {\n  builtin.return()\n}'


def test_print_without_regions_shows_first_line() -> None:
    assert print_op(parse(PROGRAM, CONTEXT), regions=False) == "builtin.module() {...}"


def test_print_names_values_from_outside() -> None:
    block = Block([F4, F4])
    op = Builder(CONTEXT, block).create("t.op", block.args, {}, [F4])
    kind = "tensor<4xfloat32>"
    assert str(op) == f"%2 = t.op(%0, %1) : ({kind}, {kind}) -> {kind}"


def test_locations_print_when_asked() -> None:
    op = Operation(CONTEXT.definition("t.op"), location='a "b".py:3')
    assert print_op(op) == "t.op()"
    assert print_op(op, locations=True) == 't.op() at "a \\"b\\".py:3"'
    assert parse(print_op(op, locations=True), CONTEXT).location == op.location


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (True, "true"),
        (1, "1"),
        (-(1 << 64), "-0x10000000000000000"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (1e300, "1e+300"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        ('a"\n\u2028é', '"a\\"\\n\\u{2028}é"'),
        (((), (1, (2.5,))), "[[], [1, [2.5]]]"),
        (dtypes.bfloat16, "bfloat16"),
        (F4, "tensor<4xfloat32>"),
        (symbol("n") * 2, "size<(n * 2)>"),
        (Dense(np.array([[True, False]])), "dense<1x2xbool: [true, false]>"),
        (Dense(np.array(0.1, np.float32)), "dense<float32: [0.1]>"),
        (Dense(np.array([0.5, -0.0, np.nan, np.inf], np.float16)), "dense<4xfloat16: [0.5, -0.0, nan, inf]>"),
        (Dense(np.array(0.1, np.float16)), "dense<float16: [0.0999755859375]>"),
        (Dense(np.arange(17, dtype=np.int8)), 'dense<17xint8: "AAECAwQFBgcICQoLDA0ODxA=">'),
        (Dense(np.zeros((0, 3), np.uint64)), "dense<0x3xuint64: []>"),
    ],
)  # fmt: skip
def test_attribute_has_this_form(value: object, text: str) -> None:
    assert attribute_text(value) == text  # type: ignore[arg-type]
    again = parse(f"t.op() {{a = {text}}}", CONTEXT).attributes["a"]
    assert type(again) is type(value)
    assert attribute_text(again) == text


def test_dense_of_foreign_byte_order_is_equal() -> None:
    assert Dense(np.array([1, 2], ">i4")) == Dense(np.array([1, 2], "<i4"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: expected an operation (dialect.name), found the end of the text"),
        ("t.op", "line 1, column 5: expected '(', found the end of the text"),
        ("t.op()\n  t.op()", "line 2, column 3: expected end of text, found 't.op()'"),
        ("t.op(%x)", "line 1, column 6: %x is not defined above"),
        ("t.op() {a = }", "column 13: expected an attribute, found '}'"),
        ("t.op() {a = float31}", "no data type 'float31'; there are bool, int8"),
        ('t.op() {a = "x}', "column 13: expected a string in quotes"),
        ('t.op() {a = "\\q"}', "no escape '\\\\q'"),
        ("t.op() {a = [1 2]}", "expected ',' or ']', found '2]}'"),
        ("nope.op()", "no dialect 'nope' (for nope.op): a plugin is missing; there are builtin, t"),
        ("t.nope()", "dialect t (version 1) has no operation t.nope"),
        ("%a = t.op()", "1 names for 0 results"),
        ("%a, %b = t.op() : () -> tensor<int8>", "2 names for 1 results"),
        ("t.op() {%a = t.op() : () -> tensor<4xint8> %a = t.op() : () -> tensor<int8>}", "%a is defined twice"),
        ("t.op() {%a = t.op() : () -> tensor<int8>} {t.op(%a) : (tensor<int8>) -> ()}", "%a is not defined above"),
        ("t.op() (%a: tensor<int8>) {t.op(%a) : (tensor<int4>) -> ()}", "no data type 'int4'"),
        ("t.op() (%a: tensor<int8>) {t.op(%a) : (tensor<bool>) -> ()}", "are (tensor<int8>), not (tensor<bool>)"),
        ("t.op() (%a: list<int8>) {}", "expected a type"),
        ("t.op() {a = dense<3xint8: [1, 2]>}", "dense of int8 (3,) takes 3 values; got 2"),
        ("t.op() {a = dense<1xint8: [300]>}", "dense of int8"),
        ("t.op() {a = dense<1xint8: [1.5]>}", "dense of int8: a value is not int"),
        ('t.op() {a = dense<99999999x99999999xint8: "AAAA">}', "takes 9999999800000001 bytes in base64; got 4"),
        ('t.op() {a = dense<3xint8: "A*AA">}', "dense of int8 (3,)"),
        ("t.op() {a = size<(n ** 2)>}", "expected a size"),
        ("t.op() {a = size<(n + 1 * 2)>}", "or parentheses around unlike ones, found '* 2)>}'"),
        ("t.op() {a = size<(n // 2 // 2)>}", "or parentheses around unlike ones, found '// 2)>}'"),
        ("t.op() {a = buffer<int8, far, read>}", "no memory space far"),
        ("t.op() " + "{t.op() " * 100, "nested too deeply"),
        ("t.op() {a = " + "[" * 200, "nested too deeply"),
        ("t.op() {a = size<" + "(" * 200, "nested too deeply"),
        ("t.op() {a = " + "9" * 10000 + "}", "column 13"),
    ],
)  # fmt: skip
def test_broken_text_says_where_and_what(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text, CONTEXT)
    assert message in str(caught.value)


def test_size_and_type_alone() -> None:
    assert parse_size("max((n + 1), 4)") == parse_size(str(parse_size("max((n + 1), 4)")))
    assert parse_type("tensor<(x4)x3xbool>") == TensorType(dtypes.bool_, (symbol("x4"), 3))
    with pytest.raises(ParseError, match="expected end of text"):
        parse_type("tensor<3xbool>>")


def test_long_sums_are_read_without_nesting() -> None:
    size = symbol("n0") + 0
    for number in range(1, 300):
        size = size + symbol(f"n{number}")
    assert parse_size(str(size)) == size


def test_unused_results_may_be_many() -> None:
    block = Block()
    Builder(CONTEXT, block).create("t.op", (), {}, [F4] * 3)
    op = Operation(CONTEXT.definition("t.op"), regions=[Region([block])])
    assert "%0, %1, %2 = t.op() : () -> (" in print_op(op)
