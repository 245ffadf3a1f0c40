"""Lowered programs give what the interpreter gives, on every kind of target."""

from __future__ import annotations

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ir import TensorType, Value
from oarlock.ops import ArrayBuilder

F32 = dtypes.float32
NO_BATCH = ((), ())


def t(*shape: int, dtype: DType = F32) -> TensorType:
    return TensorType(dtype, shape)


def softmax(b: ArrayBuilder, x: Value) -> Value:
    axis = (len(x.type.shape) - 1,)
    shifted = b("subtract", x, b("reduce_max", x, axes=axis, keepdims=True))
    positive = b("multiply", shifted, shifted)
    return b("divide", positive, b("reduce_sum", positive, axes=axis, keepdims=True))


def dot(b: ArrayBuilder, x: Value, y: Value, batch, contract, dtype: DType = F32) -> Value:
    return b("dot_general", x, y, batch=batch, contract=contract, dtype=dtype)


def conv(b: ArrayBuilder, x: Value, w: Value, strides, padding, dilation, groups: int = 1) -> Value:
    return b("convolution", x, w, strides=strides, padding=padding, dilation=dilation, groups=groups)


POINTWISE = {
    "bias": ([t(5, 7), t(7)], lambda b, x, y: b("multiply", b("add", x, y), x)),
    "channel_bias": ([t(2, 3, 4, 5), t(3, 1, 1)], lambda b, x, y: b("add", x, y)),
    "scalar": ([t(), t()], lambda b, x, y: b("add", x, y)),
    "iota": ([t(5, 4)], lambda b, x: b("add", x, b("iota", shape=(5, 4), axis=1, dtype=F32))),
    "slice": ([t(9, 6)], lambda b, x: b("slice", b("multiply", x, x), starts=(1, 0), limits=(8, 5), steps=(2, 1))),
    "reverse": ([t(9, 6)], lambda b, x: b("reverse", x, axes=(0, 1))),
    "pad": (
        [t(3, 4)],
        lambda b, x: b("pad", x, b.constant(np.float32(2)), low=(1, 2), high=(0, 1), interior=(1, 0)),
    ),
    "concat": ([t(3, 4), t(3, 2)], lambda b, x, y: b("concat", x, y, b("multiply", x, x), axis=1)),
    "gather": ([t(5, 4), t(2, 3, dtype=dtypes.int64)], lambda b, x, i: b("gather", x, i, axis=0)),
    "gather_inner": ([t(5, 4), t(2, 3, dtype=dtypes.uint8)], lambda b, x, i: b("gather", x, i, axis=1)),
    "transpose": (
        [t(4, 5, 6)],
        lambda b, x: b("add", b("transpose", x, permutation=(2, 0, 1)), b("transpose", x, permutation=(2, 0, 1))),
    ),
    "reshape": ([t(4, 6), t(8)], lambda b, x, y: b("add", b("reshape", b("multiply", x, x), shape=(3, 8)), y)),
    "random": (
        [t(2, dtype=dtypes.uint32), t(2, dtype=dtypes.uint32)],
        lambda b, k, c: b("random_bits", k, c, shape=(3, 5)),
    ),
    "many_parts": ([t(3, 2)] * 20, lambda b, *x: b("concat", *x, axis=1)),
    "returned_views": (
        [t(2, 3)],
        lambda b, x: [
            x,
            b("reshape", x, shape=(6,)),
            b("reshape", b("multiply", x, x), shape=(6,)),
            b("broadcast", x, shape=(4, 2, 3), dims=(1, 2)),
        ],
    ),
    "several_results": (
        [t(2, 3), t(2, 3)],
        lambda b, x, y: [b("multiply", x, y), b("subtract", x, y), b("add", b("multiply", x, y), y)],
    ),
    "long": ([t(2500)], lambda b, x: b("multiply", x, x)),
}

ROWS = {
    "softmax": ([t(5, 70)], softmax),
    "softmax_of_short_rows": ([t(5, 7)], softmax),
    "first_axis": ([t(70, 9)], lambda b, x: b("reduce_sum", x, axes=(0,), keepdims=False)),
    "all": ([t(70, 9)], lambda b, x: b("reduce_sum", x, axes=(0, 1), keepdims=False)),
    "batch_and_space": (
        [t(4, 5, 6, 7)],
        lambda b, x: b("reduce_sum", b("multiply", x, x), axes=(0, 2, 3), keepdims=True),
    ),
    "alternating": ([t(4, 5, 6, 7)], lambda b, x: b("reduce_sum", b("multiply", x, x), axes=(1, 3), keepdims=False)),
    "with_a_one": ([t(4, 5, 6, 1, 7)], lambda b, x: b("reduce_max", x, axes=(1, 3), keepdims=False)),
    "empty": ([t(0, 3)], lambda b, x: b("reduce_sum", x, axes=(0,), keepdims=False)),
    "columns_and_elements": (
        [t(9, 70)],
        lambda b, x: [b("multiply", x, x), b("reduce_max", b("multiply", x, x), axes=(0,), keepdims=False)],
    ),
    "argmax": ([t(3, 7, 2)], lambda b, x: b("argmax", x, axis=1, keepdims=False, dtype=dtypes.int64)),
    "half": (
        [t(3, 300, dtype=dtypes.float16)],
        lambda b, x: b("reduce_sum", x, axes=(1,), keepdims=False),
    ),
    "bool": ([t(3, 100, dtype=dtypes.bool_)], lambda b, x: b("reduce_min", x, axes=(1,), keepdims=False)),
}

