"""Where to cut a long tape, so that every turn of a loop is the same program, and what a part of a tape needs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from oarlock.program.plans import Entry, first_numbers
from oarlock.program.sites import Site

__all__ = ["History", "Segment", "period_cuts"]

SMALL_PROGRAM = 512
"""Turns of a loop with fewer operators than this are put together up to it."""


def period_cuts(entries: Sequence[Entry], sites: Sequence[Site]) -> list[int]:
    """Entry indices before which to cut: where the outermost loop at the end of the tape starts, and its turns.

    The longest repetition that reaches the end is taken, by call and line of code; inner loops repeat only for the
    last few operators, so they lose against the loop around them. Empty when nothing repeats. What follows the last
    cut is an unfinished turn: kept on a tape, it makes the next tape begin at the same place of the loop.
    """
    operators = [index for index, entry in enumerate(entries) if entry[0].role == "operator"]
    period, covered = _longest_repetition([(id(entries[index][0]), sites[index]) for index in reversed(operators)])
    if period == 0:
        return []
    start = len(operators) - covered
    step = period * max(1, SMALL_PROGRAM // period)
    return [operators[position] for position in range(start, len(operators), step) if position > 0]


def _longest_repetition(tokens: Sequence[Hashable]) -> tuple[int, int]:
    """(period, length) of the longest prefix that is at least two turns of something; (0, 0) without one.

    By the failure function of Knuth, Morris and Pratt: a prefix of length n with border b has period n - b.
    """
    border = [0] * (len(tokens) + 1)
    best = (0, 0)
    length = 0
    for position in range(1, len(tokens)):
        while length and tokens[position] != tokens[length]:
            length = border[length]
        length += tokens[position] == tokens[length]
        border[position + 1] = length
        covered = position + 1
        if covered >= 2 * (covered - length):
            best = (covered - length, covered)
    return best


class History:
    """A finished tape and what is known of its values while it runs part by part."""

    def __init__(self, entries: Sequence[Entry], sites: Sequence[Site], payloads: Sequence[Any]) -> None:
        self.entries = entries
        self.sites = sites
        self.first = first_numbers(entries)
        self.owners = [index for index, entry in enumerate(entries) for _ in range(entry[0].count)]
        self.values: list[Any] = [None] * len(self.owners)
        """Data, or the payload of an input; None where not computed yet."""
        inputs = [index for index, entry in enumerate(entries) if entry[0].role != "operator"]
        for index, payload in zip(inputs, payloads, strict=True):
            self.values[self.first[index]] = payload

    def used_from(self, index: int) -> set[int]:
        """The values that entries from ``index`` on use."""
        return {number for entry in self.entries[index:] for number in entry[1:]}


class Segment:
    """A part of a tape as a tape of its own: what it uses from before is an input. ``numbers``: old number -> new."""

    def __init__(self, history: History, span: range) -> None:
        self.entries: list[Entry] = []
        self.sites: list[Site] = []
        self.payloads: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.span = span
        self._history = history
        for index in span:
            entry = history.entries[index]
            if entry[0].role != "operator":
                continue
            operands = [self.number(old) for old in entry[1:]]
            self.entries.append((entry[0], *operands))
            self.sites.append(history.sites[index])
            for offset in range(entry[0].count):
                self._define(history.first[index] + offset)

    def number(self, old: int) -> int:
        """The number in here of the old value ``old``, which is entered as an input when it comes from before."""
        found = self.numbers.get(old)
        if found is not None:
            return found
        history = self._history
        owner = history.owners[old]
        call = history.entries[owner][0]
        self.entries.append((call if call.role == "scalar" else call.results[old - history.first[owner]].leaf,))
        self.sites.append(None)
        self.payloads.append(history.values[old])
        return self._define(old)

    def _define(self, old: int) -> int:
        number = self.numbers[old] = len(self.numbers)
        return number

    def contains(self, old: int) -> bool:
        """Whether the old value ``old`` was recorded in this part."""
        return self._history.owners[old] in self.span
