"""Horizontal fusion: products of one operand with several constants become one product with these side by side.

It pays where launches cost more than the work, as in decoders that make one token at a time; sums may be formed in
another order. It runs when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

from oarlock.ir import Context, Operation, Value
from oarlock.ir.drr import Rule, attribute, native, op, value
from oarlock.ir.passes import Pass
from oarlock.ir.rewrite import apply_patterns
from oarlock.ops.record import tensor
from oarlock.transforms.fold import Fold
from oarlock.transforms.matching import constant_of, produced_by
from oarlock.transforms.rules.movement import MOVEMENT

__all__ = ["SIBLING_PRODUCTS", "Horizontal"]

Sizes = tuple[int, ...]


def are_constant_matrices(left: Value, right: Value) -> bool:
    """Whether both are constants of rank 2, or several such side by side."""
    return all(_is_constant(each) and tensor(each).rank == 2 for each in (left, right))


def _is_constant(value: Value) -> bool:
    joined = produced_by(value, "concat")
    parts = (value,) if joined is None else joined.operands_
    return all(constant_of(part) is not None for part in parts)


def is_plain(batch: tuple[Sizes, Sizes], contract: tuple[Sizes, Sizes]) -> bool:
    """Whether nothing is a batch, and one dimension is contracted."""
    return batch == ((), ()) and len(contract[1]) == 1


def free_axis(contract: tuple[Sizes, Sizes]) -> int:
    """The dimension of a matrix that is not contracted."""
    return 1 - contract[1][0]


def starts_of(first: Operation, skipped: Operation | None) -> Sizes:
    """Where the columns of ``first`` start in the joint result, after those of ``skipped``."""
    rank = tensor(first.results[0]).rank
    return (0,) * (rank - 1) + (_columns(skipped) if skipped is not None else 0,)


def limits_of(first: Operation, skipped: Operation | None) -> Sizes:
    """Where they end."""
    shape = tensor(first.results[0]).static_shape
    return (*shape[:-1], starts_of(first, skipped)[-1] + shape[-1])


def ones_of(product: Operation) -> Sizes:
    """A step of 1 in each dimension of its result."""
    return (1,) * tensor(product.results[0]).rank


def are_static(left: Operation, right: Operation) -> bool:
    """Whether the sizes of both results are known."""
    return tensor(left.results[0]).is_static and tensor(right.results[0]).is_static


def _columns(product: Operation) -> int:
    return tensor(product.results[0]).static_shape[-1]


_X, _V, _W = value("x"), value("v"), value("w")
_BATCH, _CONTRACT, _DTYPE = attribute("batch"), attribute("contract"), attribute("dtype")
_LEFT = op("array.dot_general", _X, _V, batch=_BATCH, contract=_CONTRACT, dtype=_DTYPE)
_RIGHT = op("array.dot_general", _X, _W, batch=_BATCH, contract=_CONTRACT, dtype=_DTYPE)
_BOTH = op(
    "array.dot_general",
    _X,
    op("array.concat", _V, _W, axis=native(free_axis, _CONTRACT)),
    batch=_BATCH,
    contract=_CONTRACT,
    dtype=_DTYPE,
)

SIBLING_PRODUCTS = Rule(
    "sibling_products",
    source=(_LEFT, _RIGHT),
    where=[
        native(is_plain, _BATCH, _CONTRACT),
        native(are_constant_matrices, _V, _W),
        native(are_static, _LEFT, _RIGHT),
    ],
    result=(
        op(
            "array.slice",
            _BOTH,
            starts=native(starts_of, _LEFT, None),
            limits=native(limits_of, _LEFT, None),
            steps=native(ones_of, _LEFT),
        ),
        op(
            "array.slice",
            _BOTH,
            starts=native(starts_of, _RIGHT, _LEFT),
            limits=native(limits_of, _RIGHT, _LEFT),
            steps=native(ones_of, _RIGHT),
        ),
    ),
)
"""Two products of one value with constants are one, of which each takes its columns."""


class Horizontal(Pass):
    """Joins products that share their left operand; the constants are joined now."""

    name = "horizontal"
    level = 3
    after = ("simplify", "layout", "sink")
    before = ("cse",)

    def run(self, op: Operation, context: Context) -> Mapping[str, int]:
        """Join what is in ``op``; how often, and what that let fold."""
        counts = dict(apply_patterns(op, [SIBLING_PRODUCTS.pattern, *MOVEMENT], context))
        return {**counts, **Fold().run(op, context)}
