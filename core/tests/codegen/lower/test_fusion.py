"""What shares a kernel and what does not."""

from __future__ import annotations

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.ir import TensorType

F32 = dtypes.float32


def t(*shape: int) -> TensorType:
    return TensorType(F32, shape)


def mean_and_variance(b, x):
    count = b.constant(np.float32(90))
    mean = b("divide", b("reduce_sum", x, axes=(1,), keepdims=True), count)
    centred = b("subtract", x, mean)
    variance = b("divide", b("reduce_sum", b("multiply", centred, centred), axes=(1,), keepdims=True), count)
    return b("divide", centred, b("sqrt", b("add", variance, b.constant(np.float32(1e-5)))))


ONE_KERNEL = {
    "chain": ([t(4, 5), t(4, 5)], lambda b, x, y: b("multiply", b("add", x, y), b("subtract", x, y))),
    "diamond": ([t(4, 5)], lambda b, x: b("add", b("abs", x), b("negative", x))),
    "normalisation": ([t(4, 90)], mean_and_variance),
    "reduction_of_product": (
        [t(4, 90), t(4, 90)],
        lambda b, x, y: b("reduce_sum", b("multiply", x, y), axes=(1,), keepdims=False),
    ),
    "product_with_epilogue": (
        [t(8, 9), t(9, 16), t(16)],
        lambda b, x, y, z: b(
            "abs", b("add", b("dot_general", x, y, batch=((), ()), contract=((1,), (0,)), dtype=F32), z)
        ),
    ),
}


def read_elsewhere(move):
    """An operator's own place, and the place that ``move`` reads it at, met again by one operator."""

    def program(b, x):
        y = b("abs", x)
        return b("add", b("negative", y), b("negative", move(b, y)))

    return program


SEVERAL = {
    "reversed_and_in_place": (2, [t(7)], read_elsewhere(lambda b, y: b("reverse", y, axes=(0,)))),
    "transposed_and_in_place": (2, [t(5, 5)], read_elsewhere(lambda b, y: b("transpose", y, permutation=(1, 0)))),
    "gathered_and_in_place": (
        2,
        [t(4)],
        read_elsewhere(lambda b, y: b("gather", y, b.constant(np.array([2, 0, 3, 1], np.int32)), axis=0)),
    ),
    "reductions_of_different_axes": (
        2,
        [t(6, 7)],
        lambda b, x: [
            b("reduce_sum", b("abs", x), axes=(0,), keepdims=False),
            b("reduce_sum", b("abs", x), axes=(1,), keepdims=False),
        ],
    ),
    "read_elsewhere": (
        2,
        [t(6, 6)],
        lambda b, x: b("add", b("abs", x), b("transpose", b("abs", x), permutation=(1, 0))),
    ),
}


@pytest.mark.parametrize("name", sorted(ONE_KERNEL))
def test_fuses_into_one_kernel(check, name):
    assert len(check(*ONE_KERNEL[name])) == 1


@pytest.mark.parametrize("name", sorted(SEVERAL))
def test_keeps_apart_what_must_be(check, name):
    expected, types, body = SEVERAL[name]
    assert len(check(types, body)) == expected


def test_equal_kernels_have_equal_names_across_sizes(lowered_names):
    small = lowered_names([t(40, 5), t(5)], lambda b, x, y: b("add", x, y))
    large = lowered_names([t(900, 33), t(33)], lambda b, x, y: b("add", x, y))
    assert small == large


def test_kernels_bind_no_more_buffers_than_the_target_allows(check, target):
    def body(b, *x):
        total = x[0]
        for other in x[1:]:
            total = b("add", total, other)
        return total

    calls = check([t(7)] * 12, body)
    assert max(len(c.buffers) for c in calls) <= target.limits.max_buffers