CONTRACTIONS = {
    "product_with_bias": (
        [t(7, 5), t(5, 37), t(37)],
        lambda b, x, y, z: b("add", dot(b, x, y, NO_BATCH, ((1,), (0,))), z),
    ),
    "right_transposed": ([t(5, 19), t(7, 19)], lambda b, x, y: dot(b, x, y, NO_BATCH, ((1,), (1,)))),
    "left_transposed": ([t(5, 7), t(5, 19)], lambda b, x, y: dot(b, x, y, NO_BATCH, ((0,), (0,)))),
    "both_transposed": ([t(33, 32), t(32, 33)], lambda b, x, y: dot(b, x, y, NO_BATCH, ((0,), (1,)))),
    "behind_transpose": (
        [t(13, 9), t(37, 9)],
        lambda b, x, y: dot(b, x, b("transpose", y, permutation=(1, 0)), NO_BATCH, ((1,), (0,))),
    ),
    "matrix_vector": ([t(13, 19), t(19)], lambda b, x, y: dot(b, x, y, NO_BATCH, ((1,), (0,)))),
    "vector_matrix": ([t(19), t(19, 40)], lambda b, x, y: dot(b, x, y, NO_BATCH, ((0,), (0,)))),
    "inner": ([t(19), t(19)], lambda b, x, y: dot(b, x, y, NO_BATCH, ((0,), (0,)))),
    "batched": ([t(2, 2, 3, 5), t(2, 2, 5, 9)], lambda b, x, y: dot(b, x, y, ((0, 1), (0, 1)), ((3,), (2,)))),
    "attention_scores": (
        [t(2, 3, 2, 9), t(2, 2, 5, 9)],
        lambda b, x, y: dot(b, b("transpose", x, permutation=(0, 2, 1, 3)), y, ((0, 1), (0, 1)), ((3,), (3,))),
    ),
    "two_contracted": ([t(3, 4, 5), t(4, 5, 9)], lambda b, x, y: dot(b, x, y, NO_BATCH, ((1, 2), (0, 1)))),
    "nothing_contracted": ([t(3), t(9)], lambda b, x, y: dot(b, x, y, NO_BATCH, NO_BATCH)),
    "tiny": ([t(2, 3), t(3, 2)], lambda b, x, y: dot(b, x, y, NO_BATCH, ((1,), (0,)))),
    "integers": (
        [t(13, 9, dtype=dtypes.int32), t(9, 37, dtype=dtypes.int32)],
        lambda b, x, y: dot(b, x, y, NO_BATCH, ((1,), (0,)), dtypes.int32),
    ),
    "conv_bias_relu": (
        [t(2, 2, 3, 11), t(3, 2, 3, 3), t(3)],
        lambda b, x, w, z: b(
            "maximum",
            b("add", conv(b, x, w, (1, 1), ((1, 1), (1, 1)), (1, 1)), b("reshape", z, shape=(1, 3, 1, 1))),
            b.constant(np.float32(0)),
        ),
    ),
    "conv_1x1": ([t(2, 4, 3, 11), t(9, 4, 1, 1)], lambda b, x, w: conv(b, x, w, (1, 1), ((0, 0),) * 2, (1, 1))),
    "conv_strided": ([t(2, 2, 5, 19), t(3, 2, 3, 3)], lambda b, x, w: conv(b, x, w, (2, 2), ((1, 1),) * 2, (1, 1))),
    "conv_dilated": ([t(1, 2, 7, 19), t(3, 2, 3, 3)], lambda b, x, w: conv(b, x, w, (1, 2), ((0, 0),) * 2, (1, 2))),
    "conv_stride_3": ([t(1, 2, 3, 50), t(3, 2, 1, 5)], lambda b, x, w: conv(b, x, w, (1, 3), ((0, 0), (2, 0)), (1, 1))),
    "conv_skips_columns": (
        [t(1, 2, 5, 50), t(3, 2, 1, 1)],
        lambda b, x, w: conv(b, x, w, (2, 2), ((0, 0),) * 2, (1, 1)),
    ),
    "depthwise": ([t(2, 3, 5, 13), t(3, 1, 3, 3)], lambda b, x, w: conv(b, x, w, (1, 1), ((1, 1),) * 2, (1, 1), 3)),
    "depthwise_strided": (
        [t(1, 2, 7, 13), t(2, 1, 5, 3)],
        lambda b, x, w: conv(b, x, w, (2, 2), ((2, 2), (1, 1)), (1, 1), 2),
    ),
    "conv_groups": ([t(1, 4, 3, 9), t(4, 2, 3, 3)], lambda b, x, w: conv(b, x, w, (1, 1), ((1, 1),) * 2, (1, 1), 2)),
    "conv_1d": ([t(2, 6, 19), t(8, 6, 3)], lambda b, x, w: conv(b, x, w, (1,), ((1, 1),), (1,))),
    "conv_3d": ([t(1, 2, 4, 5, 9), t(3, 2, 2, 2, 2)], lambda b, x, w: conv(b, x, w, (1,) * 3, ((0, 0),) * 3, (1,) * 3)),
    "window": (
        [t(1, 2, 6, 7)],
        lambda b, x: b(
            "window_reduce",
            x,
            kind="max",
            window=(1, 1, 3, 2),
            strides=(1, 1, 2, 1),
            padding=((0, 0), (0, 0), (1, 1), (0, 0)),
            dilation=(1, 1, 1, 1),
        ),
    ),
}

