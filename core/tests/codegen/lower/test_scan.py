"""Scans: eight elements meet the running result at once, lines lie side by side, long ones are cut into pieces."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.codegen import expand
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.pipeline import lower, prepare
from oarlock.dtypes import DType
from oarlock.ir.interpret import interpret

from .conftest import FUNCTIONS, THREADS, program, run_lowered, t

Check = Callable[..., list[KernelCall]]
FLAGS = [(False, False), (True, False), (False, True), (True, True)]


def operand(kind: str, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers whose running results are exact."""
    rng = np.random.default_rng(9)
    if kind == "prod":
        return rng.choice([1, 1, -1, 2], shape, p=[0.5, 0.3, 0.1, 0.1]).astype(dtype.numpy)
    return rng.integers(-3, 4, shape).astype(dtype.numpy)


@pytest.mark.parametrize(("reverse", "exclusive"), FLAGS)
@pytest.mark.parametrize("kind", ["sum", "prod"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((3, 21), 1), ((2, 9, 3), 1), ((2, 5, 3, 7), 1), ((11, 70), 0)],
    ids=str,
)
def test_lines_along_any_dimension(
    check: Check, shape: tuple[int, ...], axis: int, kind: str, reverse: bool, exclusive: bool
) -> None:
    check(
        [t(*shape)],
        lambda b, x: b("scan", x, kind=kind, axis=axis, reverse=reverse, exclusive=exclusive),
        [operand(kind, dtypes.float32, shape)],
        rtol=0,
        atol=0,
    )


@pytest.mark.parametrize(("reverse", "exclusive"), FLAGS)
@pytest.mark.parametrize("kind", ["sum", "max"])
@pytest.mark.parametrize("length", [65, 80, 95])
def test_long_lines_are_cut_anywhere(
    check: Check, monkeypatch: pytest.MonkeyPatch, length: int, kind: str, reverse: bool, exclusive: bool
) -> None:
    monkeypatch.setattr(expand, "SCAN_PIECE", 16)
    monkeypatch.setattr(expand, "SCAN_STRETCH", 16)
    for shape, axis in (((2, length), 1), ((length, 9), 0), ((length, 2), 0)):
        calls = check(
            [t(*shape)],
            lambda b, x, axis=axis: b("scan", x, kind=kind, axis=axis, reverse=reverse, exclusive=exclusive),
            [operand(kind, dtypes.float32, shape)],
            rtol=0,
            atol=0,
        )
        assert len(calls) == 3


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.int8, dtypes.uint64, dtypes.float64], ids=str)
def test_totals_of_pieces_are_as_wide_as_sums(check: Check, monkeypatch: pytest.MonkeyPatch, dtype: DType) -> None:
    monkeypatch.setattr(expand, "SCAN_PIECE", 16)
    monkeypatch.setattr(expand, "SCAN_STRETCH", 16)
    given = np.abs(operand("sum", dtype, (1, 100)))
    if dtype == dtypes.float16:
        given[:] = 0
        given[0, :32] = 2048  # the total of two pieces is 65536: more than the largest float16,
        given[0, 32:64] = -2048  # and here it comes back
    x = [given]
    check([t(1, 100, dtype=dtype)], lambda b, x: b("scan", x, kind="sum", axis=1, reverse=False, exclusive=False), x)


def test_missing_numbers_stay_missing(check: Check) -> None:
    x = np.zeros((2, 30), np.float32)
    x[0, 13], x[1, 3], x[1, 20] = np.nan, np.inf, -np.inf
    for kind in ("sum", "max"):
        check([t(2, 30)], lambda b, x, kind=kind: b("scan", x, kind=kind, axis=1, reverse=False, exclusive=False), [x])


def test_products_are_not_regrouped() -> None:
    x = np.full((1, 16), 1.0, np.float32)
    x[0, :4] = [1e-30, 1e-5, 1e25, 1e25]
    function = program([t(1, 16)], lambda b, x: b("scan", x, kind="prod", axis=1, reverse=False, exclusive=False))
    (got,), _ = run_lowered(function, [x], FUNCTIONS)
    np.testing.assert_allclose(got, interpret(function, [x])[0], rtol=1e-5)


def test_a_long_line_takes_three_passes_and_no_copies() -> None:
    function = program([t(1, 1 << 17)], lambda b, x: b("scan", x, kind="sum", axis=1, reverse=False, exclusive=False))
    for target in (FUNCTIONS, THREADS):
        calls = lower(prepare(function), target).calls
        assert [c.label for c in calls] == ["reduce_sum", "scan_sum", "scan_sum"]
