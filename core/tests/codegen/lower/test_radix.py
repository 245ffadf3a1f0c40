"""Rows are sorted by digits where a block walks them alone: stably, NaN last, both zeros alike."""

from __future__ import annotations

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.codegen.lower import radix
from oarlock.codegen.pipeline import lower, prepare
from oarlock.dtypes import DType
from oarlock.ir import Value
from oarlock.ir.interpret import interpret
from oarlock.ops import ArrayBuilder

from .conftest import FUNCTIONS, THREADS, program, run_lowered, t

KEYS = [d for d in dtypes.ALL if d.kind in ("bool", "int", "uint", "float")]


def keys(dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Keys with many equal ones, the extremes of the dtype, and what is no number."""
    rng = np.random.default_rng(3)
    if dtype.kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_float:
        found = (rng.integers(-40, 40, shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(dtype.numpy)
        odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, -np.nan], np.float64).astype(dtype.numpy)
        found.reshape(-1)[: 2 * len(odd)] = np.tile(odd, 2)
        return found
    found = rng.integers(-9 if dtype.kind == "int" else 0, 9, shape).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    found.reshape(-1)[:4] = [limits.max, limits.min, limits.max, limits.min]
    return found


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", KEYS, ids=str)
def test_every_dtype_is_sorted_as_the_reference_sorts(dtype: DType, descending: bool) -> None:
    given = [keys(dtype, (2, 70))]
    function = program(
        [t(2, 70, dtype=dtype)], lambda b, x: b.many("sort", x, axis=1, descending=descending, dtype=dtypes.int64)
    )
    got, calls = run_lowered(function, given, FUNCTIONS)
    assert sum(call.label == "radix_pass" for call in calls) == len(radix.digits(dtype, 70))
    values, positions = interpret(function, given)
    np.testing.assert_array_equal(got[1], positions)
    if dtype.is_float:
        got[0], values = got[0].astype(np.float64), values.astype(np.float64)
    np.testing.assert_array_equal(got[0], values)
    if dtype.is_float:
        np.testing.assert_array_equal(np.signbit(got[0]), np.signbit(values))  # zeros keep their order


def test_long_rows_along_another_dimension_without_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(radix, "LONG", 64)
    given = [keys(dtypes.float32, (90, 2))]
    function = program([t(90, 2)], lambda b, x: b.many("sort", x, axis=0)[0])
    got, calls = run_lowered(function, given, FUNCTIONS)
    assert [call.label for call in calls].count("radix_pass") == 3
    assert all(len(call.buffers) == 2 for call in calls if call.label == "radix_pass")
    assert len({call.function.attributes["name"] for call in calls if call.label == "radix_pass"}) == 1
    np.testing.assert_array_equal(got[0], interpret(function, given)[0])


def test_digits_cover_the_key() -> None:
    for dtype in KEYS:
        for length in (100, 5000):
            cut = radix.digits(dtype, length)
            assert [shift for shift, _ in cut] == [sum(bits for _, bits in cut[:k]) for k in range(len(cut))]
            assert {bits for _, bits in cut} == {cut[0][1]}
            assert cut[-1][0] < radix.key_bits(dtype) <= sum(bits for _, bits in cut)
            assert cut[0][1] <= (11 if length >= radix.LONG else 8)


def test_short_rows_and_targets_with_threads_merge() -> None:
    def body(b: ArrayBuilder, x: Value) -> list[Value]:
        return list(b.many("sort", x, axis=0))

    for size, target in ((40, FUNCTIONS), (90, THREADS)):
        lowered = lower(prepare(program([t(size)], body)), target)
        assert {call.label for call in lowered.calls} == {"merge_pass"}
