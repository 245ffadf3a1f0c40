"""A row times a matrix reads the matrix along its rows, and gives the product."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.codegen.lower import matvec
from oarlock.codegen.lower.matvec import columns_of_block, is_row_times_matrix
from oarlock.ir import TensorType, Value
from oarlock.ir.interpret import interpret
from oarlock.ops import ArrayBuilder

from .conftest import FUNCTIONS, THREADS, assert_close, program, random_operands, run_lowered

F32 = dtypes.float32


def t(*shape: int, dtype: dtypes.DType = F32) -> TensorType:
    return TensorType(dtype, shape)


def dot(b: ArrayBuilder, x: Value, y: Value, batch=((), ()), contract=((1,), (0,)), dtype=F32) -> Value:
    return b("dot_general", x, y, batch=batch, contract=contract, dtype=dtype)


PRODUCTS: dict[str, tuple[list[TensorType], Callable[..., Value]]] = {
    "plain": ([t(1, 9), t(9, 70)], dot),
    "several_blocks": ([t(1, 5), t(5, 300)], dot),
    "vector": ([t(9), t(9, 64)], lambda b, x, y: dot(b, x, y, contract=((0,), (0,)))),
    "batch": ([t(3, 1, 6), t(3, 6, 64)], lambda b, x, y: dot(b, x, y, ((0,), (0,)), ((2,), (1,)))),
    "half": (
        [t(1, 8, dtype=dtypes.float16), t(8, 64, dtype=dtypes.float16)],
        lambda b, x, y: dot(b, x, y, dtype=dtypes.float16),
    ),
    "bias": ([t(1, 6), t(6, 70), t(70)], lambda b, x, y, z: b("negative", b("add", dot(b, x, y), z))),
}


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few columns make several blocks, few rows are some at once: the interpreter is slow."""
    monkeypatch.setattr(matvec, "COLUMNS", 256)
    monkeypatch.setattr(matvec, "ROWS", 4)


@pytest.mark.parametrize("name", PRODUCTS)
def test_rows_times_matrices(name: str) -> None:
    types, body = PRODUCTS[name]
    function = program(types, body)
    op = next(op for op in function.walk() if op.name == "array.dot_general")
    assert is_row_times_matrix(op, FUNCTIONS)
    assert not is_row_times_matrix(op, THREADS)
    given = random_operands(types)
    got, calls = run_lowered(function, given, FUNCTIONS)
    assert len(calls) == 1
    assert_close(got, interpret(function, given), 2e-3 if name == "half" else 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("types", "contract"),
    [([t(2, 9), t(9, 70)], ((1,), (0,))), ([t(1, 9), t(70, 9)], ((1,), (1,))), ([t(1, 9), t(9, 20)], ((1,), (0,)))],
    ids=["two rows", "transposed", "few columns"],
)
def test_other_products_have_other_schedules(types: list[TensorType], contract: tuple[tuple[int, ...], ...]) -> None:
    function = program(types, lambda b, x, y: dot(b, x, y, contract=contract))
    op = next(op for op in function.walk() if op.name == "array.dot_general")
    assert not is_row_times_matrix(op, FUNCTIONS)
    given = random_operands(types)
    got, _ = run_lowered(function, given, FUNCTIONS)
    np.testing.assert_allclose(got[0], interpret(function, given)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("width", "columns"), [(64, 1024), (1023, 1024), (1024, 512), (1376, 688), (4096, 2048), (4100, 1032)]
)
def test_blocks_are_equal_and_even_in_number(width: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matvec, "COLUMNS", 2048)
    assert columns_of_block(width, 8) == columns
