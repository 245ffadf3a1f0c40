"""Convolutions with the channels last read the windows of an image where they are, in any geometry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.codegen.lower import tiles
from oarlock.dtypes import DType
from oarlock.ir.interpret import interpret

from .conftest import FUNCTIONS, THREADS, assert_close, program, random_operands, run_lowered, t

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "whole_tiles": ((1, 6, 6, 4), (16, 4, 1, 1), {}),
    "padded": ((1, 7, 5, 3), (18, 3, 3, 3), {"padding": ((1, 1), (1, 1))}),
    "uneven_padding": ((2, 4, 5, 2), (3, 2, 2, 3), {"padding": ((0, 2), (1, 0))}),
    "strides": ((1, 9, 8, 2), (9, 2, 3, 3), {"strides": (2, 3), "padding": ((1, 1), (1, 1))}),
    "dilated_rows": ((1, 9, 6, 2), (5, 2, 3, 2), {"dilation": (2, 1)}),
    "dilated_columns": ((1, 6, 9, 2), (5, 2, 2, 3), {"dilation": (1, 3)}),
    "images": ((3, 3, 3, 4), (17, 4, 2, 2), {}),
    "one_row": ((5, 1, 1, 9), (33, 9, 1, 1), {}),
    "line": ((2, 11, 3), (9, 3, 4), {"strides": (2,), "padding": ((3, 0),), "dilation": (1,)}),
    "volume": ((1, 3, 4, 3, 2), (4, 2, 2, 3, 2), {}),
}


def _attributes(shape: tuple[int, ...], changes: dict[str, Any]) -> dict[str, Any]:
    rank = len(shape) - 2
    plain = {"strides": (1,) * rank, "padding": ((0, 0),) * rank, "dilation": (1,) * rank}
    return {**plain, **changes, "groups": 1, "channels_last": True}


@pytest.mark.parametrize("blocks", [256, 2])
@pytest.mark.parametrize("name", CASES)
def test_windows_give_the_convolution(name: str, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "BLOCKS", blocks)  # with few, one row of tiles is walked through several columns
    x, w, changes = CASES[name]
    types = [t(*x), t(*w)]

    def body(b: Any, x: Any, w: Any) -> Any:
        y = b("convolution", x, w, **_attributes(types[0].shape, changes))  # type: ignore[arg-type]
        return b("maximum", y, b.full(0, y))

    function = program(types, body)
    given = random_operands(types)
    got, calls = run_lowered(function, given, FUNCTIONS)
    assert any(call.label.startswith("window_product_maximum") for call in calls)
    assert_close(got, interpret(function, given), 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float64], ids=str)
def test_sums_are_formed_in_the_accumulator(dtype: DType) -> None:
    types = [t(1, 5, 4, 3, dtype=dtype), t(9, 3, 3, 3, dtype=dtype)]
    attributes = _attributes((1, 5, 4, 3), {"padding": ((1, 1), (1, 1))})
    function = program(types, lambda b, x, w: b("convolution", x, w, **attributes))
    given = random_operands(types)
    got, _ = run_lowered(function, given, FUNCTIONS)
    wide = [x.astype(np.float64) for x in given]
    types64 = [t(*x.shape, dtype=dtypes.float64) for x in given]
    exact = interpret(program(types64, lambda b, x, w: b("convolution", x, w, **attributes)), wide)
    limit = 2e-3 if dtype.bits == 16 else 1e-12
    assert_close(got, [x.astype(dtype.numpy) for x in exact], limit, limit)


def test_targets_with_threads_compute_each_element() -> None:
    types = [t(1, 4, 4, 3), t(5, 3, 3, 3)]
    attributes = _attributes((1, 4, 4, 3), {"padding": ((1, 1), (1, 1))})
    function = program(types, lambda b, x, w: b("convolution", x, w, **attributes))
    given = random_operands(types)
    got, calls = run_lowered(function, given, THREADS)
    assert [call.label for call in calls] == ["convolution"]
    assert_close(got, interpret(function, given), 1e-5, 1e-5)


def test_a_transposed_image_is_copied_once() -> None:
    types = [t(1, 3, 4, 5), t(8, 3, 1, 1)]
    attributes = _attributes((1, 4, 5, 3), {})

    def body(b: Any, x: Any, w: Any) -> Any:
        return b("convolution", b("transpose", x, permutation=(0, 2, 3, 1)), w, **attributes)

    function = program(types, body)
    given = random_operands(types)
    got, calls = run_lowered(function, given, FUNCTIONS)
    assert sum(call.label == "copy" for call in calls) == 2  # the image, and the weights' panels
    assert_close(got, interpret(function, given), 1e-5, 1e-5)
