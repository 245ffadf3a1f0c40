"""Loops over neighbouring elements on targets without threads: vectors first, one at a time what is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from oarlock.codegen.groups import Group
from oarlock.codegen.kernel.builder import NotVectorisable, lanes_of
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.lower.emitter import Emitter
from oarlock.codegen.math import FUNCTIONS
from oarlock.codegen.render import renderer
from oarlock.codegen.schedule import Schedule
from oarlock.codegen.values import numel
from oarlock.ir import Operation, Value
from oarlock.ops import tensor
from oarlock.target import Target

__all__ = [
    "across_lanes",
    "computes_functions",
    "each_element",
    "group_lanes",
    "has_vectors",
    "is_streamed",
    "multiple",
    "widest",
]

LONG = 16
"""Vectors of a run from which on what is left over does not count."""
BRIEF = frozenset({"array.exp", "array.exp2", "array.log", "array.log2", "array.tanh"})
"""Elementary functions of so few steps that four vectors at once are faster than two."""
STREAM_BYTES = 32 << 20
"""From here on a result is written past the caches, which would not keep it for its reader."""


def group_lanes(group: Group, target: Target, schedule: Schedule, run: int) -> int:
    """Elements of one vector in a kernel of ``group``, whose innermost loops walk ``run`` elements.

    Several of the target's vectors where an elementary function is computed, since one alone waits for each of its
    steps: four of a short one, whose constants stay at hand, else two (in OpenCL C, whose vectors are shorter, two at
    most). But not where that leaves more of a short run to be computed one by one.
    """
    width = target.limits.vector_width
    if target.has_threads or width == 1:
        return 1
    if schedule.lanes:
        return schedule.lanes
    functions = _functions(group)
    narrow = all(tensor(m.results[0]).dtype.bits <= 32 for m in functions)
    if not functions or not narrow:
        return width
    for count in (4, 2) if all(m.name in BRIEF for m in functions) else (2,):
        if not has_vectors(target, count * width):
            continue
        if run >= LONG * (count // 2) * width or run % (count * width) < width:
            return count * width
    return width


def has_vectors(target: Target, lanes: int) -> bool:
    """Whether several of the target's vectors are worth taking as one of so many elements, and its language has those.

    Threads hide what a vector waits for; they need none.
    """
    return not target.has_threads and renderer(target.language).has_vectors(lanes)


def computes_functions(group: Group) -> bool:
    """Whether an elementary function is computed: the time goes there, and not into reading and writing."""
    return bool(_functions(group))


def _functions(group: Group) -> list[Operation]:
    return [m for m in group.members if m.name.removeprefix("array.") in FUNCTIONS]


def widest(lower: Callable[[int], KernelCall], lanes: int) -> KernelCall:
    """``lower(lanes)``; one element at a time, ``lower(1)``, where that has no vector form."""
    if lanes > 1:
        with suppress(NotVectorisable):
            return lower(lanes)
    return lower(1)


def is_streamed(value: Value, schedule: Schedule) -> bool:
    """Whether an array is so large that storing it reads every line of it into a cache in vain."""
    if schedule.stream:
        return schedule.stream == "always"
    return numel(value) * tensor(value).dtype.itemsize >= STREAM_BYTES


def across_lanes(e: Emitter, vector: Value, combine: Callable[[Value, Value], Value]) -> Value:
    """The lanes of a vector, combined in halves."""
    parts = [e.b.emit("extract", (vector,), {"index": i}) for i in range(lanes_of(vector))]
    while len(parts) > 1:
        parts = [combine(parts[i], parts[i + len(parts) // 2]) for i in range(len(parts) // 2)]
    return parts[0]


def multiple(e: Emitter, count: Value, of: int) -> Value:
    """The largest multiple of ``of`` that is not above ``count``."""
    return e.b.mul(e.b.quot(count, e.b.i(of)), e.b.i(of))


def each_element(
    e: Emitter, low: Value, high: Value, lanes: int, visit: Callable[[Value, bool], None], places: Sequence[Value] = ()
) -> None:
    """``visit(position, streams)`` for every position from ``low`` to ``high``.

    ``lanes`` above 1 takes so many at once (see Emitter.vector_loop). ``places`` are where streamed results have their
    element ``low``: they are streamed where all of these are multiples of ``lanes``.
    """
    b = e.b

    def one(j: Value, _: list[Value]) -> list[Value]:
        visit(j, False)
        return []

    if lanes == 1:
        e.loop(low, high, one)
        return
    whole = b.add(low, multiple(e, b.sub(high, low), lanes))

    def vectors(streams: bool) -> list[Value]:
        def some(j: Value, _: list[Value]) -> list[Value]:
            visit(j, streams)
            return []

        e.vector_loop(low, whole, lanes, some)
        return []

    if places:
        offset = b.i(0)
        for place in places:
            offset = b.add(offset, b.rem(place, b.i(lanes)))  # not negative: their sum is 0 where each is
        e.branch(b.eq(offset, b.i(0)), lambda: vectors(True), lambda: vectors(False))
    else:
        vectors(False)
    e.loop(whole, high, one, few=True)
