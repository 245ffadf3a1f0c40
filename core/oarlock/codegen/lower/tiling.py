"""How contractions are cut into tiles of results that stay in registers, by a rule table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oarlock.codegen.free import is_free
from oarlock.codegen.lower.anchors import accumulator, pairs
from oarlock.codegen.schedule import schedule_of
from oarlock.codegen.values import ints, shape_of
from oarlock.dtypes import DType
from oarlock.ir import Operation, Value
from oarlock.ir.extents import known
from oarlock.ops import tensor
from oarlock.target import Target

__all__ = ["Tiling", "contiguous_along", "tiling", "vector_lanes"]


def contiguous_along(value: Value, dim: int) -> bool:
    """Whether neighbours along ``dim`` of ``value`` are neighbours in the memory behind it."""
    op = value.defining_op
    shape = shape_of(value)
    if op is None or not is_free(op):
        return all(d == 1 for d in shape[dim + 1 :])
    if op.name == "array.transpose":
        return contiguous_along(op.operands[0], ints(op, "permutation")[dim])
    if op.name == "array.reshape":
        (x,) = op.operands
        before = shape_of(x)
        if not before or dim != len(shape) - 1 or before[-1] != shape[-1]:
            return False
        return contiguous_along(x, len(before) - 1)
    if op.name == "array.broadcast":
        dims = ints(op, "dims")
        return dim in dims and _same(op, dims, dim) and contiguous_along(op.operands[0], dims.index(dim))
    if op.name == "array.slice":
        return ints(op, "steps")[dim] == 1 and contiguous_along(op.operands[0], dim)
    return False


def _same(op: Operation, dims: Sequence[int], dim: int) -> bool:
    return shape_of(op.operands[0])[dims.index(dim)] == shape_of(op.result)[dim]


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a contraction is cut: result dimensions that are rows and that are columns (walked as one), lanes, rows, and
    vectors or columns of a tile; ``along`` says which form."""

    row_dims: range
    column_dims: range
    lanes: int
    rows: int
    columns: int
    along: bool


NONE = range(0)
LEAST_COLUMNS = 4
"""Columns of a result from which on tiles of a convolution pay."""


def _one(dim: int) -> range:
    return range(dim, dim + 1)


def tiling(op: Operation, target: Target) -> Tiling | None:
    """The tiling of a contraction on ``target``; None where tiles do not pay and each element is computed by itself.

    What the operation's own schedule says comes before the table.
    """
    if op.name == "array.dot_general":
        return _tile_product(op, target)
    if op.name == "schedule.convolution":
        return _tile_convolution(op, target)
    if op.name == "schedule.packed_product":
        return _tile_packed(op, target)
    if op.name == "schedule.window_product":
        return _tile_windows(op, target)
    return None


def vector_lanes(target: Target, dtype: DType) -> int:
    """Elements of ``dtype`` in a vector of ``target``, a power of two."""
    width = target.limits.vector_width * 32 // max(32, dtype.bits)
    return 1 << (max(1, width).bit_length() - 1)


def _rows_limit(target: Target) -> tuple[int, int]:
    """(rows, vectors) whose sums fit the registers: 16 of them, 32 where vectors have 16 lanes."""
    return (8, 3) if target.limits.vector_width >= 16 else (6, 2)


def _tile_product(op: Operation, target: Target) -> Tiling | None:
    x, y = op.operands
    (bx, by), (cx, cy) = pairs(op, "batch"), pairs(op, "contract")
    fx = [d for d in range(len(shape_of(x))) if d not in bx + cx]
    fy = [d for d in range(len(shape_of(y))) if d not in by + cy]
    acc = accumulator("sum", tensor(op.result).dtype)
    width = vector_lanes(target, acc)
    if width < 2 or acc.kind == "bool":
        return None
    row_dims = _one(len(bx) + len(fx) - 1) if fx else NONE
    rows = shape_of(x)[fx[-1]] if fx else 1
    most_rows, most_vectors = _rows_limit(target)
    schedule = schedule_of(op)
    if fy and contiguous_along(y, fy[-1]) and shape_of(y)[fy[-1]] >= 4:
        columns = shape_of(y)[fy[-1]]
        lanes = min(width, 1 << (columns.bit_length() - 1))
        most_vectors = schedule.vectors or (most_vectors if rows > 1 else 4)
        vectors = known(max(1, min(most_vectors, columns // lanes)))
        most_rows = schedule.rows or most_rows
        return Tiling(
            row_dims, _one(len(bx) + len(fx) + len(fy) - 1), lanes, known(min(rows, most_rows)), vectors, False
        )
    if len(cx) == 1 and contiguous_along(x, cx[0]) and contiguous_along(y, cy[0]) and shape_of(x)[cx[0]] >= 4:
        lanes = min(width, 1 << (shape_of(x)[cx[0]].bit_length() - 1))
        column_dims = _one(len(bx) + len(fx) + len(fy) - 1) if fy else NONE
        columns = shape_of(y)[fy[-1]] if fy else 1
        most = (schedule.rows or 4, schedule.vectors or 4)
        return Tiling(row_dims, column_dims, lanes, known(min(rows, most[0])), known(min(columns, most[1])), True)
    return None


def _tile_packed(op: Operation, target: Target) -> Tiling:
    x, y = op.operands
    lanes = vector_lanes(target, tensor(x).dtype)
    batch, rows, tile = (op.attributes[name] for name in ("batch", "rows", "tile"))
    assert isinstance(batch, int) and isinstance(rows, int) and isinstance(tile, int)
    row_dims = range(batch, batch + rows)
    column_dims = range(row_dims.stop, len(shape_of(op.result)))
    return Tiling(row_dims, column_dims, lanes, tile, shape_of(y)[-1] // lanes, False)


def _tile_windows(op: Operation, target: Target) -> Tiling:
    x, y = op.operands
    lanes, tile, last = vector_lanes(target, tensor(x).dtype), op.attributes["tile"], len(shape_of(x)) - 1
    assert isinstance(tile, int)
    return Tiling(range(last), _one(last), lanes, tile, shape_of(y)[-1] // lanes, False)


def _tile_convolution(op: Operation, target: Target) -> Tiling | None:
    shape = shape_of(op.result)
    width = vector_lanes(target, accumulator("sum", tensor(op.result).dtype))
    columns = shape[-1]
    groups = op.attributes["groups"]
    assert isinstance(groups, int)
    most_rows, most_vectors = _rows_limit(target)
    if width < 2 or columns < LEAST_COLUMNS:
        return None
    lanes = min(width, 1 << (columns.bit_length() - 1))
    schedule = schedule_of(op)
    most_rows = schedule.rows or most_rows
    vectors = known(max(1, min(schedule.vectors or most_vectors, columns // lanes)))
    per_group = shape[1] // groups
    if per_group == 1 and len(shape) > 3:
        rows = known(min(schedule.rows or 4, shape[-2]))
        return Tiling(_one(len(shape) - 2), _one(len(shape) - 1), lanes, rows, vectors, False)
    rows = (
        known(min(most_rows, shape[1]))
        if groups == 1
        else max(r for r in range(1, most_rows + 1) if per_group % r == 0)
    )
    return Tiling(_one(1), _one(len(shape) - 1), lanes, rows, vectors, False)
