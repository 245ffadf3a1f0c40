"""The interpreter and the control dialect."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from oarlock.errors import IRError, ShapeError, UnsupportedError, VerifyError
from oarlock.ir import Context, Dialect, Evaluate, Interpreter, OpDefinition, Operation, interpret, parse, verify
from oarlock.ir.control import CONTROL
from oarlock.ir.interpret import Array

ALIVE: list[weakref.ref[Any]] = []


def _add(op: Operation, operands: Sequence[Array], interpreter: Interpreter) -> list[Array]:
    result = np.asarray(np.add(*operands))
    ALIVE.append(weakref.ref(result))
    return [result]


def _fill(op: Operation, operands: Sequence[Array], interpreter: Interpreter) -> list[Array]:
    attributes = interpreter.attributes(op)
    return [np.full(attributes["shape"], attributes["value"], np.int32)]  # type: ignore[arg-type]


def _count(op: Operation, operands: Sequence[Array], interpreter: Interpreter) -> list[Array]:
    gc.collect()
    return [np.asarray(sum(alive() is not None for alive in ALIVE), np.int32)]


def _define(name: str, function: Any, operands: int, **rest: Any) -> OpDefinition:
    return OpDefinition("t." + name, operands=operands, interfaces={Evaluate: Evaluate(function)}, **rest)


CONTEXT = Context(
    [
        Dialect(
            "t",
            1,
            [
                _define("add", _add, 2),
                _define("less", lambda op, x, i: [np.asarray(x[0] < x[1])], 2),
                _define("fill", _fill, 0, attributes={"shape": tuple, "value": int}),
                _define("count", _count, 0),
                _define("two", lambda op, x, i: [x[0], x[0]], 1),
                _define("wrong", lambda op, x, i: ["text"], 1),
                OpDefinition("t.mute", operands=1),
            ],
        ),
        CONTROL,
    ]
)
I = "tensor<int32>"  # noqa: E741


def function(parameters: str, body: str, extra: str = "") -> Operation:
    """The first function of a verified module."""
    text = f'builtin.module() {{ builtin.function() {{name = "main"}} {parameters} {{ {body} }} {extra} }}'
    module = parse(text, CONTEXT)
    verify(module)
    first = module.regions[0].block.first_op
    assert first is not None
    return first


def i(value: int) -> Array:
    return np.asarray(value, np.int32)


def test_function_gives_its_results_in_order() -> None:
    f = function(f"(%x: {I}, %y: {I})", f"%z = t.add(%x, %y) : ({I}, {I}) -> {I} builtin.return(%z, %x)")
    assert [int(r) for r in interpret(f, [i(2), i(3)])] == [5, 2]


def test_symbols_come_from_arguments() -> None:
    f = function(
        "(%x: tensor<(n)x2xfloat32>)",
        "%z = t.fill() {shape = [size<(n + 1)>, 2], value = 7} : () -> tensor<(n + 1)x2xint32> builtin.return(%z)",
    )
    (result,) = interpret(f, [np.zeros((3, 2), np.float32)])
    np.testing.assert_array_equal(result, np.full((4, 2), 7))


def test_symbols_that_disagree_are_refused() -> None:
    f = function("(%x: tensor<(n)x(n)xint32>)", "builtin.return(%x)")
    with pytest.raises(ShapeError, match="size n is 2 and 3"):
        interpret(f, [np.zeros((2, 3), np.int32)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([i(1)], "main takes 2 arguments; got 1"),
        ([i(1), np.float32(1)], r"argument 1 of main should be int32 \(\); it is float32 \(\)"),
        ([i(1), np.zeros(1, np.int32)], r"argument 1 of main should be int32 \(\); it is int32 \(1,\)"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        interpret(function(f"(%x: {I}, %y: {I})", "builtin.return(%x)"), arguments)


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (f"%z = t.mute(%x) : ({I}) -> {I}", UnsupportedError, "t.mute cannot be interpreted"),
        (f"%z, %w = t.wrong(%x) : ({I}) -> ({I}, {I})", VerifyError, "2 results"),
        (f"%z = t.wrong(%x) : ({I}) -> {I}", IRError, "a result of t.wrong is no array"),
        (f"%z = t.two(%x) : ({I}) -> {I}", IRError, "t.two gave 2 results, not 1"),
        (
            f"%z = t.less(%x, %x) : ({I}, {I}) -> {I}",
            ShapeError,
            r"a result of t.less should be int32 \(\); it is bool",
        ),
    ],
)
def test_wrong_operations_are_named(body: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        interpret(function(f"(%x: {I})", f"{body} builtin.return(%x)"), [i(1)])


def test_failure_notes_operation_and_location() -> None:
    f = function(f"(%x: {I})", f'%z = t.two(%x) : ({I}) -> {I} at "model.py:7" builtin.return(%z)')
    with pytest.raises(IRError) as caught:
        interpret(f, [i(1)])
    assert caught.value.__notes__ == ["while interpreting t.two (model.py:7)"]


def test_values_are_freed_after_their_last_use() -> None:
    chain = [f"%v{n + 1} = t.add(%v{n}, %v{n}) : ({I}, {I}) -> {I}" for n in range(20)]
    body = "\n".join([*chain, f"%alive = t.count() : () -> {I} builtin.return(%v20, %alive)"])
    result, alive = interpret(function(f"(%v0: {I})", body), [i(1)])
    assert (int(result), int(alive)) == (1 << 20, 1)


# --- control flow ----------------------------------------------------------------------------------------------------

LOOP = f"""
  %zero = t.fill() {{shape = [], value = 0}} : () -> {I}
  %one = t.fill() {{shape = [], value = 1}} : () -> {I}
  %k, %sum = control.while(%zero, %zero) : ({I}, {I}) -> ({I}, {I}) (%k: {I}, %sum: {I}) {{
    %more = t.less(%k, %n) : ({I}, {I}) -> tensor<bool>
    control.yield(%more)
  }} (%k: {I}, %sum: {I}) {{
    %next = t.add(%k, %one) : ({I}, {I}) -> {I}
    %more = t.add(%sum, %next) : ({I}, {I}) -> {I}
    control.yield(%next, %more)
  }}
  builtin.return(%sum)
