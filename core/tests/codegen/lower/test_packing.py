"""Large matrix products read packed operands: the same values, whatever the operands' layout, and few kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.codegen import packing
from oarlock.codegen.lower import pointwise
from oarlock.codegen.pipeline import lower, prepare
from oarlock.dtypes import DType
from oarlock.ir import TensorType, Value
from oarlock.ir.interpret import interpret
from oarlock.ops import ArrayBuilder

from .conftest import FUNCTIONS, THREADS, assert_close, program, random_operands, run_lowered

F32 = dtypes.float32


def t(*shape: int, dtype: DType = F32) -> TensorType:
    return TensorType(dtype, shape)


def dot(batch: Any, contract: Any, dtype: DType = F32) -> Callable[..., Value]:
    return lambda b, x, y: b("dot_general", x, y, batch=batch, contract=contract, dtype=dtype)


PRODUCTS = {
    "whole_tiles": ([t(12, 10), t(10, 32)], dot(((), ()), ((1,), (0,)))),
    "padded": ([t(13, 9), t(9, 19)], dot(((), ()), ((1,), (0,)))),
    "both_transposed": ([t(9, 14), t(17, 9)], dot(((), ()), ((0,), (1,)))),
    "batch": ([t(2, 13, 9), t(2, 9, 17)], dot(((0,), (0,)), ((2,), (1,)))),
    "free_dimensions": ([t(2, 5, 9), t(9, 4, 5)], dot(((), ()), ((2,), (0,)))),
    "two_contracted": ([t(13, 3, 4), t(3, 4, 18)], dot(((), ()), ((1, 2), (0, 1)))),
    **{
        dtype.name: ([t(13, 9, dtype=dtype), t(9, 17, dtype=dtype)], dot(((), ()), ((1,), (0,)), dtype))
        for dtype in (dtypes.float64, dtypes.float16, dtypes.int32)
    },
}


def heads(b: ArrayBuilder, x: Value, y: Value) -> Value:
    """Rows that lie in several stretches, as the heads of an attention leave them."""
    rows = b("reshape", b("transpose", x, permutation=(1, 0, 2)), shape=(13, 48))
    return b("dot_general", rows, y, batch=((), ()), contract=((1,), (1,)), dtype=F32)


def test_rows_in_stretches_are_read_where_they_are() -> None:
    types = [t(3, 13, 16), t(18, 48)]
    function = program(types, heads)
    given = random_operands(types)
    got, calls = run_lowered(function, given, FUNCTIONS)
    assert [call.label for call in calls] == ["pad", "copy", "packed_product"]  # only the right operand is copied
    assert_close(got, interpret(function, given), 1e-5, 1e-5)


def test_rows_in_short_stretches_are_copied() -> None:
    types = [t(6, 13, 8), t(16, 48)]
    function = program(types, heads)
    given = random_operands(types)
    got, calls = run_lowered(function, given, FUNCTIONS)
    assert sum(call.label == "copy" for call in calls) == 2
    assert_close(got, interpret(function, given), 1e-5, 1e-5)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products are packed: the interpreter is slow."""
    monkeypatch.setattr(packing, "LEAST", 8)


@pytest.mark.parametrize("name", PRODUCTS)
def test_packed_products_give_the_product(name: str) -> None:
    types, body = PRODUCTS[name]
    function = program(types, body)
    given = random_operands(types)
    got, calls = run_lowered(function, given, FUNCTIONS)
    assert any("packed_product" in call.label for call in calls)
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x.astype(np.int64) for x in given]
    op = next(op for op in function.walk() if op.name == "array.dot_general")
    batch, contract = op.attributes["batch"], op.attributes["contract"]
    if batch[0]:
        exact = wide[0] @ wide[1]
    else:
        exact = np.tensordot(wide[0], wide[1], axes=(contract[0], contract[1]))
    assert_close(got, [exact.astype(got[0].dtype)], rtol=2e-3 if types[0].dtype.bits == 16 else 1e-4, atol=1e-3)


def test_consumers_are_computed_on_the_tile() -> None:
    def body(b: ArrayBuilder, x: Value, y: Value, bias: Value) -> Value:
        product = b("dot_general", x, y, batch=((), ()), contract=((1,), (0,)), dtype=F32)
        return b("maximum", b("add", product, bias), b.constant(np.float32(0)))

    types = [t(12, 9), t(9, 32), t(32)]
    function = program(types, body)
    given = random_operands(types)
    got, calls = run_lowered(function, given, FUNCTIONS)
    assert [call.label for call in calls][-1].startswith("packed_product_add_maximum")
    assert len(calls) == 2  # a copy of the right operand, and the product
    assert_close(got, [np.maximum(given[0] @ given[1] + given[2], 0)], 1e-4, 1e-4)


