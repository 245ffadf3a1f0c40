"""The conformance suite's random programs, before and after each pass, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from oarlock import dtypes
from oarlock.ir import interpret, verify
from oarlock.ir.interpret import Array
from oarlock.ir.passes import Pass, PassManager
from oarlock.ops import array_context
from oarlock.transforms import (
    Alias,
    CommonSubexpressions,
    DeadCode,
    Decompose,
    Fold,
    Horizontal,
    Layout,
    Simplify,
    Sink,
    standard_passes,
)
from oarlock_conformance.cases.operators.fuzzing import recipes
from oarlock_conformance.cases.operators.recipes import Flavour, Recipe, program_of

CONTEXT = array_context()
KINDS = (dtypes.float32, dtypes.int32, dtypes.bool_, dtypes.float16, dtypes.uint8, dtypes.int64)
PASSES: dict[str, list[Pass]] = {
    "fold": [Fold()],
    "simplify": [Simplify()],
    "alias": [Decompose(), Alias()],
    "layout": [Decompose(), Layout()],
    "sink": [Decompose(), Sink()],
    "cse": [CommonSubexpressions()],
    "dce": [DeadCode()],
    "horizontal": [Decompose(), Horizontal()],
    "standard": standard_passes(),
    "backwards": [Decompose(), *reversed(standard_passes()[1:])],
    "twice": [*standard_passes(), *standard_passes()],
}


def assert_same(actual: Array, expected: Array, exact: bool) -> None:
    """Equal bits; NumPy's elementary functions may differ in the last bit between layouts of memory."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    if exact or not dtypes.from_numpy(expected.dtype).is_float:
        np.testing.assert_array_equal(actual, expected)
        return
    bits = {2: 1e-3, 4: 1e-6, 8: 1e-15}[expected.dtype.itemsize]
    np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), rtol=bits, atol=1e-30)


def check(passes: list[Pass], flavour: Flavour, examples: int) -> int:
    """Run ``passes`` on so many random programs; how many operations they changed the number of."""
    changed = 0

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(recipes(flavour))
    def run(recipe: Recipe) -> None:
        nonlocal changed
        program = program_of(recipe, KINDS)
        if flavour == "any":  # a composite rounds once where its decomposition rounds in each operator
            Decompose().run(program.function, CONTEXT)
        verify(program.function)
        with np.errstate(all="ignore"):
            expected = interpret(program.function, program.operands)
            manager = PassManager(CONTEXT, passes, level=3)
            manager.run(program.function)
            for actual, wanted in zip(interpret(program.function, program.operands), expected, strict=True):
                assert_same(actual, wanted, flavour == "exact")
        changed += any(result.statistics and any(result.statistics.values()) for result in manager.results)

    run()
    return changed


@pytest.mark.parametrize("flavour", ["exact", "any"])
@pytest.mark.parametrize("name", PASSES)
def test_random_programs_mean_the_same(name: str, flavour: Flavour) -> None:
    check(PASSES[name], flavour, 12)


@pytest.mark.proof
@pytest.mark.parametrize("flavour", ["exact", "any"])
@pytest.mark.parametrize("name", PASSES)
def test_many_random_programs_mean_the_same(name: str, flavour: Flavour) -> None:
    assert check(PASSES[name], flavour, 1500) > 0 or name == "horizontal"