"""


@pytest.mark.parametrize("n", [0, 1, 10])
def test_while_repeats_its_body(n: int) -> None:
    (result,) = interpret(function(f"(%n: {I})", LOOP), [i(n)])
    assert int(result) == n * (n + 1) // 2


def test_if_takes_one_region() -> None:
    f = function(
        f"(%x: {I}, %y: {I})",
        f"""
        %c = t.less(%x, %y) : ({I}, {I}) -> tensor<bool>
        %r = control.if(%c) : (tensor<bool>) -> {I} {{ control.yield(%y) }} {{
          %bad = t.add(%x, %x) : ({I}, {I}) -> {I}
          control.yield(%bad)
        }}
        builtin.return(%r)""",
    )
    assert int(interpret(f, [i(1), i(2)])[0]) == 2
    assert int(interpret(f, [i(3), i(2)])[0]) == 6


def test_call_recurses() -> None:
    f = function(
        f"(%n: {I})",
        f"""
        %one = t.fill() {{shape = [], value = 1}} : () -> {I}
        %c = t.less(%n, %one) : ({I}, {I}) -> tensor<bool>
        %r = control.if(%c) : (tensor<bool>) -> {I} {{ control.yield(%n) }} {{
          %minus = t.fill() {{shape = [], value = -1}} : () -> {I}
          %m = t.add(%n, %minus) : ({I}, {I}) -> {I}
          %s = control.call(%m) {{callee = "main"}} : ({I}) -> {I}
          %t = t.add(%s, %n) : ({I}, {I}) -> {I}
          control.yield(%t)
        }}
        builtin.return(%r)""",
    )
    assert int(interpret(f, [i(10)])[0]) == 55


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("control.if(%n) {control.yield()} {control.yield()}", "the condition is tensor<int32>, not tensor<bool>"),
        ("control.if(%c) {control.yield()} {^0:}", "the else region does not end in control.yield"),
        ("control.if(%c) {control.yield(%n)} {control.yield()}", "the then region yields (tensor<int32>), not ()"),
        (f"control.if(%c) (%a: {I}) {{control.yield()}} {{control.yield()}}", "then region takes (tensor<int32>)"),
        ("control.if(%c) {} {control.yield()}", "IRError: region has 0 blocks, not one"),
        (f"%r = control.while() : () -> {I} {{control.yield(%c)}} {{control.yield()}}", "not as the operands ()"),
        ("control.while() {control.yield(%n)} {control.yield()}", "the condition region yields (tensor<int32>)"),
        ('control.call(%n) {callee = "g"}', "the module around it has no function 'g'"),
        ('control.call(%c) {callee = "main"}', "arguments are (tensor<bool>), not (tensor<int32>, tensor<bool>)"),
        ('control.call(%n, %c) {callee = "main"}', "results are (), not (tensor<int32>)"),
    ],
)  # fmt: skip
def test_broken_control_flow_is_refused(body: str, message: str) -> None:
    with pytest.raises(VerifyError) as caught:
        function(f"(%n: {I}, %c: tensor<bool>)", f"{body} builtin.return(%n)")
    assert message in str(caught.value)


def test_call_without_module_is_refused() -> None:
    with pytest.raises(VerifyError, match="has no function 'f'"):
        verify(parse('builtin.function() {name = "f"} { control.call() {callee = "f"} builtin.return() }', CONTEXT))
