"""Reductions that keep the last dimensions: neighbouring rows at once, so that memory is read along."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from oarlock.codegen.lower.anchors import accumulator, kind_of
from oarlock.codegen.lower.domain import member_index, run_of, walk_runs
from oarlock.codegen.lower.elementwise import combine, identity
from oarlock.codegen.lower.vectors import each_element
from oarlock.ir import Value
from oarlock.ops import tensor

if TYPE_CHECKING:
    from oarlock.codegen.lower.rows import Rows

__all__ = ["columns"]

LANES = (64, 256, 1024)
"""How many neighbouring rows are reduced at once: more read longer stretches of memory, fewer give all cores work."""


def columns(rows: Rows) -> tuple[int, int, int]:
    """Reductions that keep the last run: many neighbouring rows at once, so that memory is read along."""
    e, b = rows.e, rows.e.b
    *lead, last = rows.outer
    width = math.prod(rows.group.domain[last[0] : last[1]])
    outer_count = rows.count // max(1, width)
    many = max((n for n in LANES if outer_count * (width // n) >= n // 128), default=LANES[0])
    total = run_of(e, rows.group.domain, *last, b.i(0)).total
    low = b.mul(b.position("block_id", 0), b.i(many))
    span = b.min(b.i(many), b.sub(total, low))
    kinds = [kind_of(op) for op in rows.reductions]
    wide = [accumulator(k, tensor(op.result).dtype) for k, op in zip(kinds, rows.reductions, strict=True)]
    per_block = max(1, -(-outer_count // min(256, rows.target.limits.max_grid[1])))

    def one(row: Value, _: list[Value]) -> list[Value]:
        lead_runs = walk_runs(e, rows.group.domain, lead, row)
        memory = [b.private(d, many) for d in wide]

        def start(j: Value, streams: bool) -> None:
            for slot, kind, dtype in zip(memory, kinds, wide, strict=True):
                e.keep(slot, j, b.const(identity(kind, dtype), dtype))

        def accumulate(at: list[Value], _: list[Value]) -> list[Value]:
            inner = [rows.run(s, i) for s, i in zip(rows.inner, at, strict=True)]

            def column(j: Value, streams: bool) -> None:
                outer = [*lead_runs, rows.run(last, b.add(low, j))]
                rows.place(outer, inner)
                runs = rows.interleave(outer, inner)
                for op, slot, kind, dtype in zip(rows.reductions, memory, kinds, wide, strict=True):
                    (x,) = op.operands
                    element = b.convert(e.value(x, member_index(e, x, runs)), dtype)
                    e.keep(slot, j, combine(b, kind, e.kept(slot, j), element))
                rows.store([v for v in rows.group.outputs if rows.group.is_element(v)], runs)

            each_element(e, b.i(0), span, rows.lanes, column)
            return []

        def finish(j: Value, streams: bool) -> None:
            outer = [*lead_runs, rows.run(last, b.add(low, j))]
            rows.place(outer, None)
            for op, slot in zip(rows.reductions, memory, strict=True):
                e.remember(("member", op.result), b.convert(e.kept(slot, j), tensor(op.result).dtype))
            rows.store([v for v in rows.group.outputs if not rows.group.is_element(v)], outer)

        each_element(e, b.i(0), span, rows.lanes, start)
        e.loops([run_of(e, rows.group.domain, *s, b.i(0)).total for s in rows.inner], accumulate, [])
        each_element(e, b.i(0), span, rows.lanes, finish)
        return []

    step = e.parameter(per_block, b.index)
    first = b.mul(b.position("block_id", 1), step)
    e.loop(first, b.min(b.add(first, step), e.size(outer_count, "outer")), one)
    return (-(-width // many), -(-outer_count // per_block), 1)
