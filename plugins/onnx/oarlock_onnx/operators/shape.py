"""Operators that arrange elements: reshape, slice, concat, pad, tile, and constants of a shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from oarlock import dtypes
from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder
from oarlock_onnx.limits import check_host, check_size
from oarlock_onnx.node import Item, Node
from oarlock_onnx.operators.common import (
    axes_of,
    axis_of,
    broadcast_shape,
    cast,
    dtype_of,
    expand,
    fill,
    like,
    reshape,
    scalar,
    shape_of,
    slice_axis,
    transpose,
    unsqueeze,
)
from oarlock_onnx.registry import operator
from oarlock_onnx.tensors import dtype_of as onnx_dtype

__all__: list[str] = []


@operator("Shape")
def shape(b: GraphBuilder, node: Node) -> Value:
    """The shape, or the part of it from ``start`` to ``end``."""
    dims = shape_of(node.input(0))
    part = slice(node.integer("start", 0), node.integer("end") if node.has("end") else None)
    return b.constant(np.asarray(dims[part], np.int64))


@operator("Size")
def size(b: GraphBuilder, node: Node) -> Value:
    """The number of elements."""
    return b.constant(np.asarray(math.prod(shape_of(node.input(0))), np.int64))


@operator("Constant")
def constant(b: GraphBuilder, node: Node) -> Value:
    """A constant, from one of several attributes."""
    proto = node.tensor("value") if node.has("value") else None
    if proto is not None:
        return node.graphs.tensor(proto, "value")
    if node.has("value_float"):
        return b.constant(np.float32(node.real("value_float")))
    if node.has("value_floats"):
        return b.constant(np.asarray(node.reals("value_floats"), np.float32))
    if node.has("value_int"):
        return b.constant(np.int64(node.integer("value_int")))
    if node.has("value_ints"):
        return b.constant(np.asarray(node.integers("value_ints"), np.int64))
    if node.has("sparse_value"):
        return _sparse(b, node)
    raise ModelError(f"a constant of {', '.join(node.attributes) or 'nothing'} is not supported")


def _sparse(b: GraphBuilder, node: Node) -> Value:
    proto = node.sparse("sparse_value")
    if proto is None:
        raise ModelError("attribute sparse_value is missing")
    values = b.static(node.graphs.tensor(proto.values, "sparse values"), "sparse values")
    indices = b.static(node.graphs.tensor(proto.indices, "sparse indices"), "sparse indices")
    dims = tuple(proto.dims)
    count = check_size("sparse value", dims, dtypes.from_numpy(values.dtype))
    check_host("a sparse tensor", count)
    dense = np.zeros(count, values.dtype)
    flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dims)
    dense[flat] = values
    return b.known(dense.reshape(dims))


@operator("Reshape")
def reshape_node(b: GraphBuilder, node: Node) -> Value:
    """Another shape: 0 keeps a dimension (unless ``allowzero``), -1 is what remains."""
    x = node.input(0)
    wanted = node.integers("shape") if node.version < 5 else b.ints(node.input(1), "shape")
    given = shape_of(x)
    if not node.flag("allowzero"):
        if any(dim == 0 and axis >= len(given) for axis, dim in enumerate(wanted)):
            raise ModelError(f"shape {list(wanted)} keeps a dimension that {list(given)} does not have")
        wanted = tuple(given[axis] if dim == 0 else dim for axis, dim in enumerate(wanted))
    return reshape(b, x, _complete(wanted, math.prod(given)))


def _complete(wanted: Sequence[int], total: int) -> tuple[int, ...]:
    if list(wanted).count(-1) > 1 or any(dim < -1 for dim in wanted):
        raise ModelError(f"shape {list(wanted)} is not possible")
    rest = math.prod(dim for dim in wanted if dim != -1)
    if -1 in wanted and (rest == 0 or total % rest):
        raise ModelError(f"{total} elements do not fit the shape {list(wanted)}")
    return tuple(total // rest if dim == -1 else dim for dim in wanted)


@operator("Flatten")
def flatten(b: GraphBuilder, node: Node) -> Value:
    """Two dimensions: those before ``axis``, those from it on."""
    x = node.input(0)
    dims = shape_of(x)
    axis = node.integer("axis", 1)
    axis = axis + len(dims) if axis < 0 else axis
    if not 0 <= axis <= len(dims):
        raise ModelError(f"axis {axis} is outside the rank {len(dims)}")
    return reshape(b, x, (math.prod(dims[:axis]), math.prod(dims[axis:])))


def _axes(b: GraphBuilder, node: Node) -> tuple[int, ...] | None:
    if node.version < 13:
        return node.integers("axes") if node.has("axes") else None
    given = node.optional(1)
    return None if given is None else b.ints(given, "axes")


@operator("Squeeze")
def squeeze(b: GraphBuilder, node: Node) -> Value:
    """Without dimensions of size 1: those named, or all."""
    x = node.input(0)
    dims = shape_of(x)
    axes = _axes(b, node)
    chosen = [axis for axis, dim in enumerate(dims) if dim == 1] if axes is None else axes_of(axes, len(dims))
    if any(dims[axis] != 1 for axis in chosen):
        raise ModelError(f"axes {list(chosen)} of {list(dims)} are not all of size 1")
    return reshape(b, x, [dim for axis, dim in enumerate(dims) if axis not in chosen])


@operator("Unsqueeze")
def unsqueeze_node(b: GraphBuilder, node: Node) -> Value:
    """With new dimensions of size 1."""
    x = node.input(0)
    axes = _axes(b, node)
    if axes is None:
        raise ModelError("axes are missing")
    return unsqueeze(b, x, axes_of(axes, len(shape_of(x)) + len(axes)))


@operator("Transpose")
def transpose_node(b: GraphBuilder, node: Node) -> Value:
    """Dimensions permuted; reversed by default."""
    x = node.input(0)
    rank = len(shape_of(x))
    order = node.integers("perm", tuple(reversed(range(rank))))
    if sorted(order) != list(range(rank)):
        raise ModelError(f"perm {list(order)} is no permutation of {rank} dimensions")
    return transpose(b, x, order)


@operator("Concat")
def concat(b: GraphBuilder, node: Node) -> Value:
    """Tensors joined along an axis."""
    values = node.all_inputs()
    axis = node.integer("axis", 1 if node.version < 4 else None)
    axis = axis_of(axis, len(shape_of(values[0])))
    return values[0] if len(values) == 1 else b("concat", *values, axis=axis)


@operator("Split")
def split(b: GraphBuilder, node: Node) -> list[Item]:
    """Parts along an axis: of given sizes, or equal ones (the last may be smaller from version 18 on)."""
    x = node.input(0)
    axis = axis_of(node.integer("axis", 0), len(shape_of(x)))
    total, count = shape_of(x)[axis], len(node.outputs)
    given = node.optional(1)
    if given is not None:
        sizes = b.ints(given, "split")
    elif node.has("split"):
        sizes = node.integers("split")
    else:
        if node.integer("num_outputs", count) != count or not count:
            raise ModelError(f"num_outputs is {node.integer('num_outputs')}, there are {count} outputs")
        each = -(-total // count)
        sizes = tuple(max(0, min(each, total - each * part)) for part in range(count))
    if sum(sizes) != total or any(part < 0 for part in sizes):
        raise ModelError(f"parts {list(sizes)} do not add up to {total}")
    starts = [sum(sizes[:part]) for part in range(len(sizes))]
    return [slice_axis(b, x, axis, start, start + part) for start, part in zip(starts, sizes, strict=True)]


@operator("Slice")
def slice_node(b: GraphBuilder, node: Node) -> Value:
    """``x[start:end:step]`` along axes; numbers outside are clamped."""
    x = node.input(0)
    rank = len(shape_of(x))
    if node.version < 10:
        starts, ends = node.integers("starts"), node.integers("ends")
        axes, steps = node.integers("axes", range(len(starts))), (1,) * len(starts)
    else:
        starts, ends = b.ints(node.input(1), "starts"), b.ints(node.input(2), "ends")
        given, strides = node.optional(3), node.optional(4)
        axes = tuple(range(len(starts))) if given is None else b.ints(given, "axes")
        steps = (1,) * len(starts) if strides is None else b.ints(strides, "steps")
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ModelError(f"starts {list(starts)}, ends {list(ends)}, axes {list(axes)}, steps {list(steps)} do not fit")
    for axis, start, end, step in zip(axes_of(axes, rank), starts, ends, steps, strict=True):
        x = _slice_one(b, x, axis, start, end, step)
    return x


def _slice_one(b: GraphBuilder, x: Value, axis: int, start: int, end: int, step: int) -> Value:
    """One axis; as in Python, but a backward start before the front is held to the first element."""
    dim = shape_of(x)[axis]
    if step < 0 and dim and start < -dim:
        start = 0
    start, stop, step = slice(start, end, step).indices(dim)
    count = len(range(start, stop, step))
    if count == 0:
        return slice_axis(b, x, axis, 0, 0)
    if step > 0:
        return slice_axis(b, x, axis, start, stop, step)
    last = start + (count - 1) * step
    return b("reverse", slice_axis(b, x, axis, last, start + 1, -step), axes=(axis,))


@operator("Expand")
def expand_node(b: GraphBuilder, node: Node) -> Value:
    """Broadcast with a shape, both ways."""
    x = node.input(0)
    wanted = b.ints(node.input(1), "shape")
    shape = broadcast_shape(shape_of(x), wanted)
    check_size("the result", shape, dtype_of(x))
    return expand(b, x, shape)


@operator("Tile")
def tile(b: GraphBuilder, node: Node) -> Value:
    """Repetition along each axis."""
    x = node.input(0)
    dims = shape_of(x)
    if node.version < 6:
        repeats = [1] * len(dims)
        axis = axis_of(b.ints(node.input(2), "axis")[0], len(dims))
        repeats[axis] = b.ints(node.input(1), "tiles")[0]
    else:
        repeats = list(b.ints(node.input(1), "repeats"))
    if len(repeats) != len(dims) or any(count < 0 for count in repeats):
        raise ModelError(f"repeats {repeats} do not fit {list(dims)}")
    check_size("the result", [dim * count for dim, count in zip(dims, repeats, strict=True)], dtype_of(x))
    inner = [item for dim, count in zip(dims, repeats, strict=True) for item in (count, dim)]
    places = tuple(range(1, 2 * len(dims), 2))
    spread = b("broadcast", x, shape=tuple(inner), dims=places)
    return reshape(b, spread, [dim * count for dim, count in zip(dims, repeats, strict=True)])


@operator("ConstantOfShape")
def constant_of_shape(b: GraphBuilder, node: Node) -> Value:
    """A tensor filled with one value, float32 zero by default."""
    wanted = b.ints(node.input(0), "shape")
    proto = node.tensor("value")
    value = b.constant(np.float32(0)) if proto is None else node.graphs.tensor(proto, "value")
    if math.prod(shape_of(value)) != 1:
        raise ModelError(f"value must have one element, it has shape {list(shape_of(value))}")
    check_size("the result", wanted, dtype_of(value))
    return fill(b, reshape(b, value, ()), wanted)


@operator("Range")
def range_node(b: GraphBuilder, node: Node) -> Value:
    """Numbers from ``start`` up to (not including) ``limit``."""
    parts = [b.static(node.input(index), name) for index, name in enumerate(("start", "limit", "delta"))]
    start, limit, delta = (part.reshape(()) for part in parts)
    kind = dtype_of(node.input(0))
    if float(delta) == 0 or not all(np.isfinite(float(part)) for part in (start, limit, delta)):
        raise ModelError(f"a range from {start} to {limit} by {delta} is not possible")
    if kind.is_integer:
        count = len(range(int(start), int(limit), int(delta)))
    else:
        count = max(0, math.ceil((float(limit) - float(start)) / float(delta)))
    check_size("the range", (count,), kind)
    inner = dtypes.float32 if kind.is_float and kind.bits == 16 else kind
    numbers = b("iota", shape=(count,), axis=0, dtype=inner)
    product = b("multiply", numbers, b.constant(delta, inner))
    return cast(b, b("add", product, b.constant(start, inner)), kind)


@operator("EyeLike")
def eye_like(b: GraphBuilder, node: Node) -> Value:
    """Ones on a diagonal, in the shape of the input."""
    x = node.input(0)
    dims = shape_of(x)
    if len(dims) != 2:
        raise ModelError(f"the input must have 2 dimensions, it has {len(dims)}")
    kind = onnx_dtype(node.integer("dtype"), "dtype") if node.has("dtype") else dtype_of(x)
    rows, columns = _grid(b, dims)
    return cast(b, b("equal", b("add", rows, scalar(b, node.integer("k", 0), dtypes.int32)), columns), kind)


def _grid(b: GraphBuilder, dims: Sequence[int]) -> tuple[Value, Value]:
    """Row and column numbers, to broadcast against each other."""
    rows = b("iota", shape=(dims[0], 1), axis=0, dtype=dtypes.int32)
    return rows, b("iota", shape=(1, dims[1]), axis=1, dtype=dtypes.int32)


@operator("Trilu")
def trilu(b: GraphBuilder, node: Node) -> Value:
    """The upper or lower triangle of the last two dimensions."""
    x = node.input(0)
    dims = shape_of(x)
    if len(dims) < 2:
        raise ModelError(f"the input must have at least 2 dimensions, it has {len(dims)}")
    offset = node.optional(1)
    k = 0 if offset is None else b.ints(offset, "k")[0]
    rows, columns = _grid(b, dims[-2:])
    edge = b("add", rows, scalar(b, max(min(k, 2**30), -(2**30)), dtypes.int32))
    keep = b("greater_equal" if node.flag("upper", True) else "less_equal", columns, edge)
    return b("select", keep, x, like(b, 0, x))


@operator("DepthToSpace", "SpaceToDepth")
def depth_space(b: GraphBuilder, node: Node) -> Value:
    """Blocks of pixels to channels and back."""
    x, block, mode = node.input(0), node.integer("blocksize"), node.string("mode", "DCR")
    if len(shape_of(x)) != 4 or block < 1 or mode not in ("DCR", "CRD"):
        raise ModelError(f"input {list(shape_of(x))}, blocksize {block} and mode {mode!r} do not fit")
    n, c, h, w = shape_of(x)
    if node.op_type == "DepthToSpace":
        if c % block**2:
            raise ModelError(f"{c} channels do not make blocks of {block}x{block}")
        depth = c // block**2
        if mode == "DCR":
            parts = transpose(b, reshape(b, x, (n, block, block, depth, h, w)), (0, 3, 4, 1, 5, 2))
        else:
            parts = transpose(b, reshape(b, x, (n, depth, block, block, h, w)), (0, 1, 4, 2, 5, 3))
        return reshape(b, parts, (n, depth, h * block, w * block))
    if h % block or w % block:
        raise ModelError(f"{h}x{w} pixels do not make blocks of {block}x{block}")
    parts = reshape(b, x, (n, c, h // block, block, w // block, block))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return reshape(b, transpose(b, parts, order), (n, c * block**2, h // block, w // block))
