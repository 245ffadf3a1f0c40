"""Every generated function is within its bound, and right at special values, neighbourhoods of 2^k and beyond."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.codegen.math import BOUNDS, FUNCTIONS
from oarlock.dtypes import DType

Array = np.ndarray[Any, Any]
Evaluate = Callable[..., Array]
BINARY = ("power", "atan2", "fmod")
UNARY = tuple(name for name in FUNCTIONS if name not in BINARY)
FLOATS = (dtypes.float32, dtypes.float64)
ODD = ("expm1", "log1p", "sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf")
"""Functions whose result at a zero is that zero."""

_NUMPY = {name: "arc" + name[1:] for name in ("asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh")}
"""Where NumPy has another name."""
SLACK = 0.01
"""What the references themselves may be off, in ulp of the results."""


def wider(dtype: Any) -> Any:
    """The NumPy dtype that references are computed in; skips the test where there is none."""
    if np.dtype(dtype) == np.float32:
        return np.float64
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("no reference for float64: this platform's long double has no more digits")
    return np.longdouble


def reference(name: str, *arrays: Array) -> Array:
    """The function in a wider format."""
    with np.errstate(all="ignore"):
        wide = [x.astype(wider(x.dtype)) for x in arrays]
        if name == "fmod":
            return np.fmod(*arrays).astype(wide[0].dtype)  # exact in its own format
        if name == "erf":
            return _erf(wide[0])
        result: Array = getattr(np, _NUMPY.get(name, name))(*wide)
    return result


def _erf(x: Array) -> Array:
    if x.dtype == np.float64:
        return np.fromiter(map(math.erf, x.tolist()), np.float64, x.size)
    # 2/sqrt(pi) e^(-x^2) sum of 2^n x^(2n+1) / (2n+1)!!: terms of one sign (Abramowitz & Stegun, 7.1.6)
    limited = np.clip(np.abs(x), 0, 7)
    term = limited.copy()
    total = limited.copy()
    for n in range(1, 200):
        term = term * 2 * limited * limited / (2 * n + 1)
        total = total + term
    scaled = np.longdouble("1.12837916709551257389615890312154517") * np.exp(-limited * limited) * total
    return np.where(np.isnan(x), x, np.copysign(np.minimum(scaled, 1), x))


def error(result: Array, exact: Array) -> Array:
    """Distance in ulp of the exact value; infinity counts as the next power of two, NaN amiss as inf."""
    info = np.finfo(result.dtype)
    wide = exact.dtype.type
    limit = np.ldexp(wide(1), int(info.maxexp))
    with np.errstate(all="ignore"):
        magnitude = np.clip(np.abs(exact), wide(info.smallest_normal), wide(info.max))
        ulp = np.ldexp(wide(info.eps), np.frexp(magnitude)[1] - 1)
        distance = np.abs(np.clip(result.astype(wide), -limit, limit) - np.clip(exact, -limit, limit)) / ulp
        distance[result == exact.astype(result.dtype)] = np.minimum(distance[result == exact.astype(result.dtype)], 0.5)
    distance[np.isnan(result) & np.isnan(exact)] = 0
    distance[np.isnan(result) != np.isnan(exact)] = np.inf
    return distance


def bit_patterns(start: int, stride: int, count: int | None = None) -> Array:
    """Every ``stride``-th float32 from pattern ``start`` on: all signs, subnormals, infinities and NaN among them."""
    last = 2**32 if count is None else min(2**32, start + stride * count)
    return np.arange(start, last, stride, np.uint64).astype(np.uint32).view(np.float32)


def neighbourhoods(dtype: DType) -> Array:
    """2^k and its two neighbours for every exponent, and the least and largest values, of both signs."""
    info = np.finfo(dtype.numpy)
    powers = np.ldexp(np.ones(1, dtype.numpy), np.arange(info.minexp - info.nmant, info.maxexp))
    ends = np.array([info.smallest_subnormal, info.smallest_normal, info.max, np.inf], dtype.numpy)
    some = np.concatenate([powers, np.nextafter(powers, 0), np.nextafter(powers, np.inf), ends])
    return np.concatenate([some, -some])


SPECIAL = (
    0.0, 1.0, 2.0, 3.0, 0.5, 2.5, 1e-3, 0.625, 0.171, math.pi, math.pi / 2, 88.72284, 104.0, 709.78271289338397, 745.14,
    16777216.0, 16777218.0, 8388609.0, 9007199254740991.0, 1e22, 1e-40, 1e-45, 1e-310, 5e-324, 3.4028235e38,
    1.7976931348623157e308, math.inf, math.nan,
)  # fmt: skip


def special(dtype: DType) -> Array:
    """Values with meaning, of both signs."""
    with np.errstate(over="ignore"):
        some = np.array(SPECIAL).astype(dtype.numpy)
    return np.concatenate([some, -some])


def pairs(values: Array) -> tuple[Array, Array]:
    """The cross product of values with themselves."""
    first, second = np.meshgrid(values, values)
    return first.ravel(), second.ravel()


def same_bits(left: Array, right: Array) -> bool:
    """Whether two float arrays agree, NaN with NaN and signs of zeros included."""
    both_nan = np.isnan(left) & np.isnan(right)
    return bool(np.all(both_nan | ((left == right) & (np.signbit(left) == np.signbit(right)))))


def worst(result: Array, exact: Array, *arguments: Array) -> str:
    """The largest error, and where."""
    distance = error(result, exact)
    at = int(np.argmax(distance))
    where = ", ".join(repr(x[at]) for x in arguments)
    return f"{float(distance[at]):.3f} ulp at ({where}): {result[at]!r}, exactly {exact[at]!r}"


def check(evaluate: Evaluate, name: str, *arguments: Array) -> None:
    """The function's results are within its bound."""
    result, exact = evaluate(name, *arguments), reference(name, *arguments)
    largest = float(np.max(error(result, exact)))
    assert largest <= BOUNDS[name] + SLACK, f"{name}: {worst(result, exact, *arguments)}"


