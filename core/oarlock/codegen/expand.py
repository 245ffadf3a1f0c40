"""Expansion: operators that one kernel cannot do well become several, before fusion.

A sort of many short rows becomes one kernel that sorts them side by side, which also finds the first ones alone; other
sorts become passes by digits where a block walks a row alone, and passes that merge runs of doubling width where
threads share it. A long scan over few rows becomes totals of pieces, a scan of these, and scans of the pieces, which
begin there. A convolution gets its image padded, and split into phases where it strides, so that
what a tile needs lies side by side; a matrix product gets a transposed copy of an operand that does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

import numpy as np

from oarlock import dtypes
from oarlock.codegen.attention import expand_attention
from oarlock.codegen.free import is_free, memory_of
from oarlock.codegen.images import window_product
from oarlock.codegen.lower.anchors import accumulator, pairs
from oarlock.codegen.lower.matrix import matrix_kind
from oarlock.codegen.lower.radix import digits
from oarlock.codegen.lower.subject import fixed_values, operator_subject
from oarlock.codegen.lower.tiling import contiguous_along, tiling
from oarlock.codegen.packing import pack, pack_convolution
from oarlock.codegen.schedule import RULES, Choice, put_schedule, schedule_of
from oarlock.codegen.schedule_dialect import SCHEDULE
from oarlock.codegen.siblings import join_siblings
from oarlock.codegen.values import ints, numel, shape_of
from oarlock.ir import Attribute, Context, Operation, TensorType, Value
from oarlock.ops import ArrayBuilder, array_context, tensor
from oarlock.target import Target

__all__ = ["Claim", "expand"]

RADIX_LEAST = 64
"""Keys of a row from which on passes by digits repay their tables of counts."""
NETWORK_MOST = 2048
"""Keys of a row up to which many rows are sorted side by side."""
REPEATS = 64
"""Readings of each element from which on a copy of a few is repaid."""
SCAN_PIECE = 256
"""Elements of one piece of a long scan where threads walk the pieces."""
MANY_ROWS = 256
"""With so many rows a long scan is parallel enough as it is."""

SCAN_STRETCH = 4096
"""Elements of one piece of a long scan where blocks walk alone."""
MANY_STRETCHES = 16
"""With so many rows these do without pieces."""

WIDEST_CONCAT = 16
"""Operands of one concatenation: each element asks every operand whether it lies there."""

Claim = Callable[[Operation], object | None]
"""Gives an adapter's own kernel for an operation, or None."""


def expand(
    function: Operation,
    target: Target,
    claim: Claim = lambda op: None,
    choice: Choice | None = None,
    fixed: Collection[int] = (),
) -> dict[Operation, object]:
    """Expand in place; returns the operations that adapters' own kernels run, with these.

    ``choice`` gives schedules of contractions (None: all as the rules say); ``fixed`` are the positions of arguments
    that are the same in every run.
    """
    still = frozenset() if choice is None else fixed_values(function, fixed)
    context = array_context()
    context.register(SCHEDULE)
    claimed: dict[Operation, object] = {}
    for op in function.regions[0].block.ops:
        if op.name == "array.dot_general":
            _absorb_transposes(op)
    if still and not target.has_threads:
        join_siblings(function, context, still)
    expand_attention(function, context, target, claim)
    for op in list(function.regions[0].block.ops):
        schedule = RULES
        if choice is not None and op.name in _CLAIMABLE:
            schedule = choice(operator_subject(op, still))
        kernel = claim(op) if op.name in _CLAIMABLE and not schedule.form else None
        if kernel is not None:
            claimed[op] = kernel
            _lay_operands(op, context)
            continue
        put_schedule(op, schedule)
        rule = _RULES.get(op.name)
        values = rule(op, context, target) if rule is not None else None
        if values is not None:
            for old, new in zip(op.results, values, strict=True):
                old.replace_all_uses_with(new)
            op.erase()
    return claimed


def _lay_operands(op: Operation, context: Context) -> None:
    """Copy operands that are only computed views, for kernels that read contiguous memory."""
    b = _builder(op, context)
    for position, value in enumerate(op.operands):
        definition = memory_of(value).defining_op
        if definition is not None and is_free(definition):
            op.set_operand(position, b.create("schedule.copy", (value,)).result)


