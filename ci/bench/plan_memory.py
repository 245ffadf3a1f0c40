"""The memory of the largest plan that Oarlock made in this process, against what lives at once."""

from __future__ import annotations

import gc
import math
from typing import Any

from oarlock.ops import tensor
from oarlock.runtime.plan import Plan

__all__ = ["plan_memory"]


def plan_memory() -> dict[str, Any]:
    """``ms`` holds one number: bytes of the arena / the largest sum of bytes of temporaries that live at one step."""
    plans = [found for found in gc.get_objects() if isinstance(found, Plan)]
    plan = max(plans, key=lambda each: len(each.steps))
    first: dict[Any, int] = {}
    last: dict[Any, int] = {}
    for number, step in enumerate(plan.steps):
        for value in step.buffers:
            first.setdefault(value, number)
            last[value] = number
    live = max(
        sum(_nbytes(value) for value in plan.offsets if first[value] <= number <= last[value])
        for number in range(len(plan.steps))
    )
    note = f"arena {plan.arena_bytes} bytes, {live} live at once, {len(plan.steps)} steps"
    return {"ms": [plan.arena_bytes / live if live else 1.0], "note": note}


def _nbytes(value: Any) -> int:
    kind = tensor(value)
    return int(math.prod(kind.shape)) * int(kind.dtype.itemsize)
