"""Simplify: arithmetic and data movement that a shorter form says with the same bits."""

from __future__ import annotations

from collections.abc import Mapping

from oarlock.ir import Context, Operation
from oarlock.ir.passes import Pass
from oarlock.ir.rewrite import apply_patterns
from oarlock.transforms.rules.arithmetic import ARITHMETIC
from oarlock.transforms.rules.movement import MOVEMENT

__all__ = ["Simplify"]


class Simplify(Pass):
    """Applies the rules of arithmetic and movement until none fits."""

    name = "simplify"
    level = 1

    def run(self, op: Operation, context: Context) -> Mapping[str, int]:
        """Simplify what is in ``op``; how often each rule was applied."""
        return apply_patterns(op, (*ARITHMETIC, *MOVEMENT), context)
