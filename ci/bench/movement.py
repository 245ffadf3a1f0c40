"""The works that move elements more than they compute: scans, sorts, gathers, scatters, against a copy in memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ci.bench.peers import Array
from ci.bench.works import Work

__all__ = ["movement_works"]

COLUMNS = 256
"""Elements of a row that is sorted, or moved as a whole."""
LARGEST = 16


def _values(rows: int, columns: int, indexed: bool = False) -> Callable[[np.random.Generator], dict[str, Array]]:
    """``x`` of so many rows, and ``indices`` of as many of them, some several times."""

    def inputs(generator: np.random.Generator) -> dict[str, Array]:
        made: dict[str, Array] = {"x": generator.standard_normal((rows, columns), np.float32)}
        if indexed:
            made["indices"] = generator.integers(0, rows, rows).astype(np.int32)
        return made

    return inputs


def movement_works(size: int = 4096) -> list[Work]:
    """The rows; each has ``16 * size * 256`` elements, or ``size * size``. Their limit reads and writes as much.

    That of ``topk`` reads alone: what it writes is a sixteenth.
    """
    rows = 16 * size
    shape, square = f"{rows}x{COLUMNS}", f"{size}x{size}"
    plain, indexed = _values(rows, COLUMNS), _values(rows, COLUMNS, indexed=True)
    group = "movement"
    return [
        Work(
            "cumsum", f"running sums of the rows, {square}", _values(size, size), lambda v, x: v.cumsum(x),
            limit="copy", tolerance=1e-4, group=group,
        ),
        Work(
            "cumsum-long", f"running sum of one row of {size * size}", _values(1, size * size),
            lambda v, x: v.cumsum(x), limit="copy", tolerance=1e-3, group=group,
        ),
        Work("sort", f"each row sorted, {shape}", plain, lambda v, x: v.sort(x), limit="copy", group=group),
        Work(
            "topk", f"the {LARGEST} largest of each row in order, {shape}", plain, lambda v, x: v.largest(x, LARGEST),
            limit="read", group=group,
        ),
        Work(
            "gather", f"as many rows at random, {shape}", indexed, lambda v, x, indices: v.take(x, indices),
            limit="copy", group=group,
        ),
        Work(
            "scatter-add", f"rows added to rows at random, {shape}", indexed,
            lambda v, x, indices: v.scatter_add(x, indices), limit="copy", group=group,
        ),
    ]  # fmt: skip
