"""A fused group of array operators becomes kernels and their launches."""

from __future__ import annotations

import hashlib
from contextlib import suppress

from oarlock import dtypes
from oarlock.codegen.free import is_free, memory_of
from oarlock.codegen.groups import Group
from oarlock.codegen.kernel.builder import NotVectorisable
from oarlock.codegen.lower.anchors import ANCHOR_ELEMENTS
from oarlock.codegen.lower.attention import lower_attention
from oarlock.codegen.lower.call import KernelCall, LibraryCall
from oarlock.codegen.lower.matrix import lower_matrix, matrix_kind
from oarlock.codegen.lower.matvec import is_row_times_matrix, lower_row_times_matrix
from oarlock.codegen.lower.pointwise import lower_pointwise
from oarlock.codegen.lower.rows import lower_rows
from oarlock.codegen.lower.solitary import SOLITARY_KERNELS, Solitary
from oarlock.codegen.lower.structure import lower_once
from oarlock.codegen.lower.subject import Subject, is_subject
from oarlock.codegen.lower.tiles import lower_tiles
from oarlock.codegen.lower.tiling import tiling
from oarlock.codegen.lower.views import ELEMENTS
from oarlock.codegen.schedule import RULES, Choice, Schedule
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
    values = [
        *group.leaves,
        *group.outputs,
        *group.stored,
        *(v for m in group.members for v in (*m.operands, *m.results)),
    ]
    counts = [numel(v) for v in values if isinstance(v.type, TensorType)]
    if all(count < 2**31 - 2**20 for count in counts):
        return dtypes.int32
    if not target.computes(dtypes.int64):
        largest = max(counts)
        raise UnsupportedError(f"a tensor of {largest} elements needs int64 indices, which {target.language} lacks")
    return dtypes.int64


def label_of(group: Group) -> str:
    """The operators of a group, for people, as a word that can begin a kernel's name."""
    names = [m.name.partition(".")[2] for m in group.members if not is_free(m) or len(group.members) == 1]
    return "_".join(names[:4]) + (f"_and_{len(names) - 4}" if len(names) > 4 else "")


def lower_group(group: Group, target: Target, choice: Choice | None = None) -> list[KernelCall | LibraryCall]:
    """The launches that compute a group, in order; none when all its outputs are empty."""
    if all(numel(v) == 0 for v in group.outputs):
        return []
    if group.library is not None:
        (op,) = group.members
        buffers = (*(memory_of(v) for v in op.operands), *op.results)
        return [LibraryCall(group.library, buffers, len(op.results), label_of(group))]
    chosen = RULES if choice is None or not is_subject(group) else choice(Subject(group))
    return [lower_once(group, target, chosen, lambda: name_kernel(_lower(group, target, chosen)))]


def _lower(group: Group, target: Target, schedule: Schedule) -> KernelCall:
    """The kernel of a group, by the schedule that fits it."""
    index = index_dtype(group, target)
    label = label_of(group)
    if group.anchor is not None:
        if group.anchor.name in SOLITARY_KERNELS:
            (op,) = group.members
            return SOLITARY_KERNELS[op.name](Solitary(op, group.leaves, group.outputs, target, TABLE, index))
        if group.anchor.name == "schedule.attend":
            return lower_attention(group, target, TABLE, "kernel", label, index)
        kind = matrix_kind(group.anchor, target) if group.anchor.name == "array.dot_general" else ""
        if kind:
            return lower_matrix(group, kind, target, TABLE, "kernel", label, index)
        if is_row_times_matrix(group.anchor, target):
            with suppress(NotVectorisable):
                return lower_row_times_matrix(group, target, TABLE, "kernel", label, index)
        cut = tiling(group.anchor, target)
        if cut is not None:
            return lower_tiles(group, cut, target, TABLE, "kernel", label, index)
    lower = lower_rows if group.axes is not None else lower_pointwise
    return lower(group, target, TABLE, "kernel", label, index, schedule)


def name_kernel(call: KernelCall) -> KernelCall:
    """Name a kernel by what it holds and a hash of its text: equal kernels get equal names."""
    call.function.attributes["name"] = "kernel"
    digest = hashlib.sha256(print_op(call.function).encode()).hexdigest()[:12]
    call.function.attributes["name"] = f"{call.label[:48]}_{digest}"
    return call
