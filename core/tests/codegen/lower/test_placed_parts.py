"""Parts of a concatenation are stored in it by whoever computes them; where one cannot be, nothing is copied twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oarlock.codegen import packing
from oarlock.ir.interpret import interpret
from oarlock.target import Target

from .conftest import FUNCTIONS, TARGETS, THREADS, assert_close, program, random_operands, run_lowered, t


def rotary(b: Any, x: Any, cosine: Any, sine: Any) -> Any:
    """The rotary embedding of rows of 16."""
    low, high = (_columns(b, x, start) for start in (0, 8))
    first = b("subtract", b("multiply", low, cosine), b("multiply", high, sine))
    second = b("add", b("multiply", low, sine), b("multiply", high, cosine))
    return b("concat", first, second, axis=2)


def _columns(b: Any, x: Any, start: int) -> Any:
    return b("slice", x, starts=(0, 0, start), limits=(2, 5, start + 8), steps=(1, 1, 1))


ROTARY = [t(2, 5, 16), t(5, 8), t(5, 8)]


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_rotary_embedding_is_right_everywhere(target: Target) -> None:
    function = program(ROTARY, rotary)
    given = random_operands(ROTARY)
    got, _ = run_lowered(function, given, target)
    assert_close(got, interpret(function, given), 1e-6, 1e-6)


@pytest.mark.parametrize("target", [FUNCTIONS, THREADS], ids=["functions", "threads"])
def test_rotary_embedding_is_one_kernel(target: Target) -> None:
    _, calls = run_lowered(program(ROTARY, rotary), random_operands(ROTARY), target)
    assert [len(call.buffers) for call in calls] == [4]
    assert calls[0].outputs == 1


PLACES: dict[str, tuple[int, Callable[..., Any], int]] = {
    "first_axis": (0, lambda b, x, y: [b("exp", x), b("negative", y)], 1),
    "middle_axis": (1, lambda b, x, y: [b("exp", x), b("negative", y)], 1),
    "last_axis": (2, lambda b, x, y: [b("negative", y), b("exp", x)], 1),
    "other_sizes": (1, lambda b, x, y: [b("exp", x), b("negative", b("concat", y, x, axis=1))], 2),
    "argument_is_copied": (1, lambda b, x, y: [x, b("exp", y)], 1),
    "transposed_is_copied": (1, lambda b, x, y: [b("exp", y), b("reverse", x, axes=(2,))], 1),
    "two_arguments": (1, lambda b, x, y: [x, b("exp", y), y], 2),
    "same_twice": (2, lambda b, x, y: 2 * [b("exp", x)], 2),
    "constant": (1, lambda b, x, y: [b("exp", x), b.full(3, x)], 1),
}
"""An axis, the parts, and how many kernels there are."""


@pytest.mark.parametrize("target", [FUNCTIONS, THREADS], ids=["functions", "threads"])
@pytest.mark.parametrize("name", PLACES)
def test_parts_stand_where_they_belong(name: str, target: Target) -> None:
    axis, parts, count = PLACES[name]
    types = [t(2, 3, 9), t(2, 3, 9)]
    function = program(types, lambda b, x, y: b("concat", *parts(b, x, y), axis=axis))
    given = random_operands(types)
    got, calls = run_lowered(function, given, target)
    assert_close(got, interpret(function, given), 1e-6, 1e-6)
    assert len(calls) == count


def test_what_others_read_is_copied() -> None:
    types = [t(4, 9), t(4, 9)]

    def body(b: Any, x: Any, y: Any) -> Any:
        left, right = b("exp", x), b("negative", y)
        joined = b("concat", left, right, axis=1)
        return (
            joined,
            b("reduce_sum", left, axes=(0,), keepdims=False),
            b("reduce_max", joined, axes=(1,), keepdims=True),
        )

    function = program(types, body)
    given = random_operands(types)
    got, _ = run_lowered(function, given, FUNCTIONS)
    assert_close(got, interpret(function, given), 1e-5, 1e-5)


@pytest.mark.parametrize("axis", [0, 1])
def test_products_store_parts(axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "LEAST", 8)
    types = [t(13, 9), t(9, 17), t(9, 17)]

    def body(b: Any, x: Any, v: Any, w: Any) -> Any:
        products = [b("dot_general", x, m, batch=((), ()), contract=((1,), (0,)), dtype=types[0].dtype) for m in (v, w)]
        return b("concat", b("exp", products[0]), b("negative", products[1]), axis=axis)

    function = program(types, body)
    given = random_operands(types)
    got, calls = run_lowered(function, given, FUNCTIONS)
    assert_close(got, interpret(function, given), 1e-5, 1e-5)
    assert not any("concat" in call.label for call in calls)


def test_groups_of_one_structure_at_different_places_are_told_apart() -> None:
    types = [t(4, 9), t(4, 9)]

    def body(b: Any, x: Any, y: Any) -> Any:
        first = b("concat", b("exp", x), b("negative", y), axis=1)
        second = b("concat", b("negative", x), b("exp", y), axis=1)
        return first, second, b("concat", b("exp", y), b("exp", x), axis=0)

    function = program(types, body)
    given = random_operands(types)
    got, _ = run_lowered(function, given, FUNCTIONS)
    assert_close(got, interpret(function, given), 1e-6, 1e-6)


@pytest.mark.parametrize(
    ("widths", "axis", "target", "label"),
    [
        ((16, 16), 1, FUNCTIONS, "copy_copy"),
        ((16, 15), 1, FUNCTIONS, "concat"),
        ((16, 16), 1, THREADS, "concat"),
        ((16, 16), 0, FUNCTIONS, "concat"),
        ((16,) * 5, 1, FUNCTIONS, "concat"),
    ],
    ids=["long", "short", "threads", "other axis", "many"],
)
def test_long_parts_that_lie_side_by_side_are_copied(
    widths: tuple[int, ...], axis: int, target: Target, label: str
) -> None:
    """Each as vectors, where neighbours in the result would come from several operands."""
    types = [t(7, width) for width in widths]
    function = program(types, lambda b, *parts: b("concat", *parts, axis=axis))
    given = random_operands(types)
    got, (call,) = run_lowered(function, given, target)
    assert_close(got, interpret(function, given), 0, 0)
    assert call.label == label
