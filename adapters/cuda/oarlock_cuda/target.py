"""What kernels may assume of a CUDA device: a Target made from its attributes, without a driver."""

from __future__ import annotations

from dataclasses import replace

from oarlock import dtypes
from oarlock.codegen.render.cuda import CUDA, FLAGS
from oarlock.target import Limits, Target

__all__ = ["target_for"]

_PARAMETER_BYTES = 4096
"""What a kernel's parameters may take together on every architecture and driver."""
_SCALAR_BYTES = 3072
"""Bytes of them that scalars may take; buffers have the rest, 8 bytes each."""
_TENSOR_CORES = {"float16": (7, 5), "bfloat16": (8, 0), "tf32": (8, 0)}
"""The least compute capability whose tensor cores multiply numbers of a kind."""
_EVERY_DEVICE = Limits(
    max_block=(1024, 1024, 64),
    max_threads=1024,
    max_grid=(2**31 - 1, 65535, 65535),
    local_memory=48 << 10,
)
"""What every device of compute capability 7.5 and newer reports."""


def target_for(
    capability: tuple[int, int],
    limits: Limits = _EVERY_DEVICE,
    warp: int = CUDA.subgroup,
    matrix: tuple[str, ...] = ("float16", "bfloat16"),
) -> Target:
    """The Target of a device of compute capability ``capability``, such as (9, 0).

    Of ``limits`` those that the device reports count: blocks, threads, grid, local memory (bytes that need no opt-in),
    largest allocation. ``warp``: threads of a warp; kernels exchange values in them where there are as many as the
    generated code takes for granted. ``matrix``: kinds of tensor-core products to use where the device has them;
    ``tf32`` among them computes float32 products from 10 bits of each mantissa, so it is never there by default.
    """
    major, minor = capability
    abilities = {"local_memory", "atomics", "fma"}
    if warp == CUDA.subgroup:
        abilities |= {f"subgroup_{warp}", *(f"matrix_{kind}" for kind in matrix if capability >= _TENSOR_CORES[kind])}
    return Target(
        language="cuda",
        arch=f"sm_{major}{minor}",
        flags=FLAGS,
        compute=frozenset(dtype.name for dtype in dtypes.ALL) - {"float16", "bfloat16"},
        storage=(("bool", "uint8"), ("float16", "uint16"), ("bfloat16", "uint16")),
        abilities=frozenset(abilities),
        limits=replace(
            limits,
            vector_width=4,
            max_buffers=(_PARAMETER_BYTES - _SCALAR_BYTES) // 8,
            max_scalar_bytes=_SCALAR_BYTES,
        ),
    )
