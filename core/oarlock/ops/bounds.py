"""How far each operator's results may lie from the exact ones: the tolerance table's rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from ml_dtypes import finfo

from oarlock.dtypes import DType, float32
from oarlock.ops.contract import contraction_axes
from oarlock.ops.record import Array, Attributes, Record

__all__ = [
    "BOUNDS",
    "PRODUCTS_OF_SUBNORMALS",
    "SIGNLESS",
    "ULPS",
    "Bound",
    "Call",
    "largest",
    "least_normal",
    "scatter_bound",
    "spacing",
    "unit_roundoff",
]


def unit_roundoff(dtype: DType) -> float:
    """The largest relative error of rounding to ``dtype``: 2^-11, 2^-8, 2^-24, 2^-53."""
    return float(_info(dtype).eps) / 2


def spacing(values: Array, dtype: DType) -> Array:
    """One ulp of ``dtype`` at ``values`` (float64): the gap between neighbours, at least the least subnormal."""
    info = _info(dtype)
    magnitude = np.clip(np.abs(values), float(info.smallest_normal), float(info.max))
    magnitude = np.where(np.isnan(magnitude), 1.0, magnitude)
    return np.asarray(np.ldexp(float(info.eps), np.frexp(magnitude)[1] - 1))


def largest(dtype: DType) -> float:
    """The largest finite value of a float dtype."""
    return float(_info(dtype).max)


def least_normal(dtype: DType) -> float:
    """The least normal value of a float dtype."""
    return float(_info(dtype).smallest_normal)


def _info(dtype: DType) -> Any:
    return finfo(dtype.numpy)  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class Call:
    """One result of a call, with operands and exact result in float64."""

    record: Record
    dtype: DType
    expected: Array
    operands: Sequence[Array]
    attributes: Attributes
    result: int = 0

    @property
    def unit(self) -> float:
        """Unit roundoff of the arithmetic inside: float32's for 16-bit floats."""
        return unit_roundoff(self.dtype if self.dtype.bits > 16 else float32)

    def magnitude(self, *operands: Array) -> Array:
        """The operator on other operands (absolute values, say), in float64."""
        return self.record.reference(operands, self.attributes)[self.result]

    def absolute(self) -> Array:
        """The operator on the absolute values of its operands."""
        return self.magnitude(*(np.abs(x) if x.dtype.kind == "f" else x for x in self.operands))

    def integer(self, key: str) -> int:
        return cast(int, self.attributes[key])

    def integers(self, key: str) -> tuple[int, ...]:
        return cast("tuple[int, ...]", self.attributes[key])


Bound = Callable[[Call], Any]

ULPS: Mapping[str, tuple[float, float, float]] = {
    "divide": (0.5, 2.5, 1), "reciprocal": (0.5, 2.5, 1), "sqrt": (0.5, 3, 1.5), "rsqrt": (2, 2, 1),
    "exp": (3, 3, 2), "exp2": (3, 3, 2), "expm1": (3, 3, 2), "log": (3, 3, 2), "log2": (3, 3, 2), "log10": (3, 3, 2),
    "log1p": (2, 2, 2), "sin": (4, 4, 2), "cos": (4, 4, 2), "tan": (5, 5, 2), "asin": (4, 4, 2), "acos": (4, 4, 2),
    "atan": (5, 5, 2), "atan2": (6, 6, 2), "sinh": (4, 4, 2), "cosh": (4, 4, 2), "tanh": (5, 5, 2), "asinh": (4, 4, 2),
    "acosh": (4, 4, 2), "atanh": (5, 5, 2), "erf": (16, 16, 4), "power": (16, 16, 4), "hypot": (4, 4, 2),
    "sigmoid": (8, 8, 1), "silu": (9, 9, 1), "elu": (6, 6, 1), "selu": (8, 8, 1), "celu": (8, 8, 1),
    "softplus": (8, 8, 1), "softsign": (5, 5, 1), "mish": (20, 20, 1), "leaky_relu": (1, 1, 1),
}  # fmt: skip
"""Allowed error in ulp of the exact result for float64, float32, and 16-bit floats. The elementary functions follow
OpenCL C's full profile ("Relative Error as ULPs")."""

PRODUCTS_OF_SUBNORMALS = frozenset({"silu", "mish"})
"""x times a factor that may be subnormal: the factor's own rounding, half the least subnormal, counts x times."""

SIGNLESS = frozenset({"floor_divide", "maximum", "minimum", "sign", "clip", "relu", "scan", "sort", "top_k"})
"""Operators whose zero may have either sign although their results are otherwise exact."""


def _reduce_sum(call: Call) -> Any:
    count = math.prod(call.operands[0].shape[axis] for axis in call.integers("axes"))
    return (count + 2) * call.unit * call.absolute()


def _dot(call: Call) -> Any:
    x, y = call.operands
    contracted = contraction_axes(call.attributes, x.ndim, y.ndim)[1]
    return (math.prod(x.shape[a] for a in contracted) + 2) * call.unit * call.absolute()


def _convolution(call: Call) -> Any:
    return (math.prod(call.operands[1].shape[1:]) + 2) * call.unit * call.absolute()


def _window(call: Call) -> Any:
    return (
        (math.prod(call.integers("window")) + 2) * call.unit * call.absolute()
        if call.attributes["kind"] == "sum"
        else 0
    )


def _scan(call: Call) -> Any:
    sums = call.attributes["kind"] in ("sum", "prod")
    return (call.operands[0].shape[call.integer("axis")] + 2) * call.unit * call.absolute() if sums else 0


def scatter_bound(call: Call) -> Any:
    """Every update that meets an element rounds once."""
    if call.attributes["kind"] not in ("add", "multiply"):
        return 0
    return (call.operands[1].size + 2) * unit_roundoff(call.dtype) * call.absolute()


BOUNDS: Mapping[str, Bound] = {
    "reduce_sum": _reduce_sum,
    "reduce_prod": _reduce_sum,
    "dot_general": _dot,
    "convolution": _convolution,
    "window_reduce": _window,
    "scan": _scan,
    "scatter": scatter_bound,
}
"""Allowed absolute error before the result is rounded to its dtype, by operator."""
