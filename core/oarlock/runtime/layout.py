"""Where a plan's temporaries lie: one arena, shared over time by values that do not live together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Layout", "Life", "lay_out"]


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
    """Place temporaries by lifetime: in order of their start, each in the smallest gap that holds it."""
    sizes = [life.nbytes + -life.nbytes % alignment for life in lives]
    offsets = [0] * len(lives)
    live: list[tuple[int, int, int]] = []  # (offset, size, last)
    total = peak = 0
    for i in sorted(range(len(lives)), key=lambda i: (lives[i].first, -sizes[i])):
        live = sorted(entry for entry in live if entry[2] >= lives[i].first)
        best: tuple[int, int] | None = None
        at = 0
        for offset, size, _ in live:
            gap = offset - at
            if gap >= sizes[i] and (best is None or gap < best[0]):
                best = (gap, at)
            at = offset + size
        offsets[i] = best[1] if best is not None else at
        live.append((offsets[i], sizes[i], lives[i].last))
        total = max(total, offsets[i] + sizes[i])
        peak = max(peak, sum(size for _, size, _ in live))
    return Layout(tuple(offsets), total, peak)
