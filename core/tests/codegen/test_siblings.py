"""One row times several fixed matrices is one product, where nothing is lost by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oarlock.codegen.pipeline import lower, prepare
from oarlock.codegen.schedule import RULES
from oarlock.ir import Operation
from oarlock.ir.interpret import interpret

from .lower.conftest import FUNCTIONS, THREADS, program, t

TYPES = [t(1, 12), t(12, 8), t(12, 5), t(12, 8)]


def _dot(b: Any, x: Any, w: Any, right: int = 0) -> Any:
    return b("dot_general", x, w, batch=((), ()), contract=((1,), (right,)), dtype=TYPES[0].dtype)


def _products(b: Any, x: Any, *weights: Any) -> Any:
    """Rows of several numbers, which no kernel of a product computes as well."""
    return [b("reshape", _dot(b, x, w), shape=(w.type.shape[1], 1)) for w in weights]


def _lowered(function: Operation, fixed: tuple[int, ...], target: Any = FUNCTIONS) -> Any:
    return lower(prepare(function), target, choice=lambda subject: RULES, fixed=fixed)


def _count(lowered: Any) -> int:
    return sum(op.name == "array.dot_general" for op in lowered.function.regions[0].block.ops)


def test_fixed_matrices_are_joined() -> None:
    function = program(TYPES, _products)
    lowered = _lowered(function, (1, 2, 3))
    assert _count(lowered) == 1
    given = [np.random.default_rng(i).standard_normal(x.static_shape).astype(np.float32) for i, x in enumerate(TYPES)]
    for got, want in zip(_interpreted(lowered.function, given), interpret(function, given), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def _interpreted(function: Operation, given: list[Any]) -> Any:
    """What a lowered function gives, whose copies are what they copy."""
    for op in list(function.regions[0].block.ops):
        if op.name == "schedule.copy":
            op.result.replace_all_uses_with(op.operands[0])
            op.erase()
    return interpret(function, given)


@pytest.mark.parametrize(
    ("fixed", "count"), [((), 3), ((1,), 3), ((1, 3), 2)], ids=["none_is_fixed", "one_is_fixed", "two_are_fixed"]
)
def test_only_what_is_fixed_is_joined(fixed: tuple[int, ...], count: int) -> None:
    assert _count(_lowered(program(TYPES, _products), fixed)) == count


def test_products_with_work_behind_them_keep_their_kernels() -> None:
    types = [*TYPES[:2], TYPES[3]]
    function = program(types, lambda b, x, v, w: b("multiply", b("exp", _dot(b, x, v)), _dot(b, x, w)))
    assert _count(_lowered(function, (1, 2))) == 2


def test_several_rows_and_threads_are_left_alone() -> None:
    several = [t(2, 12), *TYPES[1:]]
    assert _count(_lowered(program(several, lambda b, x, *w: [_dot(b, x, m) for m in w]), (1, 2, 3))) == 3
    assert _count(_lowered(program(TYPES, _products), (1, 2, 3), THREADS)) == 3


def test_transposed_matrices_are_joined_along_their_rows() -> None:
    types = [TYPES[0], t(8, 12), t(5, 12)]

    def body(b: Any, x: Any, *weights: Any) -> Any:
        turned = [b("transpose", w, permutation=(1, 0)) for w in weights]
        return [b("reshape", _dot(b, x, w), shape=(w.type.shape[1], 1)) for w in turned]

    lowered = _lowered(program(types, body), (1, 2))
    assert _count(lowered) == 1
