"""CUDA C++: a dialect of the shared C printer. The text needs no header, so NVRTC alone compiles it."""

from __future__ import annotations

from oarlock.codegen.render.cdialect import CDialect
from oarlock.codegen.render.cstyle import CRenderer
from oarlock.codegen.render.cuda_matrix import MATRIX

__all__ = ["CUDA", "FLAGS", "RENDERER"]

FLAGS = (
    "--std=c++17",
    "--fmad=false",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "--restrict",
    "--diag-suppress=177,186,2361",
)
"""Options of NVRTC that the generated text needs to mean what the kernel means. Remarks on what generated text
may hold are off: values that nothing uses (177), comparisons of constants (186), lanes that narrow (2361)."""

_PREAMBLE = """\
template <typename To, typename From> static __device__ __forceinline__ To bits_of(From from) {
    static_assert(sizeof(To) == sizeof(From), "a bitcast keeps the width");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
template <typename V, typename T> static __device__ __forceinline__ V load_lanes(const T *at) {
    if ((unsigned long long)at % alignof(V) == 0) return *(const V *)at;
    V v;
    for (int lane = 0; lane < (int)(sizeof(V) / sizeof(T)); ++lane) v.s[lane] = at[lane];
    return v;
}
template <typename V, typename T> static __device__ __forceinline__ void store_lanes(T *at, const V &v) {
    if ((unsigned long long)at % alignof(V) == 0) *(V *)at = v;
    else for (int lane = 0; lane < (int)(sizeof(V) / sizeof(T)); ++lane) at[lane] = v.s[lane];
}"""

CUDA = CDialect(
    language="cuda",
    types={
        "bool": "bool", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
        "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned int",
        "uint64": "unsigned long long", "float32": "float", "float64": "double",
    },
    function='extern "C" __global__ __launch_bounds__({x} * {y} * {z})\nvoid {name}({parameters})',
    buffer="{const}{type} *__restrict__ {name}",
    local="alignas(16) __shared__ {type} {name}[{size}];",
    unroll="#pragma unroll {count}",
    barrier="__syncthreads();",
    shuffle="__shfl_xor_sync(0xffffffffu, {value}, {mask})",
    subgroup=32,
    matrix=frozenset(MATRIX) - {"matrix_store"},
    enable=MATRIX,
    block_id="((int)blockIdx.{xyz})",
    thread_id="((int)threadIdx.{xyz})",
    block_count="((int)gridDim.{xyz})",
    math={name: name + "{f}" for name in ("fma", "fabs", "sqrt", "floor", "ceil", "trunc", "rint")},
    bitcast="bits_of<{type}>({value})",
    booleans=("false", "true"),
    suffixes={"uint32": "u", "int64": "LL", "uint64": "ULL", "float32": "f"},
    infinity="bits_of<float>(0x7f800000)",
    nan="bits_of<float>(0x7fc00000)",
    vector="{dtype}x{lanes}",
    lanes=(2, 4, 8, 16),
    pack="({vector}{{{{{items}}}}})",
    lane=".s[{lane}]",
    load="load_lanes<{vector}>({place})",
    store="store_lanes({place}, {value});",
    vector_operators=False,
    vector_math=False,
    vector_declaration="struct alignas({bytes} < 16 ? {bytes} : 16) {vector} {{ {type} s[{bytes} / {itemsize}]; }};",
    preamble=_PREAMBLE,
    reserved=frozenset(
        "blockIdx threadIdx blockDim gridDim warpSize bits_of load_lanes store_lanes memcpy template typename class "
        "new delete this operator namespace using public private protected virtual friend true false fma fabs sqrt "
        "floor ceil trunc rint".split()
    ),
)  # fmt: skip
"""The table."""

RENDERER = CRenderer(CUDA)
"""The renderer of language ``cuda``."""
