"""Many short rows are sorted side by side, one in each lane: as the reference sorts, by values and positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.codegen.lower.network import chunk_of
from oarlock.dtypes import DType
from oarlock.ir import Operation, Value
from oarlock.ir.interpret import interpret
from oarlock.ops import ArrayBuilder

from .conftest import FUNCTIONS, THREADS, TIGHT, program, run_lowered, t
from .test_radix import KEYS, keys


def same(got: Sequence[np.ndarray], function: Operation, given: Sequence[np.ndarray], signs: bool) -> None:
    """``got`` is what the reference gives, ``signs``: of zeros too."""
    for mine, expected in zip(got, interpret(function, given), strict=True):
        assert mine.dtype == expected.dtype
        real = np.dtype(np.float64) if mine.dtype.kind not in "biu" else mine.dtype
        np.testing.assert_array_equal(mine.astype(real), expected.astype(real))
        if signs and real.kind == "f":
            numbers = ~np.isnan(expected.astype(real))
            np.testing.assert_array_equal(np.signbit(mine)[numbers], np.signbit(expected)[numbers])


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", KEYS, ids=str)
def test_every_dtype_is_sorted_as_the_reference_sorts(dtype: DType, descending: bool) -> None:
    given = [keys(dtype, (9, 21))]
    both = program(
        [t(9, 21, dtype=dtype)], lambda b, x: b.many("sort", x, axis=1, descending=descending, dtype=dtypes.int64)
    )
    got, calls = run_lowered(both, given, FUNCTIONS)
    assert "sort_rows" in {call.label for call in calls}
    same(got, both, given, signs=True)
    one = program([t(9, 21, dtype=dtype)], lambda b, x: b.many("sort", x, axis=1, descending=descending)[0])
    got, calls = run_lowered(one, given, FUNCTIONS)
    assert [len(call.buffers) for call in calls] == [2]  # no positions
    same(got, one, given, signs=False)


@pytest.mark.parametrize("length", [2, 3, 5, 8, 9, 16, 17, 33, 64, 65, 129])
def test_every_length_is_sorted(length: int) -> None:
    rng = np.random.default_rng(length)
    given = [rng.integers(0, length, (11, length)).astype(np.float32)]  # some rows beyond a whole vector, many ties
    function = program([t(11, length)], lambda b, x: list(b.many("sort", x, axis=1)))
    got, _ = run_lowered(function, given, FUNCTIONS)
    same(got, function, given, signs=True)


@pytest.mark.parametrize(("shape", "axis"), [((12, 9), 0), ((3, 10, 4), 1), ((17, 1, 6), 2)], ids=str)
def test_rows_lie_along_any_dimension(shape: tuple[int, ...], axis: int) -> None:
    given = [keys(dtypes.float32, shape)]
    function = program([t(*shape)], lambda b, x: list(b.many("sort", x, axis=axis, descending=True)))
    got, calls = run_lowered(function, given, FUNCTIONS)
    assert [call.label for call in calls] == ["sort_rows"]
    same(got, function, given, signs=True)


def test_views_are_sorted_where_they_lie() -> None:
    given = [keys(dtypes.float32, (12, 40))]

    def body(b: ArrayBuilder, x: Value) -> list[Value]:
        return list(b.many("sort", b("reverse", b("transpose", x, permutation=(1, 0)), axes=(1,)), axis=1))

    function = program([t(12, 40)], body)
    got, calls = run_lowered(function, given, FUNCTIONS)
    assert len(calls) == 1
    same(got, function, given, signs=True)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 8, 15, 16, 17, 70])
def test_the_first_ones_are_those_of_the_sort(k: int, largest: bool) -> None:
    given = [keys(dtypes.float32, (10, 70))]
    given[0][3, 5:] = np.nan  # fewer numbers than are asked for
    given[0][4] = 0.0  # fewer distinct values than are asked for
    given[0][4, ::2] = -0.0
    given[0][5] = np.inf
    function = program([t(10, 70)], lambda b, x: list(b.many("top_k", x, axis=1, k=k, largest=largest)))
    got, calls = run_lowered(function, given, FUNCTIONS)
    assert [call.label for call in calls] == ["select_rows" if k <= 16 else "sort_rows"]
    same(got, function, given, signs=True)
    one = program([t(10, 70)], lambda b, x: b.many("top_k", x, axis=1, k=k, largest=largest)[0])
    got, _ = run_lowered(one, given, FUNCTIONS)
    same(got, one, given, signs=False)


@pytest.mark.parametrize("dtype", KEYS, ids=str)
def test_the_first_ones_of_every_dtype(dtype: DType) -> None:
    for shape, axis in (((9, 37), 1), ((37, 8), 0)):  # the last chunk is not a whole one
        given = [keys(dtype, shape)]
        function = program(
            [t(*shape, dtype=dtype)],
            lambda b, x, axis=axis: [v for big in (True, False) for v in _first(b, x, axis, 6, big)],
        )
        got, calls = run_lowered(function, given, FUNCTIONS)
        assert {call.label for call in calls} == {"select_rows"}
        same(got, function, given, signs=True)


def _first(b: ArrayBuilder, x: Value, axis: int, k: int, largest: bool) -> Sequence[Value]:
    both = b.many("sort", x, axis=axis, descending=largest)
    (rows, columns) = (k, 8) if axis == 0 else (9, k)
    return [b("slice", v, starts=(0, 0), limits=(rows, columns), steps=(1, 1)) for v in both]


def test_what_is_asked_besides_the_first_ones_is_sorted_whole() -> None:
    given = [keys(dtypes.float32, (9, 40))]

    def body(b: ArrayBuilder, x: Value) -> list[Value]:
        values, positions = b.many("sort", x, axis=1)
        later = b("slice", values, starts=(0, 2), limits=(9, 6), steps=(1, 1))
        return [b("slice", positions, starts=(0, 0), limits=(9, 4), steps=(1, 1)), b("add", later, later)]

    function = program([t(9, 40)], body)
    got, calls = run_lowered(function, given, FUNCTIONS)
    assert "sort_rows" in {call.label for call in calls}
    same(got, function, given, signs=True)


def test_few_rows_and_targets_without_vectors_are_sorted_otherwise() -> None:
    for shape, target in (((7, 20), FUNCTIONS), ((9, 20), TIGHT), ((9, 20), THREADS)):
        given = [keys(dtypes.float32, shape)]
        function = program([t(*shape)], lambda b, x: list(b.many("top_k", x, axis=1, k=3, largest=True)))
        got, calls = run_lowered(function, given, target)
        assert not {"sort_rows", "select_rows"} & {call.label for call in calls}
        same(got, function, given, signs=True)


def test_chunks_hold_what_is_wanted() -> None:
    assert [chunk_of(k) for k in (1, 2, 3, 4, 5, 8, 9, 16, 17)] == [2, 2, 4, 4, 8, 8, 16, 16, 0]
