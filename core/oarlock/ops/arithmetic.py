"""Composite element-wise operators: powers and roots, tests of floats, logic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ir import Value
from oarlock.ops.composite import ELEMENTWISE, composite, in_single, wide_reference
from oarlock.ops.inference import FLOATS, NUMERIC, elementwise
from oarlock.ops.numerics import quiet, ufunc_reference, widen
from oarlock.ops.record import ArrayBuilder, Attributes, Record, Tolerance, tensor
from oarlock.ops.sampling import binary_samples, unary_samples

__all__ = ["COMPOSITE_ARITHMETIC"]

Emit = Callable[..., Value]


def infinity(b: ArrayBuilder, like: Value) -> Value:
    """Infinity in the dtype and shape of ``like``."""
    return b.full(float("inf"), like)


def _truth(b: ArrayBuilder, like: Value, truth: bool) -> Value:
    return b("broadcast", b.constant(truth, dtypes.bool_), shape=tensor(like).shape, dims=())


def emit_is_finite(b: ArrayBuilder, x: Value) -> Value:
    """Whether each element is neither infinite nor NaN."""
    return b("less", b("abs", x), infinity(b, x)) if tensor(x).dtype.is_float else _truth(b, x, True)


def emit_is_inf(b: ArrayBuilder, x: Value) -> Value:
    """Whether each element is infinite."""
    return b("equal", b("abs", x), infinity(b, x)) if tensor(x).dtype.is_float else _truth(b, x, False)


def _emit_signbit(b: ArrayBuilder, x: Value) -> Value:
    dtype = tensor(x).dtype
    if dtype.kind == "uint":
        return _truth(b, x, False)
    bits = b("bitcast", x, dtype=dtypes.by_name(f"int{dtype.bits}")) if dtype.is_float else x
    return b("less", bits, b.full(0, bits))


def _emit_hypot(b: ArrayBuilder, x: Value, y: Value) -> Value:
    x, y = b("abs", x), b("abs", y)
    large, small = b("maximum", x, y), b("minimum", x, y)
    divisor = b("select", b("equal", large, b.full(0, large)), b.full(1, large), large)
    ratio = b("divide", small, divisor)
    finite = b("multiply", large, b("sqrt", b("add", b.full(1, ratio), b("multiply", ratio, ratio))))
    either = b("bitwise_or", b("equal", x, infinity(b, x)), b("equal", y, infinity(b, y)))
    return b("select", either, infinity(b, finite), finite)


def _emit_logaddexp(b: ArrayBuilder, x: Value, y: Value) -> Value:
    gap = b("abs", b("subtract", x, y))
    gap = b("select", b("equal", x, y), b.full(0, gap), gap)
    return b("add", b("maximum", x, y), b("log1p", b("exp", b("negative", gap))))


def _define(
    name: str,
    summary: str,
    function: Callable[..., Any],
    emit: Emit,
    *,
    allowed: tuple[DType, ...] = FLOATS,
    binary: bool = False,
    tolerance: Tolerance = "exact",
    result: DType | None = None,
) -> Record:
    in_wide = tolerance in ("elementary", "arithmetic") and result is None and allowed == FLOATS
    if in_wide:
        reference = wide_reference(lambda operands, attributes: (function(*operands),))
    elif result is None:
        reference = ufunc_reference(function)
    else:
        reference = quiet(lambda operands, attributes: (function(*map(widen, operands)),))

    def decompose(b: ArrayBuilder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
        return (emit(b, *operands),)

    return composite(
        name,
        "elementwise",
        summary,
        "x y" if binary else "x",
        elementwise(name, allowed, result),
        reference,
        in_single(decompose) if in_wide else decompose,
        binary_samples() if binary else unary_samples(-9.0, 9.0),
        dtypes=allowed,
        tolerance=tolerance,
        traits=ELEMENTWISE,
    )


def _logic(name: str, summary: str, function: Callable[..., Any], primitive: str, binary: bool = True) -> Record:
    return _define(
        name,
        summary,
        function,
        lambda b, *operands: b(primitive, *operands),
        allowed=(dtypes.bool_,),
        binary=binary,
        result=dtypes.bool_,
    )


COMPOSITE_ARITHMETIC: tuple[Record, ...] = (
    _define(
        "square", "x * x; integers wrap.", np.square, lambda b, x: b("multiply", x, x), allowed=NUMERIC,
        tolerance="arithmetic",
    ),
    _define(
        "reciprocal", "1 / x.", np.reciprocal, lambda b, x: b("divide", b.full(1, x), x), tolerance="arithmetic"
    ),
    _define(
        "rsqrt", "1 / sqrt(x).", lambda x: 1 / np.sqrt(x), lambda b, x: b("divide", b.full(1, x), b("sqrt", x)),
        tolerance="arithmetic",
    ),
    _define(
        "hypot", "sqrt(x^2 + y^2) without overflow; inf where either is infinite.", np.hypot, _emit_hypot, binary=True,
        tolerance="elementary",
    ),
    _define(
        "logaddexp", "log(exp(x) + exp(y)) without overflow.", np.logaddexp, _emit_logaddexp, binary=True,
        tolerance="elementary",
    ),
    _define(
        "is_finite", "Whether x is neither infinite nor NaN.", np.isfinite, emit_is_finite, allowed=NUMERIC,
        result=dtypes.bool_,
    ),
    _define("is_inf", "Whether x is infinite.", np.isinf, emit_is_inf, allowed=NUMERIC, result=dtypes.bool_),
    _define(
        "signbit", "Whether the sign bit is set: also for -0.0 and a negative NaN.", np.signbit, _emit_signbit,
        allowed=NUMERIC, result=dtypes.bool_,
    ),
    _logic("logical_and", "Whether both hold.", np.logical_and, "bitwise_and"),
    _logic("logical_or", "Whether one holds.", np.logical_or, "bitwise_or"),
    _logic("logical_xor", "Whether just one holds.", np.logical_xor, "bitwise_xor"),
    _logic("logical_not", "Whether it does not hold.", np.logical_not, "bitwise_invert", binary=False),
)  # fmt: skip
"""Their records."""
