"""A fused group of array operators becomes kernels and their launches."""

from __future__ import annotations

import hashlib

from oarlock import dtypes
from oarlock.codegen.fuse import Group, is_free, memory_of
from oarlock.codegen.lower.anchors import ANCHOR_ELEMENTS
from oarlock.codegen.lower.call import KernelCall, LibraryCall
from oarlock.codegen.lower.pointwise import lower_pointwise
from oarlock.codegen.lower.rows import lower_rows
from oarlock.codegen.lower.solitary import SOLITARY_KERNELS, Solitary
from oarlock.codegen.lower.tiles import lower_tiles, tiling
from oarlock.codegen.lower.views import ELEMENTS
from oarlock.codegen.values import numel
from oarlock.dtypes import DType
from oarlock.errors import UnsupportedError
from oarlock.ir import TensorType
from oarlock.ir.text import print_op
from oarlock.target import Target

__all__ = ["lower_group"]

TABLE = {**ELEMENTS, **ANCHOR_ELEMENTS}


def index_dtype(group: Group, target: Target) -> DType:
    """int32 where every tensor has fewer than 2^31 elements, else int64; UnsupportedError where the target lacks it."""
    values = [*group.leaves, *group.outputs, *(v for m in group.members for v in (*m.operands, *m.results))]
    largest = max((numel(v) for v in values if isinstance(v.type, TensorType)), default=0)
    if largest < 2**31 - 2**20:
        return dtypes.int32
    if not target.computes(dtypes.int64):
        raise UnsupportedError(f"a tensor of {largest} elements needs int64 indices, which {target.language} lacks")
    return dtypes.int64


def label_of(group: Group) -> str:
    """The operators of a group, for people."""
    names = [m.name.removeprefix("array.") for m in group.members if not is_free(m) or len(group.members) == 1]
    return "_".join(names[:4]) + (f"_and_{len(names) - 4}" if len(names) > 4 else "")


def lower_group(group: Group, target: Target) -> list[KernelCall | LibraryCall]:
    """The launches that compute a group, in order; none when all its outputs are empty."""
    if all(numel(v) == 0 for v in group.outputs):
        return []
    if group.library is not None:
        (op,) = group.members
        buffers = (*(memory_of(v) for v in op.operands), *op.results)
        return [LibraryCall(group.library, buffers, len(op.results), label_of(group))]
    index = index_dtype(group, target)
    if group.anchor is not None and group.anchor.name in SOLITARY_KERNELS:
        (op,) = group.members
        alone = Solitary(op, group.leaves, op.results, target, TABLE, index)
        return [name_kernel(SOLITARY_KERNELS[op.name](alone))]
    label = label_of(group)
    cut = tiling(group.anchor, target) if group.anchor is not None else None
    if cut is not None:
        return [name_kernel(lower_tiles(group, cut, target, TABLE, "kernel", label, index))]
    lower = lower_rows if group.axes is not None else lower_pointwise
    call = lower(group, target, TABLE, "kernel", label, index)
    return [name_kernel(call)]


def name_kernel(call: KernelCall) -> KernelCall:
    """Name a kernel by what it holds and a hash of its text: equal kernels get equal names."""
    call.function.attributes["name"] = "kernel"
    digest = hashlib.sha256(print_op(call.function).encode()).hexdigest()[:12]
    call.function.attributes["name"] = f"{call.label[:48]}_{digest}"
    return call