def _builder(op: Operation, context: Context) -> ArrayBuilder:
    assert op.parent is not None
    b = ArrayBuilder(context, op.parent, op)
    b.location = op.location
    return b


def _sort(op: Operation, context: Context, target: Target) -> list[Value]:
    b = _builder(op, context)
    (x,) = op.operands
    axis = op.attributes["axis"]
    assert isinstance(axis, int)
    shape = shape_of(x)
    dtype = tensor(op.results[1]).dtype
    if _fits_network(shape, axis, target):
        return _sort_rows(b, op, axis)
    if shape[axis] >= RADIX_LEAST and numel(x) and not target.has_threads:
        return _sort_by_digits(b, op, axis)
    keys, positions = x, b("iota", shape=shape, axis=axis, dtype=dtypes.int32)
    width = 1
    while width < shape[axis] and numel(x):
        attributes: dict[str, Attribute] = {
            "axis": axis,
            "width": width,
            "descending": bool(op.attributes.get("descending", False)),
        }
        keys, positions = b.create("schedule.merge_pass", (keys, positions), attributes).results
        width *= 2
    return [keys, b.convert(positions, dtype)]


def _fits_network(shape: tuple[int, ...], axis: int, target: Target) -> bool:
    """Whether there are rows enough for all lanes of a vector, and each fits private memory."""
    width, length = target.limits.vector_width, shape[axis]
    if target.has_threads or width < 2 or not 2 <= length <= NETWORK_MOST:
        return False
    return math.prod(d for i, d in enumerate(shape) if i != axis) >= width


def _sort_rows(b: ArrayBuilder, op: Operation, axis: int) -> list[Value]:
    (x,) = op.operands
    shape = shape_of(x)
    cuts = _first_ones(op, axis)
    if cuts:
        shape = shape_of(cuts[0].result)
    kinds = [TensorType(tensor(x).dtype, shape)]
    if op.results[1].uses:
        kinds.append(TensorType(dtypes.int32, shape))
    attributes: dict[str, Attribute] = {"axis": axis, "descending": bool(op.attributes.get("descending", False))}
    found = b.create("schedule.sort_rows", (x,), attributes, kinds).results
    made = [found[0], b.convert(found[-1], tensor(op.results[1]).dtype)]  # nobody asks for positions that are not there
    for cut in cuts:
        cut.result.replace_all_uses_with(made[op.results.index(cut.operands[0])])
        cut.erase()
    return made


def _first_ones(op: Operation, axis: int) -> list[Operation]:
    """The slices that take the same number of first ones of a sort's results, where nothing else is asked of it."""
    cuts = [user for result in op.results for user, _ in result.uses]
    whole = shape_of(op.operands[0])
    for cut in cuts:
        if cut.name != "array.slice" or any(ints(cut, "starts")) or any(step != 1 for step in ints(cut, "steps")):
            return []
        shape = shape_of(cut.result)
        if shape != shape_of(cuts[0].result) or shape[axis] == 0:
            return []
        if any(d != n for i, (d, n) in enumerate(zip(shape, whole, strict=True)) if i != axis):
            return []
    return cuts


def _sort_by_digits(b: ArrayBuilder, op: Operation, axis: int) -> list[Value]:
    (x,) = op.operands
    shape = shape_of(x)
    order = tuple(d for d in range(len(shape)) if d != axis) + (axis,)
    back = tuple(order.index(d) for d in range(len(shape)))
    last = len(shape) - 1
    keys = x if axis == last else b.create("schedule.copy", (b("transpose", x, permutation=order),)).result
    moved = [keys]
    if op.results[1].uses:
        moved.append(b("iota", shape=shape_of(keys), axis=last, dtype=dtypes.int32))
    attributes: dict[str, Attribute] = {"axis": last, "descending": bool(op.attributes.get("descending", False))}
    for shift, bits in digits(tensor(x).dtype, shape[axis]):
        moved = list(b.create("schedule.radix_pass", moved, {**attributes, "shift": shift, "bits": bits}).results)
    keys, positions = moved[0], moved[-1]  # nobody asks for the positions where there are none
    if axis != last:
        keys, positions = (b("transpose", v, permutation=back) for v in (keys, positions))
    return [keys, b.convert(positions, tensor(op.results[1]).dtype)]


