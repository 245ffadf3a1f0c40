"""OpenCL C: a dialect of the shared C printer.

Division and sqrt of float32 are correctly rounded only where the program is built with
``-cl-fp32-correctly-rounded-divide-sqrt``: an adapter puts that into Target.flags and passes the flags to the compiler.
"""

from __future__ import annotations

from collections.abc import Sequence

from oarlock.codegen.render.cdialect import CDialect
from oarlock.codegen.render.cexpr import OPERATORS, bare
from oarlock.codegen.render.cstyle import CRenderer
from oarlock.dtypes import DType

__all__ = ["FLAGS", "OPENCL", "RENDERER"]

FLAGS = ("-cl-std=CL1.2", "-cl-fp32-correctly-rounded-divide-sqrt")
"""Build options that the generated text needs to mean what the kernel means."""

_TYPES = {
    "bool": "bool", "int8": "char", "int16": "short", "int32": "int", "int64": "long", "uint8": "uchar",
    "uint16": "ushort", "uint32": "uint", "uint64": "ulong", "float16": "half", "float32": "float",
    "float64": "double",
}  # fmt: skip


def _whole(kind: str, x: Sequence[str], source: DType, result: DType, lanes: int) -> str | None:
    """Operations on whole vectors, of elements of 32 and 64 bits and of bools, which are 0 or 1 in a char."""
    signed = {32: "int", 64: "long"}.get(result.bits if kind == "select" else source.bits, "")
    if kind in ("and", "or", "xor") and (signed or source.kind == "bool"):
        return f"({x[0]} {OPERATORS[kind]} {x[1]})"
    if kind == "select" and signed:
        return f"select({x[2]}, {x[1]}, convert_{signed}{lanes}({x[0]}) != ({signed}{lanes})(0))"
    if not signed or source.kind == "bool" or result.bits < 32 and kind not in ("eq", "ne", "lt", "le"):
        return None
    if kind in ("eq", "ne", "lt", "le"):
        return f"(convert_char{lanes}({x[0]} {OPERATORS[kind]} {x[1]}) & (char{lanes})(1))"
    whole_numbers = source.is_integer and result.is_integer and source.bits == result.bits
    if kind == "bitcast" or kind == "convert" and whole_numbers:
        return f"as_{_TYPES[result.name]}{lanes}({bare(x[0])})"
    if kind == "shr" and source.is_integer:
        return f"({x[0]} >> {x[1]})"
    if kind in ("add", "sub", "mul", "shl") and source.is_integer:
        left, right = (f"as_u{signed}{lanes}({bare(each)})" for each in x)
        return f"as_{_TYPES[source.name]}{lanes}({left} {OPERATORS[kind]} {right})"
    if kind == "convert" and source.bits == result.bits == 32 and source.is_float != result.is_float:
        return f"convert_{_TYPES[result.name]}{lanes}({bare(x[0])})"
    return None


OPENCL = CDialect(
    language="opencl",
    types=_TYPES,
    function="__kernel __attribute__((reqd_work_group_size({x}, {y}, {z})))\nvoid {name}({parameters})",
    buffer="__global {const}{type} *restrict {name}",
    local="__local {type} {name}[{size}];",
    unroll="#pragma unroll {count}",
    barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    block_id="((int)get_group_id({axis}))",
    thread_id="((int)get_local_id({axis}))",
    block_count="((int)get_num_groups({axis}))",
    suffixes={"uint32": "u", "int64": "L", "uint64": "UL", "float16": "h", "float32": "f"},
    lanes=(2, 3, 4, 8, 16),
    splat="({vector})({value})",
    whole=_whole,
    load="vload{lanes}(0, {place})",
    store="vstore{lanes}({value}, 0, {place});",
    preamble="#pragma OPENCL FP_CONTRACT OFF",
    enable={
        "float64": "#pragma OPENCL EXTENSION cl_khr_fp64 : enable",
        "float16": "#pragma OPENCL EXTENSION cl_khr_fp16 : enable",
    },
    reserved=frozenset(
        "kernel global local constant private image2d_t sampler_t event_t size_t uniform pipe half quad "
        "fma fabs sqrt floor ceil trunc rint barrier get_group_id get_local_id get_num_groups".split()
    ),
)  # fmt: skip
"""The table."""

RENDERER = CRenderer(OPENCL)
"""The renderer of language ``opencl``."""
