"""Decompose: composites become primitives."""

from __future__ import annotations

from collections.abc import Mapping

from oarlock.ir import Context, Operation
from oarlock.ir.passes import Pass
from oarlock.ir.rewrite import Rewriter, apply_patterns, pattern
from oarlock.ops.record import ArrayBuilder, Record

__all__ = ["Decompose"]


@pattern(None)
def decompose(op: Operation, rewriter: Rewriter) -> bool:
    """Replace a composite by its decomposition, whose composites follow."""
    record = op.definition.interface(Record)
    if record is None or record.decompose is None:
        return False
    rewriter.replace(op, record.decompose(rewriter.builder(op, ArrayBuilder), op.operands, op.attributes))
    return True


class Decompose(Pass):
    """Replaces composites by their decompositions until only primitives remain."""

    name = "decompose"

    def run(self, op: Operation, context: Context) -> Mapping[str, int]:
        """Decompose what is in ``op``; the number of composites."""
        return apply_patterns(op, [decompose], context)
