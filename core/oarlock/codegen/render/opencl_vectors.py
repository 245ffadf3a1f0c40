"""Whole vectors in OpenCL C.

Most compilers of OpenCL C are Clang. Some do not inline the functions of their library, so that a loop of vectors calls
one for each load: there the compiler's own words are used, where it compiles for a machine (SPIR, its language between,
does not have all of them everywhere). ``fma`` of a vector calls C's, lane by lane; where the processor has the
instruction, a product and a sum in one expression become it.
"""

from __future__ import annotations

from collections.abc import Sequence

from oarlock.codegen.render.cexpr import OPERATORS, bare
from oarlock.dtypes import DType

__all__ = ["PREAMBLE", "TYPES", "whole"]

TYPES = {
    "bool": "bool", "int8": "char", "int16": "short", "int32": "int", "int64": "long", "uint8": "uchar",
    "uint16": "ushort", "uint32": "uint", "uint64": "ulong", "float16": "half", "float32": "float",
    "float64": "double",
}  # fmt: skip

PREAMBLE = """
#pragma OPENCL FP_CONTRACT OFF
#if __clang_major__ >= 14 && !defined(__SPIR__)
#define LOAD(space, vector, lanes, place) (*(const __##space vector##_at *)(place))
#define STORE(space, vector, lanes, value, place) *(__##space vector##_at *)(place) = (value)
#define STREAM(vector, value, place) __builtin_nontemporal_store(value, (__global vector *)(place))
#define PREFETCH(place) __builtin_prefetch((const void *)(size_t)(place), 0, 2)
#define FABS __builtin_elementwise_abs
#define FLOOR __builtin_elementwise_floor
#define CEIL __builtin_elementwise_ceil
#define TRUNC __builtin_elementwise_trunc
#define RINT __builtin_elementwise_roundeven
#else
#define LOAD(space, vector, lanes, place) vload##lanes(0, place)
#define STORE(space, vector, lanes, value, place) vstore##lanes(value, 0, place)
#define STREAM(vector, value, place) *(__global vector *)(place) = (value)
#define PREFETCH(place)
#define FABS fabs
#define FLOOR floor
#define CEIL ceil
#define TRUNC trunc
#define RINT rint
#endif
#if __clang_major__ >= 14 && defined(__FMA__)
#define DEFINE_FMA(type) \\
    static type __attribute__((overloadable, always_inline)) FMA(type x, type y, type z) { \\
        _Pragma("OPENCL FP_CONTRACT ON") return x * y + z; }
#else
#define DEFINE_FMA(type)
#define FMA fma
#endif
DEFINE_FMA(float)
"""
"""What stands first in every program."""


def whole(kind: str, x: Sequence[str], source: DType, result: DType, lanes: int) -> str | None:
    """Operations on whole vectors, of elements of 32 and 64 bits and of bools, which are 0 or 1 in a char."""
    signed = {32: "int", 64: "long"}.get(result.bits if kind == "select" else source.bits, "")
    if kind in ("and", "or", "xor") and (signed or source.kind == "bool"):
        return f"({x[0]} {OPERATORS[kind]} {x[1]})"
    if kind == "select" and signed:
        return f"(convert_{signed}{lanes}({x[0]}) != ({signed}{lanes})(0) ? {x[1]} : {x[2]})"
    if not signed or source.kind == "bool" or result.bits < 32 and kind not in ("eq", "ne", "lt", "le"):
        return None
    if kind in ("eq", "ne", "lt", "le"):
        return f"(convert_char{lanes}({x[0]} {OPERATORS[kind]} {x[1]}) & (char{lanes})(1))"
    whole_numbers = source.is_integer and result.is_integer and source.bits == result.bits
    if kind == "bitcast" or kind == "convert" and whole_numbers:
        return f"as_{TYPES[result.name]}{lanes}({bare(x[0])})"
    if kind == "shr" and source.is_integer:
        return f"({x[0]} >> {x[1]})"
    if kind in ("add", "sub", "mul", "shl") and source.is_integer:
        left, right = (f"as_u{signed}{lanes}({bare(each)})" for each in x)
        return f"as_{TYPES[source.name]}{lanes}({left} {OPERATORS[kind]} {right})"
    if kind == "convert" and source.bits == result.bits == 32 and source.is_float != result.is_float:
        return f"convert_{TYPES[result.name]}{lanes}({bare(x[0])})"
    return None
