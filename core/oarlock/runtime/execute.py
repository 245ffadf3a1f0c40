"""Running a function on a device: its plan is made once and kept as long as the function lives."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from oarlock.ir import Operation
from oarlock.runtime.array import DeviceArray
from oarlock.runtime.device import Device
from oarlock.runtime.kernels import Progress
from oarlock.runtime.plan import Plan

__all__ = ["execute", "plan_for"]

_lock = threading.Lock()
MAX_PLANS = 1024
"""Plans kept for one device; the oldest goes first."""


def plan_for(
    function: Operation,
    device: Device,
    progress: Progress | None = None,
    fixed: Mapping[int, DeviceArray] | None = None,
) -> Plan:
    """The plan of ``function`` (which must not change any more) on ``device``; made on first use, with ``fixed``."""
    with _lock:
        plans = device.held.setdefault("plans", {})
        assert isinstance(plans, dict)
        found: tuple[Operation, Plan] | None = plans.get(id(function))
    if found is not None and found[0] is function:
        return found[1]
    plan = Plan(function, device, progress, fixed)
    with _lock:
        plans[id(function)] = (function, plan)
        while len(plans) > MAX_PLANS:
            plans.pop(next(iter(plans)))
    return plan


def execute(
    function: Operation, device: Device, operands: Sequence[DeviceArray | int | float | bool]
) -> list[DeviceArray]:
    """Run a ``builtin.function`` of array operators on ``device``; see ``Plan.run``."""
    return plan_for(function, device).run(operands)