def pack_small_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "LEAST_PIXELS", 4)
    monkeypatch.setattr(packing, "LEAST_OUTPUTS", (4, 4, 4))
    monkeypatch.setattr(packing, "LEAST_MORE", 0)


@pytest.mark.parametrize(
    "outputs, size, packed", [(16, 40, False), (191, 40, False), (192, 40, True), (63, 9, False), (64, 9, True)]
)
def test_convolutions_with_few_outputs_read_the_image_as_it_is(outputs: int, size: int, packed: bool) -> None:
    window = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    types = [t(1, 16, size, size), t(outputs, 16, 1, 1)]
    lowered = lower(prepare(program(types, lambda b, x, w: b("convolution", x, w, **window))), FUNCTIONS)
    assert ("packed" in lowered.calls[-1].label) == packed


@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
@pytest.mark.parametrize("images", [1, 3])
def test_convolutions_of_single_elements_are_products(
    images: int, strides: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pack_small_convolutions(monkeypatch)
    types = [t(images, 5, 7, 9), t(8, 5, 1, 1), t(8, 1, 1)]

    def body(b: ArrayBuilder, x: Value, w: Value, bias: Value) -> Value:
        window = {"strides": strides, "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
        return b("add", b("convolution", x, w, **window), bias)

    given = random_operands(types)
    got, calls = run_lowered(program(types, body), given, FUNCTIONS)
    assert calls[-1].label.startswith("packed_product_add")
    x = given[0][:, :, :: strides[0], :: strides[1]]
    exact = np.einsum("nchw,oc->nohw", x.astype(np.float64), given[1][:, :, 0, 0]) + given[2]
    assert_close(got, [exact.astype(np.float32)], 1e-4, 1e-4)


@pytest.mark.parametrize("padding", [0, 1])
def test_convolutions_of_small_images_are_products(padding: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pack_small_convolutions(monkeypatch)
    types = [t(2, 4, 6, 7), t(7, 4, 3, 2)]
    window = {"strides": (1, 2), "padding": ((padding, 0), (0, padding)), "dilation": (2, 1), "groups": 1}
    function = program(types, lambda b, x, w: b("convolution", x, w, **window))
    given = random_operands(types)
    got, calls = run_lowered(function, given, FUNCTIONS)
    assert calls[-1].label.startswith("packed_product")
    assert_close(got, interpret(function, given), 1e-4, 1e-4)


def test_small_products_and_targets_with_threads_are_not_packed() -> None:
    small = program([t(7, 9), t(9, 40)], dot(((), ()), ((1,), (0,))))
    assert "packed" not in " ".join(c.label for c in lower(prepare(small), FUNCTIONS).calls)
    types, body = PRODUCTS["whole_tiles"]
    assert "packed" not in " ".join(c.label for c in lower(prepare(program(types, body)), THREADS).calls)


def test_panels_are_filled_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by several blocks, the last of which has fewer rows; panels that need padding are filled as before."""
    monkeypatch.setattr(pointwise, "PANEL_LEAST", 1)
    monkeypatch.setattr(pointwise, "BLOCKS", 4)
    product = dot(((), ()), ((1,), (0,)))
    for columns, filled in ((48, True), (40, False)):
        types = [t(12, 10), t(10, columns)]
        function = program(types, product)
        given = random_operands(types)
        got, calls = run_lowered(function, given, FUNCTIONS)
        assert_close(got, [given[0] @ given[1]], 1e-4, 1e-4)
        assert (calls[0].grid == (4, 1, 1)) is filled


@pytest.mark.parametrize(("columns", "shared", "kernels"), [(64, False, 2), (64, True, 3), (60, False, 4)])
def test_what_computes_an_operand_is_computed_in_its_copy(columns: int, shared: bool, kernels: int) -> None:
    """Unless somebody else reads it, or the copy is padded."""
    types = [t(40, 48), t(48, columns)]

    def body(b: ArrayBuilder, x: Value, y: Value) -> list[Value]:
        power = b("exp", b("multiply", y, y))
        product = b("dot_general", x, power, batch=((), ()), contract=((1,), (0,)), dtype=dtypes.float32)
        return [product, power] if shared else [product]

    function = program(types, body)
    given = random_operands(types)
    got, calls = run_lowered(function, given, FUNCTIONS)
    assert_close(got, interpret(function, given), 1e-4, 1e-4)
    assert len(calls) == kernels
