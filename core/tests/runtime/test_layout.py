"""Layouts of temporaries: what lives together never overlaps, and little more is taken than has to be."""

from __future__ import annotations

import random

import pytest

from oarlock.runtime.layout import Life, lay_out


def chain(seed: int, steps: int) -> list[Life]:
    """Temporaries as programs have them: each step makes one or two, most are used soon, some much later."""
    chance = random.Random(seed)
    lives = []
    for step in range(steps):
        for _ in range(chance.choice((1, 1, 2))):
            last = step + (chance.randrange(1, 4) if chance.random() < 0.8 else chance.randrange(1, steps))
            lives.append(Life(chance.randrange(1, 4000) * chance.choice((1, 16)), step, last))
    return lives


def most_at_once(lives: list[Life], alignment: int) -> int:
    sizes = [life.nbytes + -life.nbytes % alignment for life in lives]
    steps = {life.first for life in lives}
    return max(
        sum(size for life, size in zip(lives, sizes, strict=True) if life.first <= s <= life.last) for s in steps
    )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("alignment", [256, 4096])
def test_what_lives_together_does_not_overlap(seed: int, alignment: int) -> None:
    lives = chain(seed, 60)
    layout = lay_out(lives, alignment)
    assert layout.lower_bound == most_at_once(lives, alignment)
    assert layout.lower_bound <= layout.nbytes <= 1.1 * layout.lower_bound
    assert layout == lay_out(lives, alignment)
    for i, (life, at) in enumerate(zip(lives, layout.offsets, strict=True)):
        assert at % alignment == 0 and at + life.nbytes <= layout.nbytes
        for other, offset in zip(lives[:i], layout.offsets[:i], strict=True):
            apart = at >= offset + other.nbytes or offset >= at + life.nbytes
            assert apart or other.last < life.first or life.last < other.first


def test_values_of_one_step_after_the_other_share_their_place() -> None:
    layout = lay_out([Life(1000, 0, 1), Life(1000, 1, 2), Life(1000, 2, 3)])
    assert layout.offsets == (0, 1024, 0) and layout.nbytes == layout.lower_bound == 2048


def test_nothing_takes_nothing() -> None:
    layout = lay_out([])
    assert (layout.offsets, layout.nbytes, layout.lower_bound) == ((), 0, 0)


def test_very_many_are_placed_in_one_order() -> None:
    lives = [Life(256, i, i + 1) for i in range(5000)]
    assert lay_out(lives).nbytes == 512
