"""Contractions, windows and arg-reductions as loops at one element of their result: sound on every target."""

from __future__ import annotations

from collections.abc import Sequence

from oarlock import dtypes
from oarlock.codegen.kernel.builder import dtype_of
from oarlock.codegen.lower.elementwise import combine, identity
from oarlock.codegen.lower.emitter import EmitElement, Emitter
from oarlock.codegen.lower.index import Index
from oarlock.codegen.values import ints, shape_of
from oarlock.dtypes import DType
from oarlock.ir import Operation, Value
from oarlock.ops import tensor

__all__ = ["ANCHOR_ELEMENTS", "accumulator", "convolution_dims", "kind_of", "pairs", "window_position"]


def accumulator(kind: str, dtype: DType) -> DType:
    """The dtype that a reduction accumulates in: float32 for sums and products of 16-bit floats."""
    return dtypes.float32 if dtype.is_float and dtype.bits == 16 and kind in ("sum", "prod") else dtype


def kind_of(op: Operation) -> str:
    """What a reduction does: sum, prod, max, min."""
    return op.name.removeprefix("array.reduce_")


def pairs(op: Operation, name: str) -> tuple[tuple[int, ...], ...]:
    """An attribute that is a tuple of tuples of ints."""
    value = op.attributes[name]
    assert isinstance(value, tuple)
    return tuple(tuple(int(v) for v in pair) for pair in value)  # type: ignore[union-attr, arg-type]


def _dot_general(e: Emitter, op: Operation, index: Index) -> Value:
    b = e.b
    x, y = op.operands
    (bx, by), (cx, cy) = pairs(op, "batch"), pairs(op, "contract")
    dtype = tensor(op.result).dtype
    acc_dtype = accumulator("sum", dtype)
    position = index.dims(b)
    fx = [d for d in range(len(shape_of(x))) if d not in bx + cx]
    fy = [d for d in range(len(shape_of(y))) if d not in by + cy]
    at_x = dict(zip((*bx, *fx), position[: len(bx) + len(fx)], strict=True))
    at_y = dict(zip((*by, *fy), (*position[: len(by)], *position[len(bx) + len(fx) :]), strict=True))
    bounds = [e.size(shape_of(x)[d], x, d) for d in cx]

    def body(at: list[Value], carried: list[Value]) -> Sequence[Value]:
        px = {**at_x, **dict(zip(cx, at, strict=True))}
        py = {**at_y, **dict(zip(cy, at, strict=True))}
        left = e.value(x, e.index_of_dims(x, [px[d] for d in range(len(px))]))
        right = e.value(y, e.index_of_dims(y, [py[d] for d in range(len(py))]))
        return [b.multiply_add(b.convert(left, acc_dtype), b.convert(right, acc_dtype), carried[0])]

    total = e.loops(bounds, body, [b.const(0, acc_dtype)])[0]
    return b.convert(total, dtype)


def window_position(e: Emitter, start: Value, tap: Value, stride: int, dilation: int, low: int) -> Value:
    """Where tap ``tap`` of the window at ``start`` reads: start * stride + tap * dilation - low; may lie outside."""
    b = e.b
    return b.sub(b.add(b.mul(start, b.i(stride)), b.mul(tap, b.i(dilation))), b.i(low))


def _windowed(
    e: Emitter,
    x: Value,
    dims: Sequence[int],
    positions: Sequence[Value],
    padded: Sequence[bool],
    rest: dict[int, Value],
) -> tuple[Value, Value]:
    """(inside, element of x) at window positions of ``dims``, 0 where they lie outside."""
    b = e.b
    inside = b.const(True, dtypes.bool_)
    for d, position, pads in zip(dims, positions, padded, strict=True):
        if pads:
            size = e.size(shape_of(x)[d], x, d)
            inside = b.and_(inside, b.and_(b.le(b.i(0), position), b.lt(position, size)))
    at = dict(rest)
    for d, position, pads in zip(dims, positions, padded, strict=True):
        at[d] = b.select(inside, position, b.i(0)) if pads else position
    return inside, e.value(x, e.index_of_dims(x, [at[d] for d in range(len(at))]))


def convolution_dims(op: Operation) -> tuple[range, int]:
    """The spatial dimensions of a convolution's image and result, and that of the channels."""
    rank = len(shape_of(op.operands[0]))
    return (range(1, rank - 1), rank - 1) if op.attributes.get("channels_last") else (range(2, rank), 1)


