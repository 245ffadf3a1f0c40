"""OpenCL C: a dialect of the shared C printer.

Division and sqrt of float32 are correctly rounded only where the program is built with
``-cl-fp32-correctly-rounded-divide-sqrt``: an adapter puts that into Target.flags and passes the flags to the compiler.
"""

from __future__ import annotations

from oarlock.codegen.render.cdialect import CDialect
from oarlock.codegen.render.cstyle import CRenderer
from oarlock.codegen.render.opencl_vectors import PREAMBLE, TYPES, whole

__all__ = ["FLAGS", "OPENCL", "RENDERER"]

FLAGS = ("-cl-std=CL1.2", "-cl-fp32-correctly-rounded-divide-sqrt")
"""Build options that the generated text needs to mean what the kernel means."""

OPENCL = CDialect(
    language="opencl",
    types=TYPES,
    function="__kernel __attribute__((reqd_work_group_size({x}, {y}, {z})))\nvoid {name}({parameters})",
    buffer="__global {const}{type} *restrict {name}",
    local="__local {type} {name}[{size}];",
    unroll="#pragma unroll {count}",
    barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    block_id="((int)get_group_id({axis}))",
    thread_id="((int)get_local_id({axis}))",
    block_count="((int)get_num_groups({axis}))",
    math={name: name.upper() for name in ("fma", "fabs", "floor", "ceil", "trunc", "rint")},
    suffixes={"uint32": "u", "int64": "L", "uint64": "UL", "float16": "h", "float32": "f"},
    lanes=(2, 4, 8, 16),
    splat="({vector})({value})",
    whole=whole,
    load="LOAD({space}, {vector}, {lanes}, {place})",
    store="STORE({space}, {vector}, {lanes}, {value}, {place});",
    vector_declaration=(
        "typedef {vector} {vector}_at __attribute__((aligned({itemsize}), may_alias));\nDEFINE_FMA({vector})"
    ),
    prefetch="PREFETCH({place});",
    stream="STREAM({vector}, {value}, {place});",
    fence="mem_fence(CLK_GLOBAL_MEM_FENCE);",
    preamble=PREAMBLE,
    enable={
        "float64": "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\nDEFINE_FMA(double)",
        "float16": "#pragma OPENCL EXTENSION cl_khr_fp16 : enable",
    },
    reserved=frozenset(
        "kernel global local constant private image2d_t sampler_t event_t size_t uniform pipe half quad "
        "sqrt FMA DEFINE_FMA FABS FLOOR CEIL TRUNC RINT LOAD STORE STREAM PREFETCH barrier mem_fence "
        "get_group_id get_local_id get_num_groups".split()
    ),
)  # fmt: skip
"""The table."""

RENDERER = CRenderer(OPENCL)
"""The renderer of language ``opencl``."""
