"""Products on matrix units and reductions by shuffles: chosen where the target declares them, and right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oarlock import dtypes as dt
from oarlock.codegen.pipeline import lower, prepare
from oarlock.dtypes import DType
from oarlock.ir import Operation, Value
from oarlock.ops import ArrayBuilder
from oarlock.target import Target

from .conftest import THREADS, program, random_operands, run_lowered, t

UNITS = replace(
    THREADS.with_limits(max_block=(128, 1, 1), max_threads=128),
    abilities=frozenset({"subgroup_32", "matrix_float16", "matrix_bfloat16"}),
)
"""Matrix units for 16-bit floats."""
SHUFFLES = replace(THREADS, abilities=frozenset({"subgroup_8"}))


def count(function: Operation, name: str) -> int:
    return sum(op.name == f"kernel.{name}" for op in function.walk())


def dense(b: ArrayBuilder, x: Value, y: Value, z: Value) -> Value:
    return b("relu", b("add", b("matmul", x, y), z))


def kernel(function: Operation, target: Target) -> Operation:
    (call,) = lower(prepare(function), target).calls
    return call.function  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16], ids=str)
def test_a_product_with_its_consumers_is_one_kernel_of_the_units(dtype: DType) -> None:
    types = [t(19, 33, dtype=dtype), t(33, 18, dtype=dtype), t(18, dtype=dtype)]
    operands = random_operands(types)
    (got,), (call,) = run_lowered(program(types, dense), operands, UNITS)
    assert count(call.function, "matrix_fma") == 4
    assert call.grid == (1, 1, 1)
    x, y, z = (operand.astype(np.float64) for operand in operands)
    roundoff = 2.0**-11 if dtype == dt.float16 else 2.0**-8
    bound = 3 * roundoff * np.maximum(np.abs(x @ y) + np.abs(z), 1e-3) + 33 * 2.0**-23 * (np.abs(x) @ np.abs(y))
    assert (np.abs(got.astype(np.float64) - np.maximum(x @ y + z, 0)) <= bound).all()


@pytest.mark.proof
def test_batches_transposed_operands_and_more_tiles_than_the_grid() -> None:
    types = [t(2, 70, 17, dtype=dt.float16), t(2, 66, 17, dtype=dt.float16)]

    def body(b: ArrayBuilder, x: Value, y: Value) -> Value:
        return b("matmul", x, b("transpose", y, permutation=(0, 2, 1)))

    operands = random_operands(types, 3)
    (got,), (call,) = run_lowered(program(types, body), operands, UNITS.with_limits(max_grid=(3, 3, 3)))
    assert count(call.function, "matrix_fma") == 4
    x, y = (operand.astype(np.float64) for operand in operands)
    np.testing.assert_allclose(got.astype(np.float64), x @ y.swapaxes(1, 2), rtol=1e-3, atol=1e-2)


def test_units_are_left_alone_where_they_do_not_fit() -> None:
    wide = [t(32, 32, dtype=dt.float16), t(32, 32, dtype=dt.float16), t(32, dtype=dt.float16)]
    flat = [t(4, 32, dtype=dt.float16), t(32, 32, dtype=dt.float16), t(32, dtype=dt.float16)]
    single = [t(32, 32), t(32, 32), t(32)]
    assert count(kernel(program(wide, dense), UNITS), "matrix_fma")
    assert not count(kernel(program(wide, dense), THREADS), "matrix_fma")  # not declared
    assert not count(kernel(program(flat, dense), UNITS), "matrix_fma")  # too few rows
    assert not count(kernel(program(single, dense), UNITS), "matrix_fma")  # float32 keeps its bits
    rough = replace(UNITS, abilities=UNITS.abilities | {"matrix_tf32"})
    assert count(kernel(program(single, dense), rough), "matrix_fma")  # but where tf32 was asked for


@pytest.mark.parametrize("width", [2, 8, 64])
def test_rows_are_reduced_by_shuffles_of_the_declared_width(width: int) -> None:
    target = replace(THREADS, abilities=frozenset({f"subgroup_{width}"}))
    types = [t(5, 131)]
    operands = random_operands(types)
    (got,), (call,) = run_lowered(program(types, lambda b, x: b("softmax", x, axis=1)), operands, target)
    assert count(call.function, "shuffle") == 2 * (width.bit_length() - 1)
    e = np.exp(operands[0].astype(np.float64))
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_shuffles_save_barriers_and_are_not_used_undeclared() -> None:
    function = program([t(5, 131)], lambda b, x: b("reduce_sum", x, axes=(1,), keepdims=False))
    with_, without = (kernel(function.clone(), target) for target in (SHUFFLES, THREADS))
    assert count(without, "shuffle") == 0
    assert (count(with_, "barrier"), count(without, "barrier")) == (2, 8)


def test_a_subgroup_that_does_not_divide_the_block_is_not_used() -> None:
    target = replace(THREADS, abilities=frozenset({"subgroup_128"}))  # blocks have 64 threads
    assert not count(kernel(program([t(5, 131)], lambda b, x: b("reduce_sum", x, axes=(1,))), target), "shuffle")


def test_bools_are_combined_in_memory() -> None:
    types = [t(3, 131, dtype=dt.bool_)]
    operands = random_operands(types)
    (got,), (call,) = run_lowered(program(types, lambda b, x: b("any", x, axes=(1,))), operands, SHUFFLES)
    assert got.tolist() == operands[0].any(1).tolist()
    assert not count(call.function, "shuffle")
