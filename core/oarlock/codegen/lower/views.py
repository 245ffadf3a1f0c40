"""Operators that only move elements, as index arithmetic; and those whose elements come from nowhere or a table."""

from __future__ import annotations

from oarlock import dtypes
from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.kernel.builder import dtype_of
from oarlock.codegen.lower.elementwise import ELEMENTWISE
from oarlock.codegen.lower.emitter import EmitElement, Emitter
from oarlock.codegen.lower.index import Index, Run, single
from oarlock.codegen.lower.philox import random_word
from oarlock.codegen.values import ints, numel, shape_of, splat_value
from oarlock.dtypes import DType
from oarlock.errors import UnsupportedError
from oarlock.ir import Operation, Value
from oarlock.ops import tensor

__all__ = ["ELEMENTS", "to_index"]

FAR_BYTES = 4 << 20
"""From here on rows that are gathered are not at hand in a cache."""
ROWS_AHEAD = 4
"""How many rows ahead these are brought closer, where they are read in vectors: no processor foresees them."""


def _number(op: Operation, name: str) -> int:
    value = op.attributes[name]
    assert isinstance(value, int)
    return value


def _dtype(op: Operation, name: str = "dtype") -> DType:
    value = op.attributes[name]
    assert isinstance(value, DType)
    return value


def _elementwise(name: str) -> EmitElement:
    emit = ELEMENTWISE[name]

    def element(e: Emitter, op: Operation, index: Index) -> Value:
        operands = [e.value(v, index.broadcast_to_operand(e.b, shape_of(v))) for v in op.operands]
        return emit(e.b, operands)

    return element


def _convert(e: Emitter, op: Operation, index: Index) -> Value:
    return e.b.convert(e.value(op.operands[0], index), _dtype(op))


def _bitcast(e: Emitter, op: Operation, index: Index) -> Value:
    x = e.value(op.operands[0], index)
    dtype = _dtype(op)
    if dtype == dtype_of(x):
        return x
    if dtypes.bool_ in (dtype, dtype_of(x)):
        return e.b.convert(x, dtype)
    return e.b.bitcast(x, dtype)


def _broadcast(e: Emitter, op: Operation, index: Index) -> Value:
    (x,) = op.operands
    operand, result = shape_of(x), shape_of(op.result)
    dims = ints(op, "dims")
    sources = [dims[i] if operand[i] == result[dims[i]] else None for i in range(len(operand))]
    return e.value(x, index.select_dims(e.b, sources, operand))


def _reshape(e: Emitter, op: Operation, index: Index) -> Value:
    (x,) = op.operands
    shape = shape_of(x)
    return e.value(x, index.reshape(e.b, shape, lambda i: e.size(shape[i], x, i)))


def _transpose(e: Emitter, op: Operation, index: Index) -> Value:
    (x,) = op.operands
    permutation = ints(op, "permutation")
    inverse = [permutation.index(d) for d in range(len(permutation))]
    return e.value(x, index.select_dims(e.b, inverse, shape_of(x)))


def _slice(e: Emitter, op: Operation, index: Index) -> Value:
    (x,) = op.operands
    starts, steps = ints(op, "starts"), ints(op, "steps")
    operand, result = shape_of(x), shape_of(op.result)
    split = index.split(e.b)
    changes: dict[int, Run] = {}
    for d, dim in enumerate(operand):
        if result[d] != dim:
            position = e.b.mul(split.runs[d].position, e.size(steps[d], op, "step", d))
            position = e.b.add(position, e.size(starts[d], op, "start", d))
            changes[d] = single(dim, e.size(dim, x, d), position)
    return e.value(x, e.replace_dims(index, changes))


def _reverse(e: Emitter, op: Operation, index: Index) -> Value:
    (x,) = op.operands
    split = index.split(e.b)
    changes: dict[int, Run] = {}
    for d in ints(op, "axes"):
        run = split.runs[d]
        changes[d] = single(run.dims[0], run.total, e.b.sub(e.b.sub(run.total, e.b.i(1)), run.position))
    return e.value(x, e.replace_dims(index, changes))


def _pad(e: Emitter, op: Operation, index: Index) -> Value:
    b = e.b
    x, fill = op.operands
    low, high, interior = ints(op, "low"), ints(op, "high"), ints(op, "interior")
    filler = e.value(fill, Index(()))
    if numel(x) == 0:
        return filler
    operand = shape_of(x)
    split = index.split(b)
    inside = b.const(True, dtypes.bool_)
    changes: dict[int, Run] = {}
    for d, dim in enumerate(operand):
        if not (low[d] or high[d] or interior[d]):
            continue
        size = e.size(dim, x, d)
        position = b.sub(split.runs[d].position, e.size(low[d], op, "low", d))
        inside = b.and_(inside, b.le(b.i(0), position))
        if interior[d]:
            step = b.i(interior[d] + 1)
            # the precondition of quot and rem holds for negative positions too: they are masked out above
            inside = b.and_(inside, b.eq(b.rem(position, step), b.i(0)))
            position = b.quot(position, step)
        inside = b.and_(inside, b.lt(position, size))
        changes[d] = single(dim, size, position)
    # outside the operand its first element is loaded and not used
    changes = {d: single(r.dims[0], r.total, b.select(inside, r.position, b.i(0))) for d, r in changes.items()}
    return b.select(inside, e.value(x, e.replace_dims(index, changes)), filler)


