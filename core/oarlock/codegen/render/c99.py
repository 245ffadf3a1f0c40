"""C99 with the C ABI of oarlock.abi; vectors by the extension that GCC and Clang share."""

from __future__ import annotations

from oarlock.codegen.render.cdialect import CDialect
from oarlock.codegen.render.common import Parameters
from oarlock.codegen.render.cstyle import CRenderer
from oarlock.ir import ScalarType

__all__ = ["C99", "FLAGS", "RENDERER"]

FLAGS = (
    "-std=c99", "-O3", "-march=native", "-fno-tree-vectorize", "-ffp-contract=off", "-fno-math-errno",
    "-fno-trapping-math", "-fPIC", "-shared",
)  # fmt: skip
"""What to give GCC or Clang, with ``-lm``. ``-ffp-contract=off`` is needed for the text to mean what the kernel means;
``-fno-tree-vectorize`` because GCC 12.2 at -O3 reads other elements in nested loops over a reversed image."""

_TYPES = {
    "bool": "_Bool", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t", "uint8": "uint8_t",
    "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t", "float32": "float", "float64": "double",
}  # fmt: skip


def _entry(kernel: Parameters) -> str:
    """The function of the C ABI: unpacks buffers and scalars, and loops over the blocks of a box."""
    fields = [(_TYPES[s.type.dtype.name], name) for s, name in kernel.scalars if isinstance(s.type, ScalarType)]
    unpack = "    struct { " + " ".join(f"{type} {name};" for type, name in fields) + " } s;\n"
    unpack += "    memcpy(&s, scalars, sizeof s);\n"
    arguments = [f"buffers[{number}]" for number in range(len(kernel.buffers))]
    arguments += [f"s.{name}" for _, name in fields]
    arguments += [f"(int32_t)b{axis}" for axis in range(3)]
    return f"""
void {kernel.name}(void *const *buffers, const void *scalars, const uint32_t begin[3], const uint32_t end[3]) {{
{unpack if fields else ""}    for (uint32_t b2 = begin[2]; b2 < end[2]; ++b2)
        for (uint32_t b1 = begin[1]; b1 < end[1]; ++b1)
            for (uint32_t b0 = begin[0]; b0 < end[0]; ++b0)
                {kernel.name}_block({", ".join(arguments)});
}}"""


C99 = CDialect(
    language="c99",
    types=_TYPES,
    function="static inline void {name}_block({parameters})",
    buffer="{const}{type} *restrict {name}",
    extra_parameters=("const int32_t b0", "const int32_t b1", "const int32_t b2"),
    unroll="#pragma GCC unroll {count}",
    threads=False,
    block_id="b{axis}",
    math={name: name + "{f}" for name in ("fma", "fabs", "sqrt", "floor", "ceil", "trunc", "rint")},
    bitcast="(((union {{ {source} from; {type} to; }}){{.from = {value}}}).to)",
    suffixes={"uint32": "u", "int64": "LL", "uint64": "ULL", "float32": "f"},
    vector="{dtype}x{lanes}",
    lanes=(2, 4, 8, 16, 32, 64),
    pack="(({vector}){{{items}}})",
    lane="[{lane}]",
    load="*(const {vector}_at *)({place})",
    store="*({vector}_at *)({place}) = {value};",
    prefetch="__builtin_prefetch({place}, 0, 2);",
    vector_math=False,
    vector_declaration=(
        "typedef {type} {vector} __attribute__((vector_size({bytes})));\n"
        "typedef {vector} {vector}_at __attribute__((aligned({itemsize}), may_alias));"
    ),
    preamble="#include <math.h>\n#include <stdint.h>\n#include <string.h>\n#pragma STDC FP_CONTRACT OFF",
    reserved=frozenset("buffers scalars begin end s b0 b1 b2 memcpy".split()),
    entry=_entry,
)
"""The table."""

RENDERER = CRenderer(C99)
"""The renderer of language ``c99``."""
