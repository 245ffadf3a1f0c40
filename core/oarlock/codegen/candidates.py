"""Candidates: which schedules a tuner tries for a subject, one parameter (or a tile's two) after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from oarlock.codegen.lower.anchors import pairs
from oarlock.codegen.lower.matrix import matrix_kind
from oarlock.codegen.lower.subject import Subject
from oarlock.codegen.values import numel, shape_of
from oarlock.ir import Operation
from oarlock.ops import tensor
from oarlock.target import Target

__all__ = ["Axis", "space_of"]

Axis: TypeAlias = "tuple[dict[str, int | str], ...]"
"""Changes that are tried on the best schedule so far, each in place of the others."""

_TILES = {
    16: ((4, 3), (4, 2), (5, 2), (3, 4), (3, 3), (8, 1), (12, 1), (2, 4), (2, 2), (4, 1)),
    32: ((8, 3), (14, 2), (9, 3), (6, 4), (8, 2), (12, 1), (4, 4), (4, 2), (16, 1), (6, 2)),
}
"""(rows, vectors) of a tile by the vector registers there are, the likeliest first."""
_PIECES = ((4, 2), (2, 4), (1, 2), (2, 1), (4, 4), (1, 1))
_STREAMED_BYTES = 1 << 20
"""Results from which on passing the caches by may pay."""


def space_of(subject: Subject, target: Target) -> tuple[Axis, ...]:
    """What may be tried for ``subject`` on ``target``, in order; empty where its lowering has no parameters."""
    if not subject.is_operator:
        return _group(subject, target)
    (op,) = subject.members
    if target.has_threads:
        units = op.name == "array.dot_general" and matrix_kind(op, target)
        return (_tiles(_PIECES),) if units else ()
    if target.limits.vector_width < 2:
        return ()
    tiles = _tiles(_TILES[32 if target.limits.vector_width >= 16 else 16])
    blocks = _each("blocks", (64, 128, 512, 1024))
    if op.name == "array.dot_general" and _rows(op) == 1:
        wide = tuple({"form": "row", "vectors": n} for n in (32, 64, 256, 512))
        narrow = tuple({"form": "tiles", "vectors": n} for n in (2, 8, 1, 3))
        return (wide, narrow, _each("rows", (2, 8)), blocks)
    return (_each("form", ("packed", "tiles")), tiles, _each("cache_kib", (64, 128, 512, 1024)), blocks)


def _group(subject: Subject, target: Target) -> tuple[Axis, ...]:
    if target.has_threads:
        return (_each("threads", (64, 256, 512, 1024)),)
    width = target.limits.vector_width
    axes: list[Axis] = []
    if width > 1:
        axes.append(_each("lanes", (2 * width, 4 * width, width, width // 2)))
        if any(numel(v) * tensor(v).dtype.itemsize >= _STREAMED_BYTES for v in subject.group.outputs):
            axes.append(_each("stream", ("never", "always")))
        if subject.group.axes is not None and not subject.group.is_column:
            axes.append(_each("partials", (1, 2, 4, 8)))
    axes.append(_each("blocks", (16, 32, 64, 128, 256, 512)))
    return tuple(axes)


def _each(name: str, values: Sequence[int | str]) -> Axis:
    return tuple({name: value} for value in values)


def _tiles(sizes: Sequence[tuple[int, int]]) -> Axis:
    return tuple({"rows": rows, "vectors": vectors} for rows, vectors in sizes)


def _rows(op: Operation) -> int:
    (x, _), batch, contract = op.operands, pairs(op, "batch")[0], pairs(op, "contract")[0]
    return math.prod(n for d, n in enumerate(shape_of(x)) if d not in batch + contract)
