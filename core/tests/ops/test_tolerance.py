"""The judge accepts what is right and catches planted faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from oarlock import dtypes
from oarlock.ops import RECORDS
from oarlock.ops.tolerance import allowed, check, exact

F32 = np.float32


def judged(name: str, operands: Any, actual: Any, flush: bool = False, **attributes: Any) -> str | None:
    return check(RECORDS[name], operands, attributes, [np.asarray(actual)], flush=flush)


def test_elementwise_bound_is_in_ulps_of_the_exact_value() -> None:
    x = np.linspace(-10, 10, 1001).astype(F32)
    right = np.exp(x.astype(np.float64)).astype(F32)
    off = right.copy()
    for _ in range(2):
        off = np.nextafter(off, F32(np.inf))
    assert judged("exp", [x], off) is None
    for _ in range(3):
        off = np.nextafter(off, F32(np.inf))
    assert "exp: result 0" in str(judged("exp", [x], off))


def test_arithmetic_must_be_correctly_rounded() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 100)).astype(F32)
    assert judged("add", [x, y], x + y) is None
    wrong = x + y
    wrong[17] = np.nextafter(wrong[17], F32(9))
    assert "at (17,)" in str(judged("add", [x, y], wrong))


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("tanh", lambda x: np.clip(x, -1, 1)),
        ("sin", lambda x: np.where(np.abs(x) < 50, np.sin(x), 0).astype(F32)),
        ("log1p", lambda x: np.log(F32(1) + x)),
        ("expm1", lambda x: np.exp(x) - F32(1)),
        ("sigmoid", lambda x: np.clip(x / 6 + 0.5, 0, 1).astype(F32)),
        ("gelu", lambda x: (x * (1 / (1 + np.exp(-1.702 * x)))).astype(F32)),
        ("floor", np.trunc),
        ("round", lambda x: np.floor(x + F32(0.5))),
        ("abs", lambda x: np.where(x < 0, -x, x)),
        ("negative", lambda x: F32(0) - x),
    ],
)
def test_planted_elementwise_faults_are_caught(name: str, fault: Callable[[Any], Any]) -> None:
    record = RECORDS[name]
    assert record.samples is not None
    with np.errstate(all="ignore"):
        verdicts = [
            judged(name, s.operands, np.asarray(fault(s.operands[0]), F32))
            for s in record.samples(dtypes.float32, np.random.default_rng(0))
        ]
    assert any(verdicts), name


def test_a_dropped_term_of_a_sum_is_caught() -> None:
    x = np.random.default_rng(0).standard_normal((4, 1025)).astype(F32)
    assert judged("reduce_sum", [x], x.sum(1), axes=(1,)) is None
    assert judged("reduce_sum", [x], x[:, :-1].sum(1), axes=(1,)) is not None
    small = x.astype(ml_dtypes.bfloat16)
    naive = np.zeros(4, small.dtype)
    for column in small.T:
        naive = naive + column
    assert judged("reduce_sum", [small], naive, axes=(1,)) is not None


def test_a_product_without_its_last_term_is_caught() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((17, 129)).astype(F32), rng.standard_normal((129, 33)).astype(F32)
    assert judged("matmul", [x, y], x @ y) is None
    assert judged("matmul", [x, y], x[:, :-1] @ y[:-1]) is not None
    assert judged("matmul", [x, y], (x @ y) * F32(1.0001)) is not None


def test_special_values_must_match() -> None:
    x = np.array([1.0, 0.0], F32)
    assert judged("log", [x], np.array([0.0, -np.inf], F32)) is None
    assert judged("log", [x], np.array([0.0, np.nan], F32)) is not None
    assert judged("log", [x], np.array([0.0, np.inf], F32)) is not None
    assert judged("negative", [x], np.array([-1.0, 0.0], F32)) is not None


def test_overflow_at_the_edge_may_go_either_way_but_not_elsewhere() -> None:
    most = np.array([np.finfo(F32).max], F32)
    assert judged("reduce_sum", [most], most[0], axes=(0,)) is None
    assert judged("reduce_sum", [most], F32(np.inf), axes=(0,)) is None
    assert judged("reduce_sum", [most], F32(-np.inf), axes=(0,)) is not None
    assert judged("exp", [np.array([88.0], F32)], np.array([np.inf], F32)) is not None
    assert judged("exp", [np.array([89.0], F32)], most) is not None


def test_flushed_subnormals_pass_only_when_declared() -> None:
    x = np.array([1e-40, 2.0], F32)
    one = np.ones(2, F32)
    assert judged("multiply", [x, one], np.array([0.0, 2.0], F32)) is not None
    assert judged("multiply", [x, one], np.array([0.0, 2.0], F32), flush=True) is None
    assert judged("multiply", [x, one], np.array([1e-40, 2.0], F32), flush=True) is None
    assert judged("multiply", [x, one], np.array([0.0, 0.0], F32), flush=True) is not None
    assert judged("reverse", [x], np.array([2.0, 0.0], F32), flush=True, axes=(0,)) is not None


def test_shape_dtype_and_count_are_part_of_the_verdict() -> None:
    x = np.ones(3, F32)
    assert "not float32 (3,)" in str(judged("exp", [x], np.ones(3)))
    assert "not float32 (3,)" in str(judged("exp", [x], np.ones((3, 1), F32)))
    assert "gave 0 results, not 1" in str(check(RECORDS["exp"], [x], {}, []))


def test_zeroed_results_fail_somewhere_for_every_operator() -> None:
    for name, record in RECORDS.items():
        assert record.samples is not None
        dtype = dtypes.float32 if dtypes.float32 in record.dtypes else record.dtypes[-1]
        zeroed = []
        for sample in record.samples(dtype, np.random.default_rng(0)):
            results = record.reference(sample.operands, sample.attributes)
            zeroed.append(check(record, sample.operands, sample.attributes, [np.zeros_like(r) for r in results]))
        assert any(zeroed), name


def test_small_relative_errors_are_caught_for_every_inexact_operator() -> None:
    for name, record in RECORDS.items():
        if record.tolerance == "exact" or dtypes.float32 not in record.dtypes:
            continue
        assert record.samples is not None
        verdicts = []
        for sample in record.samples(dtypes.float32, np.random.default_rng(0)):
            results = record.reference(sample.operands, sample.attributes)
            if all(r.dtype == F32 for r in results):
                with np.errstate(all="ignore"):
                    off = [(r * F32(1.0005)).astype(F32) for r in results]
                verdicts.append(check(record, sample.operands, sample.attributes, off))
        assert any(verdicts), name


def test_allowed_is_in_absolute_units() -> None:
    record = RECORDS["exp"]
    x = np.zeros(1, F32)
    (wanted,) = exact(record, [x], {})
    assert allowed(record, dtypes.float32, wanted, [x], {})[0] == 3 * 2.0**-23
    assert allowed(RECORDS["add"], dtypes.float32, wanted, [x, x], {})[0] == 0
