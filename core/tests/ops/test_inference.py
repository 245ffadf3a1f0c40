"""Inference: symbolic sizes where they are natural, and errors that name operator, operand and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.errors import DTypeError, OarlockError, ShapeError, VerifyError
from oarlock.ir import ScalarType, TensorType, symbol
from oarlock.ops import RECORDS
from oarlock.ops.tolerance import check

N, M = symbol("n"), symbol("m")


def f32(*shape: Any) -> TensorType:
    return TensorType(dtypes.float32, shape)


def infer(name: str, *types: Any, **attributes: Any) -> Any:
    results = RECORDS[name].infer_types(types, attributes)
    return results[0].shape if len(results) == 1 else [r.shape for r in results]


def test_symbolic_sizes_pass_through() -> None:
    assert infer("add", f32(N, 3), f32(3)) == (N, 3)
    assert infer("add", f32(N, 1), f32(1, M)) == (N, M)
    assert infer("select", TensorType(dtypes.bool_, (N,)), f32(N), f32()) == (N,)
    assert infer("reduce_sum", f32(N, 4), axes=(1,)) == (N,)
    assert infer("reduce_sum", f32(N, 4), axes=(0,), keepdims=True) == (1, 4)
    assert infer("transpose", f32(N, 4), permutation=(1, 0)) == (4, N)
    assert infer("concat", f32(N, 4), f32(2, 4), axis=0) == (2 + N, 4)
    assert infer("concat", f32(N, 4), f32(N, 5), axis=1) == (N, 9)
    assert infer("broadcast", f32(4), shape=(N, 4), dims=(1,)) == (N, 4)
    assert infer("reshape", f32(N, 3, 4), shape=(N, 12)) == (N, 12)
    assert infer("reshape", f32(N * 6), shape=(2, N, 3)) == (2, N, 3)
    assert infer("slice", f32(N, 4), starts=(0, 1), limits=(N, 3), steps=(1, 1)) == (N, 2)
    assert infer("gather", f32(9, 4), TensorType(dtypes.int32, (N,)), axis=0) == (N, 4)
    assert infer("dot_general", f32(N, 4), f32(4, 5), batch=((), ()), contract=((1,), (0,)), dtype=dtypes.float32) == (
        N,
        5,
    )
    assert infer("matmul", f32(N, 7, 4), f32(4, 5)) == (N, 7, 5)
    assert infer("softmax", f32(N, 4), axis=1) == (N, 4)
    geometry: Any = {"strides": (1,), "padding": ((1, 1),), "dilation": (1,), "groups": 1}
    assert infer("convolution", f32(N, 3, 8), f32(5, 3, 3), **geometry) == (N, 5, 8)
    assert infer("conv_transpose", f32(N, 3, 8), f32(3, 5, 3), **geometry, output_padding=(0,)) == (N, 5, 8)
    assert infer("group_norm", f32(N, 4, 7), f32(4), f32(4), groups=2) == (N, 4, 7)
    cell = (f32(N, 3), f32(N, 5), f32(N, 5), f32(20, 3), f32(20, 5), f32(20))
    assert infer("lstm_cell", *cell) == [(N, 5), (N, 5)]
    assert infer("max_pool", f32(N, 3, 8), window=(2,), strides=(2,), padding=((0, 0),)) == (N, 3, 4)


SYMBOLIC: list[tuple[str, list[tuple[Any, ...]], dict[str, Any]]] = [
    ("softmax", [(N, 5)], {"axis": 1}),
    ("layer_norm", [(N, 5), (5,), (5,)], {"axis": 1}),
    ("group_norm", [(N, 4, 3), (4,), (4,)], {"groups": 2}),
    ("batch_norm", [(N, 4, 3), (4,), (4,), (4,), (4,)], {}),
    ("matmul", [(N, 2, 5), (N, 5, 3)], {}),
    ("gelu", [(N, 5)], {}),
    ("mean", [(N, 5)], {"axes": (1,)}),
    ("average_pool", [(N, 2, 7)], {"window": (3,), "strides": (2,), "padding": ((1, 1),)}),
    ("conv_transpose", [(N, 2, 5), (2, 3, 2)], {
        "strides": (2,), "padding": ((3, 0),), "dilation": (1,), "output_padding": (0,), "groups": 1}),
    ("gru_cell", [(N, 3), (N, 4), (12, 3), (12, 4), (12,), (12,)], {}),
    ("tril", [(N, 3, 3)], {"k": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shapes", "attributes"), SYMBOLIC, ids=[case[0] for case in SYMBOLIC])
def test_decompositions_keep_symbolic_batches(run: Any, name: str, shapes: Any, attributes: Any) -> None:
    rng = np.random.default_rng(0)
    record = RECORDS[name]
    assert record.decompose is not None
    arrays = [rng.uniform(0.5, 1.5, [6 if d is N else d for d in s]).astype(np.float32) for s in shapes]
    found = run(
        lambda b, *v: record.decompose(b, v, attributes),  # type: ignore[misc]
        *arrays,
        types=[f32(*s) for s in shapes],
    )
    assert check(record, arrays, attributes, found) is None


def test_symbolic_sizes_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(ShapeError, match="cannot tell whether n and m are equal"):
        infer("add", f32(N), f32(M))
    with pytest.raises(ShapeError, match="reshape: cannot tell"):
        infer("reshape", f32(N, 4), shape=(M,))
    with pytest.raises(ShapeError, match="slice: axis 0 .* symbolic"):
        infer("slice", f32(N), starts=(1,), limits=(N,), steps=(1,))
    with pytest.raises(ShapeError, match="take_along_axis: .*specialise"):
        infer("take_along_axis", f32(N), TensorType(dtypes.int32, (3,)), axis=0)


WINDOW: Any = {"strides": (1,), "padding": ((0, 0),), "dilation": (1,)}
I32 = TensorType(dtypes.int32, (3,))
REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], type[OarlockError], str]] = [
    ("add", (f32(3), f32(4)), {}, ShapeError, r"add: shapes \(3\) and \(4\) do not broadcast: 3 meets 4"),
    ("add", (f32(3), I32), {}, DTypeError, "add: operands have dtypes float32, int32"),
    ("add", (TensorType(dtypes.bool_, ()),) * 2, {}, DTypeError, "add: the operand is bool"),
    ("exp", (I32,), {}, DTypeError, "exp: the operand is int32, but may be float16"),
    ("add", (f32(3),), {}, ShapeError, "add takes x, y; got 1 operands"),
    ("exp", (ScalarType(dtypes.float32),), {}, DTypeError, "exp: expected tensors, got scalar"),
    ("from_scalar", (f32(),), {}, DTypeError, "from_scalar: expected run-time scalars"),
    ("select", (f32(3), f32(3), f32(3)), {}, DTypeError, "select: the condition is float32"),
    ("reduce_sum", (f32(3),), {}, VerifyError, "reduce_sum needs the attribute axes"),
    ("reduce_sum", (f32(3),), {"axes": (0,), "axis": 1}, VerifyError, "reduce_sum has no attribute axis"),
    ("reduce_sum", (f32(3),), {"axes": 0}, VerifyError, "attribute axes is 0, not tuple"),
    ("reduce_sum", (f32(3),), {"axes": (-1,)}, ShapeError, r"axes is \(-1,\), but must be distinct"),
    ("argmax", (f32(0),), {"axis": 0, "dtype": dtypes.int32}, ShapeError, "argmax: axis 0 .* is empty"),
    ("argmax", (f32(3),), {"axis": 0, "dtype": dtypes.float32}, DTypeError, "argmax: attribute dtype is float32"),
    ("broadcast", (f32(3),), {"shape": (4,), "dims": (0,)}, ShapeError, "dimension 0 of .* cannot become 4"),
    ("broadcast", (f32(3, 3),), {"shape": (3, 3), "dims": (1, 0)}, ShapeError, "must rise"),
    ("reshape", (f32(3),), {"shape": (4,)}, ShapeError, "has 3 elements, but shape .* has 4"),
    ("transpose", (f32(3, 3),), {"permutation": (0,)}, ShapeError, "does not name each"),
    ("slice", (f32(3),), {"starts": (2,), "limits": (4,), "steps": (1,)}, ShapeError, r"\[2:4\] does not lie within"),
    ("slice", (f32(3),), {"starts": (0,), "limits": (3,), "steps": (0,)}, ShapeError, "steps is .* >= 1"),
    ("pad", (f32(3), f32(1)), {"low": (0,), "high": (0,), "interior": (0,)}, ShapeError, "not 0-d"),
    ("pad", (f32(3), f32()), {"low": (-1,), "high": (0,), "interior": (0,)}, ShapeError, "low is .* >= 0"),
    ("concat", (f32(3, 2), f32(3, 3)), {"axis": 0}, ShapeError, "operand 1 .* differs"),
    ("concat", (), {"axis": 0}, ShapeError, "at least one"),
    ("gather", (f32(3), f32(3)), {"axis": 0}, DTypeError, "indices operand is float32"),
    ("gather", (f32(0), I32), {"axis": 0}, ShapeError, "nothing to take"),
    ("scatter", (f32(3), I32, f32(4)), {"axis": 0, "kind": "set"}, ShapeError, "updates are .* is needed"),
    ("scatter", (f32(3), I32, f32(3)), {"axis": 0, "kind": "mean"}, ShapeError, "kind is 'mean'"),
    ("bitcast", (f32(3),), {"dtype": dtypes.int16}, DTypeError, "widths must be equal"),
    ("dot_general", (f32(3, 4), f32(5, 6)), {"batch": ((), ()), "contract": ((1,), (0,)), "dtype": dtypes.float32},
     ShapeError, "axis 1 of .* and axis 0 of .* differ"),
    ("dot_general", (f32(3), f32(3)), {"batch": ((0,), (0,)), "contract": ((0,), (0,)), "dtype": dtypes.float32},
     ShapeError, "must be distinct"),
    ("convolution", (f32(1, 3), f32(4, 3)), {**WINDOW, "groups": 1}, ShapeError, "not .N, C, spatial"),
    ("convolution", (f32(1, 3, 8), f32(4, 2, 3)), {**WINDOW, "groups": 1}, ShapeError, "do not fit"),
    ("convolution", (f32(1, 3, 2), f32(4, 3, 3)), {**WINDOW, "groups": 1}, ShapeError, "window of 3 .* does not fit"),
    ("scan", (f32(3),), {"axis": 1, "kind": "sum"}, ShapeError, r"axis is 1, outside \[0, 1\)"),
    ("sort", (f32(3),), {"axis": -1}, ShapeError, "count negative axes from the end first"),
    ("random_bits", (f32(2), f32(2)), {"shape": (3,)}, DTypeError, "the key is float32"),
    ("matmul", (f32(3, 4), f32(3, 4)), {}, ShapeError, "matmul: the last axis"),
    ("top_k", (f32(3),), {"k": 4, "axis": 0, "largest": True}, ShapeError, "fewer than 4"),
    ("layer_norm", (f32(3, 4), f32(5), f32(4)), {"axis": 1}, ShapeError, "layer_norm"),
    ("batch_norm", (f32(3, 4), *[f32(3)] * 4), {}, ShapeError, "scale is .* but x has 4 channels"),
    ("lstm_cell", (f32(2, 3), f32(2, 5), f32(2, 5), f32(20, 3), f32(20, 5), f32(5)), {}, ShapeError, "operand 5 is"),
    ("resize", (f32(1, 3),), {"sizes": (1, 4), "mode": "area", "coordinates": "asymmetric"},
     ShapeError, "mode is 'area'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "types", "attributes", "error", "message"), REFUSED)
def test_errors_name_what_is_wrong(name: str, types: Any, attributes: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        RECORDS[name].infer_types(types, attributes)


def test_numpy_integers_are_no_attributes() -> None:
    with pytest.raises((VerifyError, ShapeError)):
        infer("scan", f32(3), kind="sum", axis=np.int64(0))
