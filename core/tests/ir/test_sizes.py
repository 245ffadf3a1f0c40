"""Symbolic sizes: arithmetic, simplification, evaluation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oarlock.errors import ShapeError
from oarlock.ir import Size, evaluate, symbol
from oarlock.ir.sizes import maximum, minimum

N, M = symbol("n"), symbol("m")
OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(OPERATORS)), st.sampled_from([N, M, 0, 1, 2, 7, -3])), max_size=6))
def test_arithmetic_agrees_with_numbers(steps: list[tuple[str, int | Size]]) -> None:
    values = {"n": 12, "m": 5}
    size: int | Size = N
    number = 12
    for operator, operand in steps:
        other = evaluate(operand, values)
        if operator in ("//", "%") and other == 0:
            continue
        size = OPERATORS[operator](size, operand)
        number = OPERATORS[operator](number, other)
    assert evaluate(size, values) == number


def test_neutral_elements_vanish() -> None:
    assert N + 0 == N and 0 + N == N and N - 0 == N and N * 1 == N and 1 * N == N and N // 1 == N and N - N == 0
    assert N * 0 == 0 and N % 1 == 0


def test_equal_expressions_are_equal() -> None:
    assert (N + 1) * M == (N + 1) * M
    assert hash((N + 1) * M) == hash((N + 1) * M)
    assert 2 * N - 1 != N and N * M == M * N and N + M == M + N and 3 * N - N == 2 * N
    assert (N * 12) // 4 == 3 * N and (4 * N + 8) // 4 == N + 2 and (N * 12) % 4 == 0 and (N * 2) // 4 != N
    assert maximum(N, N) == N and minimum(3, 4) == 3 and maximum(3, 4) == 4 and evaluate(minimum(N, 4), {"n": 9}) == 4


def test_sizes_read_well() -> None:
    sizes = [1 + N, N - 1, 1 - N, -1 * N, (N + 1) * 2, M * N * 3, N + M + 2, N - 2 * M, N // 2 + 1, maximum(N, 4) % 3]
    assert ", ".join(map(str, sizes)) == (
        "(n + 1), (n - 1), (1 - n), (n * -1), ((n + 1) * 2), (m * n * 3), (m + n + 2), (n - (m * 2)), "
        "((n // 2) + 1), (max(n, 4) % 3)"
    )
    assert (N + 1) + 2 == N + 3 and (N + 1) - 1 == N and 1 + N == N + 1 and 2 * N == N * 2


def test_errors_name_the_size() -> None:
    with pytest.raises(ShapeError, match="size n has no value; there are m"):
        evaluate(N + 1, {"m": 1})
    with pytest.raises(ShapeError, match="divides by zero: 4 // 0"):
        evaluate(N // M, {"n": 4, "m": 0})
    with pytest.raises(ShapeError, match="cannot name a size"):
        symbol("a b")
