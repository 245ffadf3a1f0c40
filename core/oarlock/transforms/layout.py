"""Layout: transposes that cancel across what lies between them, which is then computed in the other layout.

A model written for images with the channels last has transposes around every convolution. Where operators between two
of them work alike in any layout, they are computed in the layout in which fewer transposes are left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oarlock.ir import Context, Operation, Value
from oarlock.ir.drr import Rule, attribute, native, op, value
from oarlock.ir.passes import Pass
from oarlock.ir.rewrite import RewritePattern, Rewriter, apply_patterns
from oarlock.ops.record import ArrayBuilder, tensor
from oarlock.transforms.matching import ints, produced_by, splat_of, travels
from oarlock.transforms.movers import Permutation, in_layout, is_movable, moved, operands_moved, significant
from oarlock.transforms.rules.movement import MOVEMENT, compose, is_identity

__all__ = ["Layout"]

_MOST = 32
"""Operators that one rewrite may move to another layout."""


@dataclass(slots=True)
class _Move:
    """What moving to another layout takes: the operators, and the transposes that are there afterwards for before."""

    ops: dict[Operation, None]
    leaves: dict[Value, None]
    cost: int


def _plan(root: Value, p: Permutation) -> _Move | None:
    """How ``root`` can be computed in layout ``p``; None where it is no such value, or too much would move."""
    move = _Move({}, {}, 0)
    waiting = [root]
    while waiting:
        current = waiting.pop()
        made = current.defining_op
        inside = made is not None and (made in move.ops or (is_movable(made) and _is_private(current, root, p, move)))
        if made is None or not inside or tensor(current).rank != len(p):
            if current is root:
                return None
            move.leaves[current] = None
        elif made not in move.ops:
            move.ops[made] = None
            waiting += reversed(made.operands_)
            if len(move.ops) > _MOST:
                return None
    move.cost = sum(_cost(leaf, p, move) for leaf in move.leaves) - 1
    return move


def _is_private(value: Value, root: Value, p: Permutation, move: _Move) -> bool:
    """Whether only what moves uses ``value``."""
    return all(user in move.ops or (value is root and _is_twin(user, p)) for user, _ in value.uses)


def _is_twin(op: Operation, p: Permutation) -> bool:
    return op.name == "array.transpose" and ints(op, "permutation") == p


def _cost(leaf: Value, p: Permutation, move: _Move) -> int:
    """Transposes more (or less) when a leaf is read in layout ``p``."""
    if splat_of(leaf) is not None or significant(leaf) < 2:
        return 0
    made = produced_by(leaf, "transpose")
    if made is not None and tensor(leaf).rank == len(p):
        others = any(user not in move.ops for user, _ in leaf.uses)
        cancels = is_identity(compose(ints(made, "permutation"), p))
        return int(others) - int(cancels)
    return 0 if any(_is_twin(user, p) for user, _ in leaf.uses) else 1


class _Mover:
    """Computes values in layout ``p``."""

    def __init__(self, build: ArrayBuilder, p: Permutation, move: _Move) -> None:
        self._build = build
        self._p = p
        self._move = move
        self._made: dict[Value, Value] = {}

    def value(self, value: Value) -> Value:
        """``value`` in the other layout."""
        if value not in self._made:
            op = value.defining_op
            if op is None or op not in self._move.ops:
                self._made[value] = in_layout(self._build, value, self._p)
            else:
                count = operands_moved(op)
                operands = [*map(self.value, op.operands_[:count]), *op.operands_[count:]]
                self._made[value] = self._build.create(op.name, operands, moved(op, self._p)).result
        return self._made[value]


def _cancel(op: Operation, rewriter: Rewriter) -> bool:
    """Compute what ``op`` transposes in its layout, where that leaves fewer transposes."""
    p, root = ints(op, "permutation"), op.operands_[0]
    producer = root.defining_op
    if producer is None or not is_movable(producer) or producer.next_op is None:
        return False
    move = _plan(root, p)
    if move is None or move.cost >= 0:
        return False
    builder = rewriter.builder(producer.next_op, ArrayBuilder)
    builder.location = producer.location
    result = _Mover(builder, p, move).value(root)
    for twin in [user for user in root.users if _is_twin(user, p)]:
        rewriter.replace(twin, [result])
    left = list(move.ops)
    while dead := [old for old in left if not any(value.uses for value in old.results)]:
        left = [old for old in left if old not in dead]
        for old in dead:
            rewriter.erase(old)
    for leaf in move.leaves:
        for user in leaf.users:
            rewriter.touch(user)
    return True


def leaves_order(permutation: Permutation, axes: tuple[int, ...]) -> bool:
    """Whether what is kept when ``axes`` are reduced stands in its order before the transposition."""
    kept = [axis for position, axis in enumerate(permutation) if position not in axes]
    return kept == sorted(kept)


def sources(permutation: Permutation, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The axes before the transposition."""
    return tuple(sorted(permutation[axis] for axis in axes))


_X, _P, _A = value("x"), attribute("p"), attribute("axes")

_RULES = tuple(
    Rule(
        f"transpose_into_{name}",
        source=op("array." + name, op("array.transpose", _X, permutation=_P).shared(), axes=_A, keepdims=False),
        where=[native(leaves_order, _P, _A)],
        result=op("array." + name, _X, axes=native(sources, _P, _A), keepdims=False),
    )
    for name in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min")
)


class Layout(Pass):
    """Cancels transposes, and reduces what is behind them."""

    name = "layout"
    level = 2
    after = ("simplify",)

    def run(self, op: Operation, context: Context) -> Mapping[str, int]:
        """Work on what is in ``op``; how often each rule was applied."""
        cancel = RewritePattern("transposes_cancel", "array.transpose", _cancel)
        patterns = [*(rule.pattern for rule in _RULES), cancel, *MOVEMENT]
        return apply_patterns(op, patterns, context, travels(op))
