"""Dead code: pure operations without users are removed."""

from __future__ import annotations

from collections.abc import Mapping

from oarlock.ir import Block, Context, Operation
from oarlock.ir.dialects import is_pure
from oarlock.ir.passes import Pass

__all__ = ["DeadCode"]


class DeadCode(Pass):
    """Removes pure operations whose results nobody uses, with all they alone needed."""

    name = "dce"
    level = 1

    def run(self, op: Operation, context: Context) -> Mapping[str, int]:
        """Remove what is dead in ``op``; the number of operations removed."""
        return {"removed": sum(_sweep(block) for region in op.regions for block in region.blocks)}


def _sweep(block: Block) -> int:
    """Go through ``block`` from its end, so that users go before what they use."""
    removed = 0
    op = block.last_op
    while op is not None:
        before = op.prev_op
        if op.results and not any(result.uses for result in op.results) and is_pure(op):
            op.erase()
            removed += 1
        else:
            removed += sum(_sweep(inner) for region in op.regions for inner in region.blocks)
        op = before
    return removed