def _convolution(e: Emitter, op: Operation, index: Index) -> Value:
    b = e.b
    x, w = op.operands
    strides, dilation = ints(op, "strides"), ints(op, "dilation")
    padding = pairs(op, "padding")
    groups = op.attributes["groups"]
    assert isinstance(groups, int)
    dtype = tensor(op.result).dtype
    acc_dtype = accumulator("sum", dtype)
    dims, channels = convolution_dims(op)
    place = index.dims(b)
    n, o, spatial = place[0], place[channels], [place[d] for d in dims]
    outputs, inputs, *kernel = shape_of(w)
    first = b.i(0)
    if groups > 1:
        per_group = e.size(outputs // groups, op, "outputs")
        first = b.mul(b.quot(o, per_group), e.size(inputs, w, 1))
    padded = [low > 0 or high > 0 for low, high in padding]

    def body(at: list[Value], carried: list[Value]) -> Sequence[Value]:
        c, *taps = at
        positions = [
            window_position(e, s, t, strides[i], dilation[i], padding[i][0])
            for i, (s, t) in enumerate(zip(spatial, taps, strict=True))
        ]
        inside, left = _windowed(e, x, dims, positions, padded, {0: n, channels: b.add(first, c)})
        left = b.select(inside, b.convert(left, acc_dtype), b.const(0, acc_dtype))
        right = b.convert(e.value(w, e.index_of_dims(w, [o, c, *taps])), acc_dtype)
        return [b.multiply_add(left, right, carried[0])]

    bounds = [e.size(inputs, w, 1), *(b.i(k) for k in kernel)]
    total = e.loops(bounds, body, [b.const(0, acc_dtype)])[0]
    return b.convert(total, dtype)


def _window_reduce(e: Emitter, op: Operation, index: Index) -> Value:
    b = e.b
    (x,) = op.operands
    kind = str(op.attributes["kind"])
    window, strides, dilation = ints(op, "window"), ints(op, "strides"), ints(op, "dilation")
    padding = pairs(op, "padding")
    dtype = tensor(op.result).dtype
    acc_dtype = accumulator(kind, dtype)
    position = index.dims(b)
    neutral = b.const(identity(kind, acc_dtype), acc_dtype)
    dims = list(range(len(window)))
    padded = [low > 0 or high > 0 for low, high in padding]

    def body(at: list[Value], carried: list[Value]) -> Sequence[Value]:
        positions = [window_position(e, position[d], at[d], strides[d], dilation[d], padding[d][0]) for d in dims]
        inside, element = _windowed(e, x, dims, positions, padded, {})
        return [combine(b, kind, carried[0], b.select(inside, b.convert(element, acc_dtype), neutral))]

    return b.convert(e.loops([b.i(k) for k in window], body, [neutral])[0], dtype)


def _arg(kind: str) -> EmitElement:
    """The first position of the extreme; a NaN wins."""

    def element(e: Emitter, op: Operation, index: Index) -> Value:
        b = e.b
        (x,) = op.operands
        axis = op.attributes["axis"]
        dtype = op.attributes["dtype"]
        assert isinstance(axis, int) and isinstance(dtype, DType)
        shape = shape_of(x)
        dims = index.dims(b)
        if not op.attributes.get("keepdims", False):
            dims.insert(axis, b.i(0))

        def at(i: Value) -> Value:
            found = e.value(x, e.index_of_dims(x, [i if d == axis else p for d, p in enumerate(dims)]))
            return b.convert(found, dtypes.uint8) if dtype_of(found).kind == "bool" else found

        def body(i: Value, carried: list[Value]) -> Sequence[Value]:
            best, where = carried
            element = at(i)
            better = b.lt(best, element) if kind == "max" else b.lt(element, best)
            if dtype_of(element).is_float:
                better = b.and_(b.not_(b.is_nan(best)), b.or_(better, b.is_nan(element)))
            return [b.select(better, element, best), b.select(better, i, where)]

        first = at(b.i(0))
        found = e.loop(b.i(1), e.size(shape[axis], x, axis), body, [first, b.i(0)])
        return b.convert(found[1], dtype)

    return element


ANCHOR_ELEMENTS: dict[str, EmitElement] = {
    "array.dot_general": _dot_general,
    "array.convolution": _convolution,
    "array.window_reduce": _window_reduce,
    "array.argmax": _arg("max"),
    "array.argmin": _arg("min"),
}
"""How each anchor gives one element of its result."""
