"""Element-wise functions and operators, compared with NumPy on every dtype they take; promotion; Python scalars."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import oarlock as ol

FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
SHAPES = [(), (0,), (5,), (2, 3)]


def values(dtype: Any, shape: tuple[int, ...], low: float = -5, high: float = 5, seed: int = 0) -> np.ndarray[Any, Any]:
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else int(low), int(high) + 1, shape).astype(dtype)
    return np.asarray(rng.uniform(low, high, shape)).astype(dtype)


UNARY = [
    ("acos", -1, 1),
    ("acosh", 1, 9),
    ("asin", -1, 1),
    ("asinh", -5, 5),
    ("atan", -5, 5),
    ("atanh", -0.9, 0.9),
    ("ceil", -5, 5),
    ("cos", -5, 5),
    ("cosh", -3, 3),
    ("exp", -5, 5),
    ("exp2", -5, 5),
    ("expm1", -2, 2),
    ("floor", -5, 5),
    ("isfinite", -5, 5),
    ("isinf", -5, 5),
    ("isnan", -5, 5),
    ("log", 0.1, 9),
    ("log10", 0.1, 9),
    ("log1p", -0.9, 5),
    ("log2", 0.1, 9),
    ("round", -5, 5),
    ("signbit", -5, 5),
    ("sin", -5, 5),
    ("sinh", -3, 3),
    ("sqrt", 0, 9),
    ("tan", -1, 1),
    ("tanh", -3, 3),
    ("trunc", -5, 5),
    ("abs", -5, 5),
    ("negative", -5, 5),
    ("positive", -5, 5),
    ("sign", -5, 5),
    ("square", -5, 5),
    ("reciprocal", 0.5, 5),
]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize(("name", "low", "high"), UNARY, ids=[row[0] for row in UNARY])
def test_unary_function_is_numpys(name: str, low: float, high: float, dtype: Any, same: Callable[..., None]) -> None:
    for shape in SHAPES:
        x = values(dtype, shape, low, high)
        wide = x.astype(np.float64)
        expected = getattr(np, "rint" if name == "round" else name)(wide)
        same(getattr(ol, name)(ol.asarray(x)), expected if expected.dtype == bool else expected.astype(dtype), ulp=4)


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize(
    "name",
    [
        "abs",
        "negative",
        "sign",
        "square",
        "ceil",
        "floor",
        "trunc",
        "round",
        "isfinite",
        "isnan",
        "isinf",
        "signbit",
        "positive",
        "bitwise_invert",
    ],
)
def test_unary_function_on_integers(name: str, dtype: Any, same: Callable[..., None]) -> None:
    x = values(dtype, (7,))
    expected = getattr(np, name)(x) if name != "signbit" else x < 0
    same(getattr(ol, name)(ol.asarray(x)), expected)


ARITHMETIC = ["add", "subtract", "multiply", "floor_divide", "remainder", "fmod", "maximum", "minimum"]
COMPARE = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]


@pytest.mark.parametrize("dtype", [*FLOATS[:3], *INTEGERS], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("name", [*ARITHMETIC, *COMPARE, "logical_and", "logical_or", "logical_xor"])
def test_binary_function_is_numpys(name: str, dtype: Any, same: Callable[..., None]) -> None:
    for left, right in [((), (3,)), ((2, 1), (1, 3)), ((2, 3), (3,)), ((0, 2), (2,))]:
        x, y = values(dtype, left, seed=1), values(dtype, right, 1, 5, seed=2)
        y[...] += y == 0
        same(getattr(ol, name)(ol.asarray(x), ol.asarray(y)), getattr(np, name)(x, y), ulp=2)


@pytest.mark.parametrize("dtype", [np.bool_, *INTEGERS], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bitwise_function_is_numpys(name: str, dtype: Any, same: Callable[..., None]) -> None:
    x, y = values(dtype, (9,), seed=1), values(dtype, (9,), seed=2)
    same(getattr(ol, name)(ol.asarray(x), ol.asarray(y)), getattr(np, name)(x, y))


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: np.dtype(d).name)
def test_shifts_are_numpys(dtype: Any, same: Callable[..., None]) -> None:
    x, by = values(dtype, (9,), seed=1), values(dtype, (9,), 0, 6, seed=2)
    same(ol.bitwise_left_shift(ol.asarray(x), ol.asarray(by)), np.left_shift(x, by))
    same(ol.bitwise_right_shift(ol.asarray(x), ol.asarray(by)), np.right_shift(x, by))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["divide", "atan2", "hypot", "logaddexp", "copysign", "pow", "nextafter"])
def test_binary_float_function_is_numpys(name: str, dtype: Any, same: Callable[..., None]) -> None:
    x, y = values(dtype, (4, 1), 0.1, 3, seed=1), values(dtype, (5,), -3, 3, seed=2)
    same(getattr(ol, name)(ol.asarray(x), ol.asarray(y)), getattr(np, name)(x, y), ulp=8)


def test_special_values_of_floats(same: Callable[..., None]) -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0], np.float32)
    t = ol.asarray(x)
    for name in ("isnan", "isinf", "isfinite", "signbit"):
        same(getattr(ol, name)(t), getattr(np, name)(x))
    same(ol.maximum(t, 0.5), np.maximum(x, np.float32(0.5)))
    same(ol.hypot(t, ol.asarray(np.full(6, np.inf, np.float32))), np.full(6, np.inf, np.float32))
    assert ol.logaddexp(ol.asarray(-np.inf), ol.asarray(-np.inf)).item() == -np.inf


OPERATORS = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.lshift,
    operator.rshift,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.__name__)
def test_operators_take_tensors_numbers_and_numpy_from_both_sides(op: Any, same: Callable[..., None]) -> None:
    x, y = np.array([1, 2, 3, 4]), np.array([4, 3, 2, 1])
    t = ol.asarray(x)
    same(op(t, ol.asarray(y)), op(x, y))
    same(op(t, 2), op(x, 2))
    same(op(3, t), op(3, x))
    same(op(t, y), op(x, y))
    same(op(y, t), op(y, x))


@pytest.mark.parametrize("op", [operator.iadd, operator.isub, operator.imul, operator.ifloordiv, operator.ior])
def test_in_place_operators_rebind_the_same_tensor(op: Any, same: Callable[..., None]) -> None:
    x = np.array([1, 2, 3, 4])
    t = alias = ol.asarray(x)
    before = t + 0
    t = op(t, 3)
    assert t is alias
    same(t, op(x.copy(), 3))
    same(before, x)


def test_in_place_operator_keeps_dtype_and_shape() -> None:
    t = ol.asarray(np.array([1, 2]))
    with pytest.raises(ol.errors.DTypeError, match="in place"):
        t += 0.5
    with pytest.raises(ol.errors.DTypeError, match="in place"):
        t += ol.ones((3, 2), dtype=ol.int64)


def test_unary_operators(same: Callable[..., None]) -> None:
    x = np.array([1, -2, 3])
    t = ol.asarray(x)
    same(-t, -x)
    same(+t, x)
    same(abs(t), abs(x))
    same(~t, ~x)
    same(t / 2, (x / 2).astype(np.float32))


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (ol.int8, ol.int16, ol.int16), (ol.uint8, ol.int8, ol.int16), (ol.float32, ol.float64, ol.float64),
        (ol.int64, ol.float32, ol.float32), (ol.bool, ol.int8, ol.int8), (ol.float16, ol.bfloat16, ol.float32),
        (ol.uint32, ol.int32, ol.int64),
    ],
)  # fmt: skip
def test_dtypes_promote(left: ol.DType, right: ol.DType, result: ol.DType) -> None:
    x, y = ol.ones((2,), dtype=left), ol.ones((2,), dtype=right)
    assert (x * y).dtype == (y * x).dtype == ol.result_type(x, y) == result
    assert (x * y).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("dtype", "scalar", "result"),
    [(ol.float16, 2, ol.float16), (ol.int8, 2, ol.int8), (ol.float64, 0.5, ol.float64), (ol.int32, 0.5, ol.float32),
     (ol.bool, 1, ol.int64), (ol.bfloat16, 1.5, ol.bfloat16), (ol.uint8, True, ol.uint8)],
)  # fmt: skip
def test_python_scalars_do_not_widen(dtype: ol.DType, scalar: float, result: ol.DType) -> None:
    assert (ol.ones((2,), dtype=dtype) * scalar).dtype == result
    assert (ol.ones((2,), dtype=dtype) * scalar).tolist() == [scalar, scalar]


@pytest.mark.parametrize(("dtype", "scalar"), [(ol.int8, 128), (ol.uint8, -1), (ol.int64, 2**63)])
def test_integer_that_does_not_fit_is_refused(dtype: ol.DType, scalar: int) -> None:
    with pytest.raises(ol.errors.DTypeError, match="does not fit"):
        ol.ones((2,), dtype=dtype) + scalar


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
def test_scalars_are_rounded_once(dtype: Any) -> None:
    tricky = 1.0 + 2.0**-8 + 2.0**-40  # bfloat16 by way of float32 would round down to even
    expected = np.asarray(tricky).astype(dtype)
    t = ol.zeros((1,), dtype=np.dtype(dtype).name) + tricky
    assert np.asarray(t)[0] == expected
    assert (ol.zeros((1,), dtype=np.dtype(dtype).name) + 1e300).item() == (1e300 if dtype is np.float64 else np.inf)


def test_clip_and_where(same: Callable[..., None]) -> None:
    x = np.array([-3.0, 0.5, 9.0, np.nan], np.float32)
    t = ol.asarray(x)
    same(ol.clip(t, -1, 2), np.clip(x, -1, 2))
    same(ol.clip(t, max=1.0), np.minimum(x, np.float32(1)))
    same(ol.clip(t, min=ol.zeros((2, 1))), np.maximum(x, np.zeros((2, 1), np.float32)))
    same(ol.clip(ol.asarray(np.arange(5, dtype=np.int8)), 1, 3), np.clip(np.arange(5, dtype=np.int8), 1, 3))
    with pytest.raises(ol.errors.DTypeError, match="clip"):
        ol.clip(ol.arange(3), 0.5, 1.5)
    same(ol.where(t > 0, t, 0), np.where(x > 0, x, np.float32(0)))
    same(ol.where(t > 0, 1.0, 2.0), np.where(x > 0, np.float32(1), np.float32(2)))
    same(ol.where(ol.asarray([True, False]), ol.asarray(np.int8(1)), ol.asarray([1, 2])), np.array([1, 2]))


def test_refusals_say_what_to_do() -> None:
    x = ol.ones((2, 3))
    with pytest.raises(ol.errors.ShapeError, match="broadcast"):
        x + ol.ones((4,))
    with pytest.raises(ol.errors.UnsupportedError, match="complex"):
        ol.add(x, 1j)  # type: ignore[arg-type]
    with pytest.raises(ol.errors.DTypeError, match=r"ol\.asarray"):
        ol.add(x, "1")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        x + "1"  # type: ignore[operator]
    with pytest.raises(ol.errors.DTypeError):
        ol.ones((2,), dtype=ol.bool) + ol.ones((2,), dtype=ol.bool)
    with pytest.raises(ol.errors.DTypeError):
        x & x


def test_relu_family(same: Callable[..., None]) -> None:
    x = values(np.float32, (4, 9))
    t = ol.asarray(x)
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    soft = e / e.sum(-1, keepdims=True)
    wide = x.astype(np.float64)
    sigmoid = 1 / (1 + np.exp(-wide))
    for result, expected in [
        (ol.relu(t), np.maximum(x, 0)), (ol.sigmoid(t), sigmoid), (ol.silu(t), wide * sigmoid),
        (ol.softmax(t), soft), (ol.sum(ol.softmax(t, axis=0), axis=0), np.ones(9)), (ol.log_softmax(t), np.log(soft)),
        (ol.softplus(t), np.log1p(np.exp(wide))),
        (ol.gelu(t, approximate="tanh"), wide / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))),
        (ol.layer_norm(t), (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)),
        (ol.layer_norm(t, ol.full((9,), 2.0), ol.ones((9,))) / 2 - 0.5, np.asarray(ol.layer_norm(t))),
    ]:  # fmt: skip
        np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-5, atol=1e-6)
