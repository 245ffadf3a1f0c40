"""All rows by name."""

from __future__ import annotations

import os
from functools import cache

from ci.bench.works import Work, kernel_works

__all__ = ["find", "table"]

SIZE = int(os.environ.get("OARLOCK_BENCH_SIZE", "4096"))
"""The extent of square rows; all else shrinks with it. For tests."""


@cache
def table() -> dict[str, Work]:
    """Every row."""
    from ci.bench.models import model_works
    from ci.bench.movement import movement_works
    from ci.bench.overheads import growth_works, overhead_works
    from ci.bench.transformer import transformer_works

    made = [*kernel_works(SIZE), *movement_works(SIZE), *transformer_works(1 if SIZE >= 4096 else 8), *model_works()]
    made += overhead_works({work.name: work for work in made})
    made += growth_works({work.name: work for work in made}, (1, 4, 16, 64) if SIZE >= 4096 else (1, 2))
    return {work.name: work for work in made}


def find(name: str) -> Work:
    """The row called ``name``; raises KeyError that lists what there is."""
    if name not in table():
        raise KeyError(f"no row {name!r}; there are {', '.join(table())}")
    return table()[name]