def spread(rng: np.random.Generator, dtype: DType, count: int) -> Array:
    """Values of every kind: bit patterns, and sizes at which functions change."""
    if dtype == dtypes.float32:
        patterns = rng.integers(0, 2**32, count, np.uint32).view(np.float32)
    else:
        patterns = rng.integers(0, 2**64, count, np.uint64, endpoint=False).view(np.float64)
    normal = rng.standard_normal((3, count)) * [[1], [30], [300]]
    wide = rng.standard_normal(count) * np.exp(rng.uniform(-40, 40, count))
    around = [rng.uniform(-1, 1, count), 1 + 0.1 * rng.standard_normal(count)]
    with np.errstate(all="ignore"):
        return np.concatenate([patterns, *normal, wide, *around]).astype(dtype.numpy)


@pytest.mark.parametrize("name", UNARY)
def test_float32_function_is_within_its_bound(evaluate: Evaluate, name: str) -> None:
    check(evaluate, name, bit_patterns(0, 1009))


@pytest.mark.proof
@pytest.mark.parametrize("name", UNARY)
def test_float32_function_is_within_its_bound_densely(evaluate: Evaluate, name: str) -> None:
    stride, block = 61, 1 << 21
    for start in range(7, 2**32, stride * block):
        check(evaluate, name, bit_patterns(start, stride, block))


@pytest.mark.parametrize("name", UNARY)
def test_float64_function_is_within_its_bound(evaluate: Evaluate, name: str) -> None:
    check(evaluate, name, spread(np.random.default_rng(1), dtypes.float64, 2000))


@pytest.mark.proof
@pytest.mark.parametrize("name", UNARY)
def test_float64_function_is_within_its_bound_densely(evaluate: Evaluate, name: str) -> None:
    check(evaluate, name, spread(np.random.default_rng(2), dtypes.float64, 300_000))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_neighbours_of_powers_of_two_and_special_values(evaluate: Evaluate, name: str, dtype: DType) -> None:
    check(evaluate, name, np.concatenate([neighbourhoods(dtype), special(dtype)]))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ODD)
def test_odd_function_keeps_the_sign_of_zero_and_is_odd(evaluate: Evaluate, name: str, dtype: DType) -> None:
    x = np.concatenate([[0.0], neighbourhoods(dtype)]).astype(dtype.numpy)
    x = x if name not in ("expm1", "log1p") else x[:1]
    assert same_bits(evaluate(name, -x), -evaluate(name, x))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_binary_function_at_all_pairs_of_special_values(evaluate: Evaluate, name: str, dtype: DType) -> None:
    x, y = pairs(special(dtype))
    result = evaluate(name, x, y)
    exact = reference(name, x, y)
    assert float(np.max(error(result, exact))) <= BOUNDS[name] + SLACK
    known = ~np.isnan(exact)
    assert np.array_equal(np.signbit(result[known]), np.signbit(exact[known]))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_binary_function_is_within_its_bound(evaluate: Evaluate, name: str, dtype: DType) -> None:
    rng = np.random.default_rng(3)
    x = spread(rng, dtype, 5000)
    y = rng.permutation(spread(rng, dtype, 5000))
    check(evaluate, name, x, y)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_power_near_its_limits(evaluate: Evaluate, dtype: DType) -> None:
    rng = np.random.default_rng(4)
    limit = float(np.finfo(dtype.numpy).maxexp) * 1.17
    near_one = 1 + rng.standard_normal(20_000) * 10 ** rng.uniform(-6, -0.5, 20_000)
    anywhere = np.exp2(rng.uniform(-0.85 * limit, 0.85 * limit, 20_000))
    x = np.abs(np.concatenate([near_one, anywhere])).astype(dtype.numpy)
    with np.errstate(all="ignore"):
        y = (rng.uniform(-limit, limit, x.size) / np.log2(x.astype(wider(x.dtype)))).astype(dtype.numpy)
    check(evaluate, "power", x, y)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_the_float64_nearest_to_a_multiple_of_half_pi_is_reduced_rightly(evaluate: Evaluate, name: str) -> None:
    # the worst argument of all: Muller, Elementary Functions, 3rd ed., table 11.1
    check(evaluate, name, np.array([math.ldexp(6381956970095103.0, 797)]))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_cos_near_multiples_of_half_pi(evaluate: Evaluate, dtype: DType) -> None:
    exact = np.arange(1, 200_001, dtype=wider(dtype.numpy)) * np.pi / 2
    for name in ("sin", "cos"):
        check(evaluate, name, exact.astype(dtype.numpy))
