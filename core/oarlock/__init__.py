"""Oarlock: one small adapter takes a new accelerator to certified AI programs.

``import oarlock as ol`` is an array namespace to the Python array API standard, on any device by name. Everything is
loaded on first use, so that the import is quick.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oarlock import distributed, dtypes, errors
    from oarlock.dtypes import (
        DType,
        bfloat16,
        float16,
        float32,
        float64,
        int8,
        int16,
        int32,
        int64,
        uint8,
        uint16,
        uint32,
        uint64,
    )
    from oarlock.dtypes import bool_ as bool
    from oarlock.program.backend import default_device
    from oarlock.program.creation import (
        arange,
        asarray,
        empty,
        empty_like,
        eye,
        full,
        full_like,
        linspace,
        meshgrid,
        ones,
        ones_like,
        tril,
        triu,
        zeros,
        zeros_like,
    )
    from oarlock.program.devices import __array_namespace_info__, device, devices, synchronize
    from oarlock.program.dlpack import from_dlpack
    from oarlock.program.dtype_functions import astype, can_cast, finfo, iinfo, isdtype, result_type
    from oarlock.program.elementary import (
        acos,
        acosh,
        asin,
        asinh,
        atan,
        atan2,
        atanh,
        cos,
        cosh,
        erf,
        exp,
        exp2,
        expm1,
        hypot,
        log,
        log1p,
        log2,
        log10,
        logaddexp,
        rsqrt,
        sin,
        sinh,
        sqrt,
        tan,
        tanh,
    )
    from oarlock.program.elementwise import (
        abs,
        add,
        bitwise_and,
        bitwise_invert,
        bitwise_left_shift,
        bitwise_or,
        bitwise_right_shift,
        bitwise_xor,
        ceil,
        clip,
        conj,
        copysign,
        divide,
        equal,
        floor,
        floor_divide,
        fmod,
        greater,
        greater_equal,
        imag,
        isfinite,
        isinf,
        isnan,
        less,
        less_equal,
        logical_and,
        logical_not,
        logical_or,
        logical_xor,
        maximum,
        minimum,
        multiply,
        negative,
        nextafter,
        not_equal,
        positive,
        pow,
        real,
        reciprocal,
        remainder,
        round,
        sign,
        signbit,
        square,
        subtract,
        trunc,
    )
    from oarlock.program.host import host_operations
    from oarlock.program.indexing import take, take_along_axis
    from oarlock.program.jit import jit
    from oarlock.program.linear import matmul, outer, tensordot, vecdot
    from oarlock.program.manipulation import (
        broadcast_arrays,
        broadcast_to,
        concat,
        expand_dims,
        flip,
        matrix_transpose,
        moveaxis,
        permute_dims,
        repeat,
        reshape,
        roll,
        squeeze,
        stack,
        swapaxes,
        tile,
        unstack,
    )
    from oarlock.program.nn import gelu, layer_norm, log_softmax, relu, sigmoid, silu, softmax, softplus
    from oarlock.program.reduction import (
        all,
        any,
        count_nonzero,
        cumulative_prod,
        cumulative_sum,
        diff,
        max,
        mean,
        min,
        prod,
        std,
        sum,
        var,
    )
    from oarlock.program.searching import argmax, argmin, nonzero, searchsorted, where
    from oarlock.program.sorting import argsort, sort, unique_all, unique_counts, unique_inverse, unique_values
    from oarlock.program.tape import eager_mode
    from oarlock.program.tensor import Tensor
    from oarlock.resources import get_include

__all__ = [
    "DType", "Tensor", "__array_api_version__", "__array_namespace_info__", "__version__", "abs", "acos", "acosh",
    "add", "all", "any", "arange", "argmax", "argmin", "argsort", "asarray", "asin", "asinh", "astype", "atan",
    "atan2", "atanh", "bfloat16", "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "bool", "broadcast_arrays", "broadcast_to", "can_cast", "ceil", "clip",
    "concat", "conj", "copysign", "cos", "cosh", "count_nonzero", "cumulative_prod", "cumulative_sum",
    "default_device", "device", "devices", "diff", "distributed", "divide", "dtypes", "e", "eager_mode", "empty",
    "empty_like", "equal", "erf", "errors", "exp", "exp2", "expand_dims", "expm1", "eye", "finfo", "flip", "float16",
    "float32", "float64", "floor", "floor_divide", "fmod", "from_dlpack", "full", "full_like", "gelu", "get_include",
    "greater", "greater_equal", "host_operations", "hypot", "iinfo", "imag", "inf", "int16", "int32", "int64", "int8",
    "isdtype", "isfinite", "isinf", "isnan", "jit", "layer_norm", "less", "less_equal", "linspace", "log", "log10",
    "log1p", "log2", "log_softmax", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "matmul",
    "matrix_transpose", "max", "maximum", "mean", "meshgrid", "min", "minimum", "moveaxis", "multiply", "nan",
    "negative", "newaxis", "nextafter", "nonzero", "not_equal", "ones", "ones_like", "outer", "permute_dims", "pi",
    "positive", "pow", "prod", "real", "reciprocal", "relu", "remainder", "repeat", "reshape", "result_type", "roll",
    "round", "rsqrt", "searchsorted", "sigmoid", "sign", "signbit", "silu", "sin", "sinh", "softmax", "softplus",
    "sort", "sqrt", "square", "squeeze", "stack", "std", "subtract", "sum", "swapaxes", "synchronize", "take",
    "take_along_axis", "tan", "tanh", "tensordot", "tile", "tril", "triu", "trunc", "uint16", "uint32", "uint64",
    "uint8", "unique_all", "unique_counts", "unique_inverse", "unique_values", "unstack", "var", "vecdot", "where",
    "zeros", "zeros_like",
]  # fmt: skip

__version__ = "0.1.0"
__array_api_version__ = "2024.12"

e = math.e
inf = math.inf
nan = math.nan
newaxis = None
pi = math.pi

_HOMES: dict[str, str] = {
    "oarlock.program.backend": "default_device",
    "oarlock.program.creation": (
        "arange asarray empty empty_like eye full full_like linspace meshgrid ones ones_like tril triu zeros zeros_like"
    ),
    "oarlock.program.devices": "__array_namespace_info__ device devices synchronize",
    "oarlock.program.dlpack": "from_dlpack",
    "oarlock.program.dtype_functions": "astype can_cast finfo iinfo isdtype result_type",
    "oarlock.program.elementary": (
        "acos acosh asin asinh atan atan2 atanh cos cosh erf exp exp2 expm1 hypot log log10 log1p log2 logaddexp "
        "rsqrt sin sinh sqrt tan tanh"
    ),
    "oarlock.program.elementwise": (
        "abs add bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor ceil clip "
        "conj copysign divide equal floor floor_divide fmod greater greater_equal imag isfinite isinf isnan less "
        "less_equal logical_and logical_not logical_or logical_xor maximum minimum multiply negative nextafter "
        "not_equal positive pow real reciprocal remainder round sign signbit square subtract trunc"
    ),
    "oarlock.program.host": "host_operations",
    "oarlock.program.indexing": "take take_along_axis",
    "oarlock.program.jit": "jit",
    "oarlock.program.linear": "matmul outer tensordot vecdot",
    "oarlock.program.manipulation": (
        "broadcast_arrays broadcast_to concat expand_dims flip matrix_transpose moveaxis permute_dims repeat "
        "reshape roll squeeze stack swapaxes tile unstack"
    ),
    "oarlock.program.nn": "gelu layer_norm log_softmax relu sigmoid silu softmax softplus",
    "oarlock.program.reduction": (
        "all any count_nonzero cumulative_prod cumulative_sum diff max mean min prod std sum var"
    ),
    "oarlock.program.searching": "argmax argmin nonzero searchsorted where",
    "oarlock.program.sorting": "argsort sort unique_all unique_counts unique_inverse unique_values",
    "oarlock.program.tape": "eager_mode",
    "oarlock.program.tensor": "Tensor",
    "oarlock.resources": "get_include",
    "oarlock.dtypes": "DType bfloat16 float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64",
}
"""Where each public name lives."""

_WHERE = {name: home for home, names in _HOMES.items() for name in names.split()}
_MODULES = frozenset({"distributed", "dtypes", "errors"})


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name == "bool":
        value: Any = import_module("oarlock.dtypes").bool_
    elif name in _MODULES:
        value = import_module("oarlock." + name)
    elif name in _WHERE:
        if name != "get_include":  # which builds of adapters call, where nothing else is wanted
            import_module("oarlock.program")
        value = getattr(import_module(_WHERE[name]), name)
    else:
        raise AttributeError(f"module 'oarlock' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
