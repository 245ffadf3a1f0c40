"""Where a plan's temporaries lie: one arena, shared over time by values that do not live together."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

__all__ = ["Layout", "Life", "lay_out", "lay_out_apart"]

EFFORT = 20_000
"""Values that are placed, in all, in search of a good order; each order is that of a few hundred values as a rule."""


LITTLE = 256 << 10
"""Bytes of an arena that stays in a core's cache: up to here, steps that could run at the same time share no memory."""


@dataclass(frozen=True, slots=True)
class Life:
    """A temporary of ``nbytes``, needed from step ``first`` to step ``last``."""

    nbytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Byte offsets of the temporaries, the arena's size, and the least that any layout needs."""

    offsets: tuple[int, ...]
    nbytes: int
    lower_bound: int


def lay_out(lives: Sequence[Life], alignment: int = 256) -> Layout:
    """Place temporaries by lifetime, each in the smallest gap that holds it.

    The best of several orders is taken. Each is made better by what stood out at the top: it is placed first next time.
    """
    sizes = [life.nbytes + -life.nbytes % alignment for life in lives]
    bound = _most_at_once(lives, sizes)
    best = Layout((), 0, bound)
    rounds = EFFORT // (len(_ORDERS) * max(1, len(lives)))
    for order in _ORDERS if rounds else _ORDERS[:1]:
        ranked = sorted(range(len(lives)), key=lambda i: order(lives[i], sizes[i]))
        for _ in range(max(1, rounds)):
            offsets, total = _placed(lives, sizes, ranked, by_start=not rounds)
            if not best.offsets or total < best.nbytes:
                best = Layout(tuple(offsets), total, bound)
            if total <= bound:
                return best
            top = max(ranked, key=lambda i: offsets[i] + sizes[i])
            ranked.remove(top)
            ranked.insert(0, top)
    return best


def lay_out_apart(lives: Sequence[Life], spans: Sequence[tuple[int, int]], alignment: int = 256) -> Layout:
    """``lay_out`` so that steps that may run at the same time can: what one of them uses lives as long as all do.

    ``spans`` has the first and the last of these for each step. They share memory all the same, and so run in order,
    where the arena would take more than it would for steps in order, and more than ``LITTLE`` bytes. The lower bound is
    that of steps in order.
    """
    apart = [Life(life.nbytes, spans[life.first][0], spans[life.last][1]) for life in lives]
    in_order = lay_out(lives, alignment)
    if apart == list(lives):
        return in_order
    most = max(in_order.nbytes, LITTLE)
    if _most_at_once(apart, [life.nbytes for life in apart]) > most:
        return in_order
    layout = lay_out(apart, alignment)
    return replace(layout, lower_bound=in_order.lower_bound) if layout.nbytes <= most else in_order


_ORDERS: tuple[Callable[[Life, int], tuple[int, ...]], ...] = (
    lambda life, size: (life.first, -size),
    lambda life, size: (-size, life.first),
    lambda life, size: (-size, -(life.last - life.first)),
    lambda life, size: (-(life.last - life.first), -size),
    lambda life, size: (-(life.last - life.first + 1) * size, life.first),
    lambda life, size: (-life.last, -size),
)
"""By start as they come; large ones first; long-lived ones first; what takes most over time first; from the end."""


def _most_at_once(lives: Sequence[Life], sizes: Sequence[int]) -> int:
    """The most bytes that live together."""
    changes: dict[int, int] = {}
    for life, size in zip(lives, sizes, strict=True):
        changes[life.first] = changes.get(life.first, 0) + size
        changes[life.last + 1] = changes.get(life.last + 1, 0) - size
    now = most = 0
    for step in sorted(changes):
        now += changes[step]
        most = max(most, now)
    return most


def _placed(lives: Sequence[Life], sizes: Sequence[int], order: Sequence[int], by_start: bool) -> tuple[list[int], int]:
    """Offsets of all, placed one after the other, and the end of the last byte.

    ``by_start``: the order is that of their starts, so what has ended can be forgotten.
    """
    offsets = [0] * len(lives)
    placed: list[tuple[int, int, int, int]] = []  # (offset, end, first, last), by offset
    total = 0
    for i in order:
        life, size = lives[i], sizes[i]
        if by_start:
            placed = [entry for entry in placed if entry[3] >= life.first]
        best: tuple[int, int] | None = None
        at = 0
        for offset, end, first, last in placed:
            if last < life.first or life.last < first:
                continue
            gap = offset - at
            if gap >= size and (best is None or gap < best[0]):
                best = (gap, at)
            at = max(at, end)
        offsets[i] = best[1] if best is not None else at
        bisect.insort(placed, (offsets[i], offsets[i] + size, life.first, life.last))
        total = max(total, offsets[i] + size)
    return offsets, total
