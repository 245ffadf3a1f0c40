"""dot_general, convolution and its transpose against einsum and plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oarlock import dtypes


def test_dot_general_equals_einsum(call: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 3, 4, 5)), rng.standard_normal((5, 6, 2, 3))
    found = call("dot_general", x, y, batch=((0,), (2,)), contract=((3, 1), (0, 3)), dtype=dtypes.float64)
    np.testing.assert_allclose(found, np.einsum("bckd,dnbc->bkn", x, y), rtol=1e-12, atol=1e-12)


def test_dot_general_integers_wrap_in_the_result_dtype(call: Any) -> None:
    x = np.full(4, 100, np.int8)
    axes: Any = {"batch": ((), ()), "contract": ((0,), (0,))}
    assert call("dot_general", x, x, **axes, dtype=dtypes.int32) == 40000
    assert call("dot_general", x, x, **axes, dtype=dtypes.int8) == np.int64(40000).astype(np.int8)


def loops(x: np.ndarray, w: np.ndarray, strides: Any, padding: Any, dilation: Any, groups: int) -> np.ndarray:
    x = np.pad(x, ((0, 0), (0, 0), *padding))
    kept, per = x.shape[1] // groups, w.shape[0] // groups
    size = [
        (n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(x.shape[2:], w.shape[2:], dilation, strides, strict=True)
    ]
    out = np.zeros((x.shape[0], w.shape[0], *size))
    for at in np.ndindex(out.shape):
        group = at[1] // per
        view = tuple(
            slice(a * s, a * s + (k - 1) * d + 1, d)
            for a, s, k, d in zip(at[2:], strides, w.shape[2:], dilation, strict=True)
        )
        out[at] = (x[(at[0], slice(group * kept, (group + 1) * kept), *view)] * w[at[1]]).sum()
    return out


@pytest.mark.parametrize(
    ("x", "w", "strides", "padding", "dilation", "groups"),
    [
        ((2, 3, 5, 6), (4, 3, 3, 2), (1, 2), ((1, 0), (0, 2)), (1, 2), 1),
        ((1, 4, 7), (6, 2, 3), (2,), ((2, 1),), (2,), 2),
        ((1, 3, 4, 4), (3, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 3),
    ],
)
def test_convolution_equals_loops(
    call: Any, x: Any, w: Any, strides: Any, padding: Any, dilation: Any, groups: int
) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(x), rng.standard_normal(w)
    found = call("convolution", a, b, strides=strides, padding=padding, dilation=dilation, groups=groups)
    np.testing.assert_allclose(found, loops(a, b, strides, padding, dilation, groups), rtol=1e-12, atol=1e-12)


def test_conv_transpose_is_the_adjoint_of_convolution(call: Any) -> None:
    rng = np.random.default_rng(0)
    geometry: Any = {"strides": (2, 1), "padding": ((1, 0), (2, 1)), "dilation": (1, 2), "groups": 2}
    x, w = rng.standard_normal((2, 4, 8, 7)), rng.standard_normal((6, 2, 3, 2))
    y = call("convolution", x, w, **geometry)
    z = rng.standard_normal(y.shape)
    back = call("conv_transpose", z, w, **geometry, output_padding=(0, 0))
    extra = tuple(n - m for n, m in zip(x.shape[2:], back.shape[2:], strict=True))
    back = call("conv_transpose", z, w, **geometry, output_padding=extra) if any(extra) else back
    np.testing.assert_allclose((y * z).sum(), (x * back).sum(), rtol=1e-10)


def test_resize_linear_of_a_ramp_stays_a_ramp(call: Any) -> None:
    x = np.arange(5.0).reshape(1, 1, 5)
    corners = call("resize", x, sizes=(1, 1, 9), mode="linear", coordinates="align_corners")
    np.testing.assert_allclose(corners[0, 0], np.linspace(0, 4, 9), atol=1e-12)
    half = call("resize", x, sizes=(1, 1, 10), mode="linear", coordinates="half_pixel")
    np.testing.assert_allclose(half[0, 0], np.clip((np.arange(10) + 0.5) / 2 - 0.5, 0, 4), atol=1e-12)
    cubic = call("resize", x, sizes=(1, 1, 10), mode="cubic", coordinates="half_pixel", cubic=-0.5)
    np.testing.assert_allclose(cubic[0, 0, 3:7], (np.arange(3, 7) + 0.5) / 2 - 0.5, atol=1e-12)


def test_resize_nearest_rounds_as_told(call: Any) -> None:
    x = np.arange(4).reshape(1, 1, 4)

    def nearest(rounding: str) -> Any:
        return call("resize", x, sizes=(1, 1, 8), mode="nearest", coordinates="asymmetric", rounding=rounding)[
            0, 0
        ].tolist()

    assert nearest("floor") == [0, 0, 1, 1, 2, 2, 3, 3]
    assert nearest("ceil") == [0, 1, 1, 2, 2, 3, 3, 3]
    assert nearest("round_prefer_floor") == [0, 0, 1, 1, 2, 2, 3, 3]
    assert nearest("round_prefer_ceil") == [0, 1, 1, 2, 2, 3, 3, 3]


def test_average_pool_counts_padding_only_when_told(call: Any) -> None:
    x = np.ones((1, 1, 4), np.float32)
    geometry: Any = {"window": (3,), "strides": (2,), "padding": ((1, 0),), "extra": (1,)}
    assert call("average_pool", x, **geometry)[0, 0].tolist() == [1, 1]
    counted = call("average_pool", x, **geometry, count_include_pad=True)[0, 0]
    np.testing.assert_allclose(counted, [2 / 3, 1])
    last = call("average_pool", x, window=(3,), strides=(3,), padding=((0, 0),), extra=(2,), count_include_pad=True)
    assert last[0, 0].tolist() == [1, 1]