def _concat(e: Emitter, op: Operation, index: Index) -> Value:
    b = e.b
    axis = _number(op, "axis")
    parts = [v for v in op.operands if numel(v)]
    position = index.split(b).runs[axis].position
    result: Value | None = None
    start = b.i(0)
    for part in parts:
        dim = shape_of(part)[axis]
        size = e.size(dim, part, axis)
        local = b.sub(position, start)
        end = b.add(start, size)
        inside = b.and_(b.le(b.i(0), local), b.lt(local, size)) if len(parts) > 1 else b.const(True, dtypes.bool_)
        run = single(dim, size, b.select(inside, local, b.i(0)))
        element = e.value(part, e.replace_dims(index, {axis: run}))
        result = element if result is None else b.select(inside, element, result)
        start = end
    if result is None:
        raise UnsupportedError("concat of nothing but empty tensors has no element")
    return result


def _gather(e: Emitter, op: Operation, index: Index) -> Value:
    b = e.b
    x, indices = op.operands
    axis = _number(op, "axis")
    source, table = shape_of(x), shape_of(indices)
    width = len(table)
    at = index.select_dims(b, [axis + i for i in range(width)], table)
    if numel(x) == 0:
        raise UnsupportedError("gather from an empty tensor has no element")
    size = e.size(source[axis], x, axis)
    before = index.select_dims(b, list(range(axis)), source[:axis])
    tail = [axis + width + i for i in range(len(source) - axis - 1)]
    after = index.select_dims(b, tail, source[axis + 1 :])

    def row(place: Index) -> Index:
        position = b.min(b.max(to_index(b, e.value(indices, place)), b.i(0)), b.sub(size, b.i(1)))
        return Index((*before.runs, single(source[axis], size, position), *after.runs))

    if e.is_wide and x in e.leaves and indices in e.leaves and numel(x) * tensor(x).dtype.itemsize >= FAR_BYTES:
        count = e.size(numel(indices), "indices", indices)
        later = b.min(b.add(at.linear(b), b.i(ROWS_AHEAD)), b.sub(count, b.i(1)))
        whole = Index((Run(table, count, later, lambda i: e.size(table[i], indices, i)),)) if table else at
        e.prefetch(x, row(whole))
    return e.value(x, row(at))


def to_index(b: KernelBuilder, position: Value) -> Value:
    """An integer of any dtype as the index dtype; what does not fit becomes the nearest that does."""
    dtype = dtype_of(position)
    if dtype.kind == "bool" or dtype == b.index:
        return b.convert(position, b.index)
    greatest = (1 << (b.index.bits - 1)) - 1
    if dtype.bits > b.index.bits and dtype.kind == "int":
        position = b.max(position, b.const(-greatest, dtype))
    if dtype.bits > b.index.bits or (dtype.bits == b.index.bits and dtype.kind == "uint"):
        position = b.min(position, b.const(greatest, dtype))
    return b.raw_convert(position, b.index)


def _iota(e: Emitter, op: Operation, index: Index) -> Value:
    position = index.split(e.b).runs[_number(op, "axis")].position
    return e.b.convert(e.spread(position), _dtype(op))


def _constant(e: Emitter, op: Operation, index: Index) -> Value:
    number = splat_value(op.result)
    if number is None:
        raise UnsupportedError("a constant with different elements must lie in memory")
    return e.b.const(number, tensor(op.result).dtype)


def _from_scalar(e: Emitter, op: Operation, index: Index) -> Value:
    return e.scalar(op.operands[0])


def _copy(e: Emitter, op: Operation, index: Index) -> Value:
    return e.value(op.operands[0], index)


def _random_bits(e: Emitter, op: Operation, index: Index) -> Value:
    b = e.b
    key, counter = op.operands

    def word(v: Value, i: int) -> Value:
        return e.value(v, Index((single(2, b.i(2), b.i(i)),)))

    return random_word(b, (word(key, 0), word(key, 1)), (word(counter, 0), word(counter, 1)), index.linear(b))


ELEMENTS: dict[str, EmitElement] = {
    **{"array." + name: _elementwise(name) for name in ELEMENTWISE},
    "array.convert": _convert,
    "array.bitcast": _bitcast,
    "array.broadcast": _broadcast,
    "array.reshape": _reshape,
    "array.transpose": _transpose,
    "array.slice": _slice,
    "array.reverse": _reverse,
    "array.pad": _pad,
    "array.concat": _concat,
    "array.gather": _gather,
    "array.iota": _iota,
    "array.constant": _constant,
    "array.from_scalar": _from_scalar,
    **{f"array.reduce_{kind}": _reshape for kind in ("sum", "prod", "max", "min")},  # of one element each
    "array.random_bits": _random_bits,
    "schedule.copy": _copy,
}
"""How each operator gives one element."""
