"""Extents: they compute as ints do, and other sizes are served exactly where every decision is the same."""

from __future__ import annotations

import math

import pytest

from oarlock.ir.extents import Extent, Extents, known, resolved


def holds(extents: Extents, **sizes: int) -> bool:
    return extents.evaluate(sizes) is not None


@pytest.mark.parametrize(
    "formula",
    [
        lambda n: n + 3, lambda n: 3 - n, lambda n: n * n, lambda n: 7 * n, lambda n: -(-n // 16), lambda n: n % 16,
        lambda n: 1000 // n, lambda n: divmod(n, 7)[1], lambda n: -n + n, lambda n: math.prod((n, 4, n)),
        lambda n: sum((n, n, 1)), lambda n: (n << 2) >> 1, lambda n: n & 7,
    ],
)  # fmt: skip
def test_arithmetic_is_done_again_for_other_sizes(formula: object) -> None:
    extents = Extents()
    value = formula(extents.symbol("n", 33))  # type: ignore[operator]
    assert value == formula(33)  # type: ignore[operator]
    extents.guards.clear()
    for n in (1, 33, 257):
        values = extents.evaluate({"n": n})
        assert values is not None and resolved((value, "text", 5), values) == (formula(n), "text", 5)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("decide", "alike", "other"),
    [
        (lambda n: n > 32, [33, 100], [32, 1]),
        (lambda n: n >= 33, [33, 34], [32]),
        (lambda n: n < 64, [63, 0], [64]),
        (lambda n: n <= 33, [33, 1], [34]),
        (lambda n: n == 1, [0, 2, 33], [1]),
        (lambda n: n != 33, [33], [32, 34]),
        (lambda n: n % 16 == 0, [1, 15, 17], [16, 160]),
        (lambda n: max(n, 40), [33, 39], [41]),
        (lambda n: min(n, 40), [33, 39], [41]),
        (lambda n: bool(n), [1], [0]),
        (lambda n: n.bit_length(), [32, 63], [31, 64]),
        (lambda n: int(n), [33], [32, 34]),
        (lambda n: float(n), [33], [32]),
        (lambda n: str(n), [33], [32]),
        (lambda n: f"{n:4}", [33], [32]),
        (lambda n: n / 2, [33], [34]),
        (lambda n: n * 0.5, [33], [34]),
        (lambda n: n**2, [33], [34]),
        (lambda n: hash(n), [0, 33, 99], []),
        (lambda n: n == n + 0, [33, 34], []),
    ],
)  # fmt: skip
def test_decisions_are_guards(decide: object, alike: list[int], other: list[int]) -> None:
    extents = Extents()
    decide(extents.symbol("n", 33))  # type: ignore[operator]
    assert [n for n in (*alike, *other) if holds(extents, n=n)] == alike


def test_division_by_zero_is_no_program_of_this_kind() -> None:
    extents = Extents()
    n = extents.symbol("n", 4)
    assert 12 // n == 3
    assert not holds(extents, n=0)


def test_what_is_known_is_a_plain_int() -> None:
    extents = Extents()
    n = extents.symbol("n", 4)
    assert type(n + 1) is Extent and type(known(n)) is int and type(int(n)) is int and known("x") == "x"


def test_extents_of_two_compilations_are_never_equal() -> None:
    first, second = Extents().symbol("n", 4), Extents().symbol("n", 4)
    assert first != second and not (first == second)  # noqa: SIM201
    assert {first: 1}.get(second) is None and {first: 1}[first] == 1