def _scan(op: Operation, context: Context, target: Target) -> list[Value] | None:
    """Cut few long lines into pieces: their totals first, a scan of these, and then all pieces at once."""
    (x,) = op.operands
    axis = op.attributes["axis"]
    assert isinstance(axis, int)
    shape = shape_of(x)
    length = shape[axis]
    piece, rows = (SCAN_PIECE, MANY_ROWS) if target.has_threads else (SCAN_STRETCH, MANY_STRETCHES)
    if length <= 4 * piece or math.prod(shape) // length >= rows:
        return None
    b = _builder(op, context)
    kind, reverse = str(op.attributes["kind"]), bool(op.attributes.get("reverse", False))
    many = -(-length // piece) - 1  # the last one's total is not asked for
    begin = length - many * piece if reverse else 0
    starts = tuple(begin if i == axis else 0 for i in range(len(shape)))
    limits = tuple(begin + many * piece if i == axis else d for i, d in enumerate(shape))
    wide = accumulator(kind, tensor(x).dtype)
    whole = b.convert(b("slice", x, starts=starts, limits=limits, steps=tuple(1 for _ in shape)), wide)
    split = b("reshape", whole, shape=(*shape[:axis], many, piece, *shape[axis + 1 :]))
    totals = b(f"reduce_{kind}", split, axes=(axis + 1,), keepdims=False)
    if reverse:
        totals = b("reverse", totals, axes=(axis,))
    before = b("scan", totals, kind=kind, axis=axis, reverse=False, exclusive=False)
    attributes: dict[str, Attribute] = {"kind": kind, "axis": axis, "piece": piece, "reverse": reverse}
    attributes["exclusive"] = bool(op.attributes.get("exclusive", False))
    return [b.create("schedule.scan_pieces", (x, before), attributes).result]


def _broadcast(op: Operation, context: Context, target: Target) -> list[Value] | None:
    """With a copy of an operand that is small and repeats its elements one by one, as the factors of a group's channels
    do: what reads them side by side could not take them as vectors."""
    (x,) = op.operands
    joined = x.defining_op
    repeated = joined.operands[0].defining_op if joined is not None and joined.name == "array.reshape" else None
    if repeated is None or repeated.name != "array.broadcast" or target.has_threads:
        return None
    last = len(shape_of(repeated.result)) - 1
    if last in ints(repeated, "dims") or shape_of(repeated.result)[last] < 2 or numel(op.result) < REPEATS * numel(x):
        return None
    b = _builder(op, context)
    copy = b.create("schedule.copy", (x,)).result
    return [b.create(op.name, (copy,), op.attributes).result]


def _convolution(op: Operation, context: Context, target: Target) -> list[Value] | None:
    x, w = op.operands
    result = shape_of(op.result)
    b = _builder(op, context)
    if op.attributes.get("channels_last"):
        made = window_product(op, b, target)
        return None if made is None else [made]
    packed = pack_convolution(op, b, target)
    if packed is not None:
        return [packed]
    if target.limits.vector_width < 2 or result[-1] < 4 or math.prod(result) == 0 or math.prod(shape_of(w)) == 0:
        return None
    padding, strides, dilation = pairs(op, "padding"), ints(op, "strides"), ints(op, "dilation")
    shape = shape_of(x)
    stride = strides[-1]
    span = (shape_of(w)[-1] - 1) * dilation[-1]
    columns = -(-(span + 1) // stride) + result[-1]  # what the taps of the last column's tile may read
    wanted = columns * stride if stride > 1 else shape[-1] + sum(padding[-1])
    low = (0, 0, *(p[0] for p in padding))
    high = [0, 0, *(p[1] for p in padding)]
    if stride > 1:
        extra = wanted - shape[-1] - padding[-1][0]
        if extra < 0:  # the last elements are never read
            limits = (*shape[:-1], shape[-1] + extra)
            x = b("slice", x, starts=tuple(0 for _ in shape), limits=limits, steps=tuple(1 for _ in shape))
            extra = 0
        high[-1] = extra
    if any(low) or any(high):
        neutral = b.constant(np.asarray(0), tensor(x).dtype)
        x = b("pad", x, neutral, low=low, high=tuple(high), interior=tuple(0 for _ in shape))
    if stride > 1:
        padded = shape_of(x)
        x = b("reshape", x, shape=(*padded[:-1], columns, stride))
        order = (*range(len(padded) - 1), len(padded), len(padded) - 1)
        x = b.create("schedule.copy", (b("transpose", x, permutation=order),)).result
    elif not contiguous_along(x, len(shape) - 1):
        x = b.create("schedule.copy", (x,)).result
    attributes = {"strides": strides, "dilation": dilation, "groups": op.attributes["groups"]}
    convolution = b.create("schedule.convolution", (x, w), attributes, [op.result.type])
    put_schedule(convolution, schedule_of(op))
    return [convolution.result]


def _dot_general(op: Operation, context: Context, target: Target) -> list[Value] | None:
    """Pack both operands of a large product; else copy the right one where it does not lie as any tiling needs it."""
    x, y = op.operands
    (_, by), (cx, cy) = pairs(op, "batch"), pairs(op, "contract")
    free = [d for d in range(len(shape_of(y))) if d not in by + cy]
    work = math.prod(shape_of(op.result)) * math.prod(shape_of(x)[d] for d in cx)
    b = _builder(op, context)
    packed = pack(op, b, target)
    if packed is not None:
        return [packed]
    if target.limits.vector_width < 2 or not free or work < 32**3:
        return None
    if matrix_kind(op, target) or tiling(op, target) is not None:
        return None
    order = (*by, *cy, *free)
    moved = b.create("schedule.copy", (b("transpose", y, permutation=order),)).result
    batch = (pairs(op, "batch")[0], tuple(range(len(by))))
    contract = (cx, tuple(range(len(by), len(by) + len(cy))))
    product = b("dot_general", x, moved, batch=batch, contract=contract, dtype=tensor(op.result).dtype)
    assert product.defining_op is not None
    put_schedule(product.defining_op, schedule_of(op))
    return [product]


def _absorb_transposes(op: Operation) -> None:
    """Contract what is behind a transpose, where the order of the free dimensions stays the same."""
    batch, contract = list(pairs(op, "batch")), list(pairs(op, "contract"))
    for side in (0, 1):
        definition = op.operands[side].defining_op
        if definition is None or definition.name != "array.transpose":
            continue
        permutation = ints(definition, "permutation")
        taken = (*batch[side], *contract[side])
        free = [permutation[d] for d in range(len(permutation)) if d not in taken]
        if free != sorted(free):
            continue
        batch[side] = tuple(permutation[d] for d in batch[side])
        contract[side] = tuple(permutation[d] for d in contract[side])
        op.set_operand(side, definition.operands[0])
    op.attributes["batch"], op.attributes["contract"] = tuple(batch), tuple(contract)


def _concat(op: Operation, context: Context, target: Target) -> list[Value] | None:
    """Concatenate in stages where one kernel cannot bind all operands."""
    most = max(2, min(target.limits.max_buffers - 1, WIDEST_CONCAT))
    parts = list(op.operands)
    if len(parts) <= most:
        return None
    b = _builder(op, context)
    while len(parts) > 1:
        parts = [
            parts[i] if len(parts[i : i + most]) == 1 else b("concat", *parts[i : i + most], axis=op.attributes["axis"])
            for i in range(0, len(parts), most)
        ]
    return parts


_CLAIMABLE = ("array.dot_general", "array.convolution")
"""Operators that adapters are asked for own kernels of: those where a library may win."""

_RULES: dict[str, Callable[[Operation, Context, Target], list[Value] | None]] = {
    "array.sort": _sort,
    "array.scan": _scan,
    "array.broadcast": _broadcast,
    "array.concat": _concat,
    "array.convolution": _convolution,
    "array.dot_general": _dot_general,
}
