"""Rewriting by patterns: a greedy driver with a worklist."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from oarlock.errors import IRError
from oarlock.ir.context import Builder, Context
from oarlock.ir.operations import Operation, Value
from oarlock.ir.order import Order

__all__ = ["RewritePattern", "Rewriter", "apply_patterns", "pattern"]

B = TypeVar("B", bound=Builder)


class Rewriter:
    """Changes a program on behalf of a pattern, and notes what has to be looked at again.

    ``anchor`` is the operation that the pattern was given.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.depth: dict[Operation, int] = {}
        """How many rewrites, each of what the one before made, led to an operation; 0 is left out."""
        self.current = 0
        self.order = Order()
        self._queue: deque[Operation] = deque()
        self._waiting: set[Operation] = set()

    def builder(self, anchor: Operation, kind: type[B]) -> B:
        """A builder of class ``kind`` that inserts before ``anchor``, with its location."""
        if anchor.parent is None:
            raise IRError(f"cannot insert before {anchor.name}: it stands in no block")
        builder = kind(self.context, anchor.parent, anchor)
        builder.location = anchor.location
        builder.listener = self._made
        return builder

    def _made(self, op: Operation) -> None:
        self.depth[op] = self.current + 1
        self.touch(op)

    def touch(self, op: Operation) -> None:
        """Look at ``op`` again; for one that was changed in place."""
        if op not in self._waiting:
            self._waiting.add(op)
            self._queue.append(op)

    def replace(self, op: Operation, values: Sequence[Value]) -> None:
        """Make the users of ``op``'s results use ``values``, of the same types, and erase ``op``."""
        given = [value.type for value in values]
        if given != [result.type for result in op.results]:
            wanted = ", ".join(str(result.type) for result in op.results)
            raise IRError(f"cannot replace {op.name} of ({wanted}) by ({', '.join(map(str, given))})")
        for result, value in zip(op.results, values, strict=True):
            self.replace_value(result, value)
        self.erase(op)

    def replace_value(self, old: Value, new: Value) -> None:
        """Make the users of ``old`` use ``new``, which is of the same type."""
        if old.type != new.type:
            raise IRError(f"cannot replace a value of {old.type} by one of {new.type}")
        for user in old.users:
            self.touch(user)
        if new.name_hint is None:
            new.name_hint = old.name_hint
        old.replace_all_uses_with(new)

    def erase(self, op: Operation) -> None:
        """Erase ``op``, whose results are not used."""
        for operand in op.operands_:
            if operand.defining_op is not None:
                self.touch(operand.defining_op)
        inner = list(op.walk())
        op.erase()
        self._waiting.difference_update(inner)
        for gone in inner:
            self.depth.pop(gone, None)

    def next(self) -> Operation | None:
        """The next operation to look at, or None."""
        while self._queue:
            op = self._queue.popleft()
            if op in self._waiting:
                self._waiting.discard(op)
                return op
        return None


@dataclass(frozen=True, slots=True)
class RewritePattern:
    """What to do with operations called ``root`` (one name, or several; None: any).

    ``rewrite(op, rewriter)`` changes the program through ``rewriter`` and returns True, or leaves it and returns False.
    Of several patterns the one with the greatest ``benefit`` is tried first.
    """

    name: str
    root: str | tuple[str, ...] | None
    rewrite: Callable[[Operation, Rewriter], bool]
    benefit: int = 1

    def looks_at(self, name: str) -> bool:
        """Whether operations called ``name`` are given to it."""
        return self.root is None or name == self.root or (isinstance(self.root, tuple) and name in self.root)


def pattern(root: str | None, benefit: int = 1) -> Callable[[Callable[[Operation, Rewriter], bool]], RewritePattern]:
    """A decorator that makes a function a RewritePattern of its name."""

    def wrap(function: Callable[[Operation, Rewriter], bool]) -> RewritePattern:
        return RewritePattern(function.__name__, root, function, benefit)

    return wrap


def apply_patterns(
    op: Operation, patterns: Sequence[RewritePattern], context: Context, max_iterations: int = 64
) -> dict[str, int]:
    """Apply ``patterns`` to what is inside ``op`` until none applies; how often each did, by name.

    Operations are looked at in order, and again when an operand, a user or they themselves change. Raises IRError when
    more than ``max_iterations`` rewrites follow each other, each of what the one before made.
    """
    rewriter = Rewriter(context)
    for inner in op.walk():
        if inner is not op:
            rewriter.touch(inner)
    ordered = sorted(patterns, key=lambda p: -p.benefit)
    by_name: dict[str, list[RewritePattern]] = {}
    counts: Counter[str] = Counter()
    while (candidate := rewriter.next()) is not None:
        if candidate.name not in by_name:
            by_name[candidate.name] = [p for p in ordered if p.looks_at(candidate.name)]
        name = candidate.name
        rewriter.current = rewriter.depth.get(candidate, 0)
        if rewriter.current > max_iterations:
            often = ", ".join(f"{rule} ({count} times)" for rule, count in counts.most_common(3))
            raise IRError(f"patterns do not converge: {op.name} changes without end, most by {often}; last at {name}")
        for rule in by_name[name]:
            if rule.rewrite(candidate, rewriter):
                counts[rule.name] += 1
                if candidate.parent is not None:
                    rewriter.depth[candidate] = rewriter.current + 1
                    rewriter.touch(candidate)
                break
    return dict(counts)
