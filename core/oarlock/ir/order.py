"""Which of two operations of a block stands first, told by numbers that are given when they are asked for."""

from __future__ import annotations

from oarlock.ir.operations import Block, Operation

__all__ = ["Order"]

_GAP = 1 << 64
_STEP = 1 << 32


class Order:
    """Positions of operations in their blocks. Inserting is fine; what is moved within its block must be forgotten.

    A block is numbered when it is asked for first; what was inserted since goes between its neighbours, and the block
    is numbered anew where no number is left: constant time on average.
    """

    def __init__(self) -> None:
        self._positions: dict[Operation, tuple[Block | None, int]] = {}

    def position(self, op: Operation) -> int:
        """A number that grows along the block of ``op``."""
        block, number = self._positions.get(op, (None, 0))
        if block is None or block is not op.parent:
            number = self._number(op)
        return number

    def before(self, left: Operation, right: Operation) -> bool:
        """Whether ``left`` stands before ``right``, in the same block."""
        return self.position(left) < self.position(right)

    def forget(self, op: Operation) -> None:
        """Give ``op``, which was moved, another number when it is asked for."""
        self._positions.pop(op, None)

    def _known(self, op: Operation | None) -> int | None:
        block, number = self._positions.get(op, (None, 0)) if op is not None else (None, 0)
        return number if block is not None and op is not None and block is op.parent else None

    def _number(self, op: Operation) -> int:
        """Number ``op`` and all around it that have no number yet."""
        first = op
        while first.prev_op is not None and self._known(first.prev_op) is None:
            first = first.prev_op
        run: list[Operation] = []
        after: Operation | None = first
        while after is not None and self._known(after) is None:
            run.append(after)
            after = after.next_op
        low, high = self._known(first.prev_op) or 0, self._known(after)
        step = _GAP if high is None else min(_STEP, (high - low) // (len(run) + 1))
        if step < 1:
            for each in op.parent.ops if op.parent is not None else ():
                self._positions.pop(each, None)
            return self._number(op)
        for each in run:
            low += step
            self._positions[each] = (op.parent, low)
        return self._positions[op][1]