SPECIAL = np.array([3, 1, np.nan, 2, 1, 5, np.inf, -1, 1, 0, np.nan, -np.inf], np.float32)

ALONE = {
    "scatter_set": (
        [t(6, 3), t(4, dtype=dtypes.int32), t(4, 3)],
        lambda b, x, i, u: b("scatter", x, i, u, axis=0, kind="set"),
    ),
    "scatter_add": (
        [t(3, 200), t(2, 5, dtype=dtypes.int64), t(3, 2, 5)],
        lambda b, x, i, u: b("scatter", x, i, u, axis=1, kind="add"),
    ),
    "scatter_maximum": (
        [t(300), t(50, dtype=dtypes.int64), t(50)],
        lambda b, x, i, u: b("scatter", x, i, u, axis=0, kind="maximum"),
    ),
    "sort_middle_axis": ([t(2, 19, 2)], lambda b, x: list(b.many("sort", x, axis=1, descending=False))),
    "sort_bool": ([t(13, dtype=dtypes.bool_)], lambda b, x: list(b.many("sort", x, axis=0, descending=True))),
    "scan": ([t(3, 7)], lambda b, x: b("scan", x, kind="sum", axis=1, reverse=False, exclusive=False)),
    "scan_reverse_exclusive": ([t(3, 7)], lambda b, x: b("scan", x, kind="prod", axis=0, reverse=True, exclusive=True)),
    "scan_long": (
        [t(1, 1100, dtype=dtypes.int32)],
        lambda b, x: b("scan", x, kind="sum", axis=1, reverse=True, exclusive=True),
    ),
}


@pytest.mark.parametrize("name", sorted(POINTWISE))
def test_pointwise_equals_interpreter(check, name):
    check(*POINTWISE[name])


@pytest.mark.parametrize("name", sorted(ROWS))
def test_rows_equal_interpreter(check, name):
    check(*ROWS[name], rtol=1e-3 if name == "half" else 1e-5)


@pytest.mark.parametrize("name", sorted(CONTRACTIONS))
def test_contraction_equals_interpreter(check, name):
    check(*CONTRACTIONS[name])


@pytest.mark.parametrize("name", sorted(ALONE))
def test_lone_operator_equals_interpreter(check, name):
    check(*ALONE[name])


@pytest.mark.parametrize("descending", [False, True])
def test_sort_puts_nan_last_and_keeps_order(check, descending):
    check([t(12)], lambda b, x: list(b.many("sort", x, axis=0, descending=descending)), [SPECIAL])


def test_gather_clamps_wide_indices(check):
    indices = np.array([2**40, -(2**40), 1], np.int64)
    operands = [np.arange(5, dtype=np.float32), indices]
    check([t(5), t(3, dtype=dtypes.int64)], lambda b, x, i: b("gather", x, i, axis=0), operands)


def test_scatter_drops_what_lies_outside(check):
    operands = [np.zeros(4, np.float32), np.array([-1, 4, 2, 2**35], np.int64), np.ones(4, np.float32)]
    types = [t(4), t(4, dtype=dtypes.int64), t(4)]
    check(types, lambda b, x, i, u: b("scatter", x, i, u, axis=0, kind="add"), operands)


def test_groups_of_one_structure_read_their_own_slices(check):
    def body(b, x):
        state = b("slice", x, starts=(0, 0), limits=(1, 5), steps=(1, 1))
        for row in range(1, 7):
            here = b("slice", x, starts=(row, 0), limits=(row + 1, 5), steps=(1, 1))
            state = b("abs", b("subtract", here, b("reverse", state, axes=(1,))))
        return state

    calls = check([t(7, 5)], body)
    assert len({c.function.attributes["name"] for c in calls}) < len(calls)
