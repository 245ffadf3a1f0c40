"""OpenCL C: a dialect of the shared C printer.

Division and sqrt of float32 are correctly rounded only where the program is built with
``-cl-fp32-correctly-rounded-divide-sqrt``: an adapter puts that into Target.flags and passes the flags to the compiler.
"""

from __future__ import annotations

from oarlock.codegen.render.cdialect import CDialect
from oarlock.codegen.render.cstyle import CRenderer

__all__ = ["FLAGS", "OPENCL", "RENDERER"]

FLAGS = ("-cl-std=CL1.2", "-cl-fp32-correctly-rounded-divide-sqrt")
"""Build options that the generated text needs to mean what the kernel means."""

OPENCL = CDialect(
    language="opencl",
    types={
        "bool": "bool", "int8": "char", "int16": "short", "int32": "int", "int64": "long", "uint8": "uchar",
        "uint16": "ushort", "uint32": "uint", "uint64": "ulong", "float16": "half", "float32": "float",
        "float64": "double",
    },
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
