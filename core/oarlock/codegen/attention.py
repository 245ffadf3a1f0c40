"""Attention: a product of scores, a softmax over them and a product with values become one kernel.

softmax(f(Q K^T)) V, with any element-wise f (a scale, a mask), is computed for a few rows of Q at a time, over one
stretch of keys after the other, so that the scores never lie in memory: the largest score and the sum of the
exponentials so far are kept for each row, and what has been added up is scaled whenever a larger score comes (Milakov
and Gimelshein, "Online normalizer calculation for softmax"; Dao et al., "FlashAttention"). Q, K and V are packed first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from oarlock.codegen.free import base_of
from oarlock.codegen.lower.anchors import accumulator, pairs
from oarlock.codegen.lower.matrix import matrix_kind
from oarlock.codegen.lower.tiling import vector_lanes
from oarlock.codegen.packing import VECTORS, Side, packed_rows
from oarlock.codegen.values import ints, shape_of
from oarlock.ir import Context, Operation, Value
from oarlock.ops import RECORDS, ArrayBuilder, tensor
from oarlock.target import Target

__all__ = ["expand_attention"]

LEAST = 16
"""Rows and keys from which on the copies are repaid."""
MOST_COLUMNS = 256
"""Columns of V: a row's sums stay in private memory."""
ROWS_OF_THREAD = 4
"""Rows that a thread computes, where there are threads."""


@dataclass(frozen=True, slots=True, eq=False)
class _Match:
    scores: Operation
    """The product of Q and K."""
    between: tuple[Operation, ...]
    attend: Operation
    """The product with V."""

    @property
    def batch(self) -> int:
        """Dimensions that both products walk."""
        return len(pairs(self.attend, "batch")[0])


def expand_attention(
    function: Operation, context: Context, target: Target, claimed: Callable[[Operation], object | None]
) -> None:
    """Rewrite every attention of ``function`` to a ``schedule.scores`` and a ``schedule.attend`` of packed operands.

    Products that the adapter computes itself, or that tensor cores do, are left alone.
    """
    for op in [op for op in function.regions[0].block.ops if op.name == "array.dot_general"]:
        found = _match(op)
        if found is None or not _pays(found, target):
            continue
        if claimed(found.scores) is None and claimed(found.attend) is None:
            _rewrite(found, context, target)


def _made_by(value: Value | None, name: str) -> Operation | None:
    op = value.defining_op if value is not None else None
    return op if op is not None and op.name == name else None


def _first(op: Operation | None) -> Value | None:
    return op.operands[0] if op is not None else None


def _match(attend: Operation) -> _Match | None:
    """The attention that ends in the product ``attend``."""
    weights = attend.operands[0]
    rank = len(shape_of(weights))
    batch, contract = pairs(attend, "batch"), pairs(attend, "contract")
    if batch[0] != tuple(range(len(batch[0]))) or contract[0] != (rank - 1,):
        return None
    convert = _made_by(weights, "array.convert")
    divide = _made_by(_first(convert) or weights, "array.divide")
    exp = _made_by(_first(divide), "array.exp")
    subtract = _made_by(_first(exp), "array.subtract")
    if divide is None or exp is None or subtract is None:
        return None
    logits = subtract.operands[0]
    total = _reduction(divide.operands[1], "array.reduce_sum", exp.result)
    most = _reduction(subtract.operands[1], "array.reduce_max", logits)
    found = _chain(logits)
    if total is None or most is None or found is None:
        return None
    scores, chain = found
    between = (*chain, most, subtract, exp, total, divide, *([convert] if convert is not None else []))
    inside = {scores, *between, attend}
    if any(user not in inside for op in (scores, *between) for user in op.result.users):
        return None
    (_, by), (_, cy) = pairs(scores, "batch"), pairs(scores, "contract")
    same_batch = len(by) == len(batch[0]) and len(shape_of(scores.operands[1])) == len(by) + len(cy) + 1
    return _Match(scores, between, attend) if same_batch else None


def _reduction(value: Value, name: str, of: Value) -> Operation | None:
    """The operation behind ``value``, where that is the reduction ``name`` of each row of ``of``."""
    op = _made_by(value, name)
    if op is None or op.operands[0] is not of or ints(op, "axes") != (len(shape_of(of)) - 1,):
        return None
    return op if op.attributes["keepdims"] else None


def _chain(logits: Value) -> tuple[Operation, list[Operation]] | None:
    """The product that ``logits`` is computed from element by element, and the operators between, in order."""
    shape = shape_of(logits)
    inside: dict[Operation, bool] = {}
    product: list[Operation] = []

    def visit(value: Value) -> bool:
        op = value.defining_op
        if op is None or shape_of(value) != shape:
            return False
        if op.name == "array.dot_general":
            product.append(op)
            return op is product[0]
        record = RECORDS.get(op.name.removeprefix("array."))
        if record is None or not record.is_elementwise:
            return False
        if op not in inside:
            reached = [visit(operand) for operand in op.operands]
            inside[op] = any(reached)
        return inside[op]

    if not visit(logits):
        return None
    return product[0], [op for op, yes in inside.items() if yes]


def _pays(found: _Match, target: Target) -> bool:
    """Whether ``found`` is large enough, and its kernel fits the target."""
    scores, attend = found.scores, found.attend
    shape, result = shape_of(scores.result), shape_of(attend.result)
    rows, columns = math.prod(shape[found.batch : -1]), math.prod(result[len(shape) - 1 :])
    if (
        min(rows, shape[-1]) < LEAST
        or not 4 <= columns <= MOST_COLUMNS
        or 0 in (*shape_of(scores.operands[0]), *result)
    ):
        return False
    floats = (tensor(op.result).dtype for op in (scores, attend))
    softmax = accumulator("sum", tensor(found.between[-1].operands[0]).dtype)
    if any(not dtype.is_float or accumulator("sum", dtype) != softmax for dtype in floats):
        return False
    if matrix_kind(scores, target) or matrix_kind(attend, target):
        return False
    inside = {scores.result, *(op.result for op in found.between)}
    outside = {base_of(v) for op in found.between for v in op.operands} - inside - {None}
    return len(outside) + 4 <= target.limits.max_buffers


def _rewrite(found: _Match, context: Context, target: Target) -> None:
    scores, attend = found.scores, found.attend
    dtype = accumulator("sum", tensor(attend.result).dtype)
    width = VECTORS * vector_lanes(target, dtype)
    rows = ROWS_OF_THREAD if target.has_threads else packed_rows(target)
    assert scores.parent is not None
    b = ArrayBuilder(context, scores.parent, scores)
    b.location = scores.location
    batch, contract = pairs(scores, "batch"), pairs(scores, "contract")
    q, k = (Side(v, batch[i], contract[i]) for i, v in enumerate(scores.operands))
    in_place = q.lies_in_rows(dtype)
    queries = q.rows(b) if in_place else q.panels(b, rows, dtype)
    operands = (queries, k.panels(b, width, dtype))
    product = b.create("schedule.scores", operands, {"in_place": in_place}, [scores.result.type])
    scores.result.replace_all_uses_with(product.result)
    scores.erase()
    assert attend.parent is not None
    b = ArrayBuilder(context, attend.parent, attend)
    b.location = attend.location
    values = Side(attend.operands[1], pairs(attend, "batch")[1], pairs(attend, "contract")[1])
    counts = {"batch": found.batch, "rows": len(q.free_dims), "tile": rows}
    attended = b.create(
        "schedule.attend", (attend.operands[0], values.panels(b, width, dtype)), counts, [attend.result.type]
    )
    attend.result.replace_all_uses_with(attended.result)
    attend.erase()
