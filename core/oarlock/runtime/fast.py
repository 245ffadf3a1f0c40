"""The native way through the usual run of a plan and the usual wait for a device; where it declines, Python does it.

The native functions work on the objects of this package as they are: they do what ``Plan.run`` and
``Device.synchronize`` do, or decline before they have changed anything (another stream or a profile is on, the driver
is held by another thread, it is refused, an operand does not fit). ``Buffer.__del__`` is done natively in its slot.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

try:
    from oarlock import _native
except ImportError:
    _native = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from oarlock.runtime.device import Device
    from oarlock.runtime.watchdog import Gate

__all__ = ["Parts", "Recipe", "parts_of", "run_plan", "settle"]

run_plan: Any = getattr(_native, "run_plan", None)
"""``run_plan(recipe, operands)`` gives the results, or NotImplemented. Nobody asks where there are no Parts."""
settle: Any = getattr(_native, "settle", None)
"""``settle(parts)`` waits for the default stream: False when the caller must wait itself."""


class Parts(NamedTuple):
    """What of a device the native functions work on, in their order."""

    device: Any
    gate: Any
    lock: Any
    pool: Any
    dropped: Any
    lane: Any
    lanes: Any
    driver: Any
    most_idle: int
    """Bytes that the pool may keep idle while it has no budget."""


class Recipe(NamedTuple):
    """A plan that is one stretch of launches, as the native function takes it, in its order.

    A method of an object with a ``_recipe`` that is one begins with ``run_plan``: where ``flush`` knows that it would
    be called, it runs the recipe itself.
    """

    parts: Parts
    plan: Any
    """The PreparedPlan."""
    segment: Any
    parameters: tuple[tuple[Any, tuple[Any, ...]] | None, ...]
    """Dtype and shape of each argument; None for a run-time scalar."""
    constants: tuple[tuple[Any, int], ...]
    allocated: tuple[tuple[int, str], ...]
    slots: tuple[int, ...]
    results: tuple[tuple[int, Any, tuple[int, ...]], ...]
    moving: dict[int, Any]
    """Slots whose offset goes into scalar blocks."""
    has_scalars: bool


def parts_of(device: Device) -> Parts | None:
    """The parts of ``device``; None where the native module is not installed, or the device keeps no plans."""
    if not _learnt() or device.can.plans is None:
        return None
    gate, pool = device.gate, device.pool
    return Parts(
        device, gate, gate._lock, pool, device.dropped, device.default_lane, device.lanes, device.driver, pool.most_idle
    )


@functools.cache
def _learnt() -> bool:
    """Tell the native module, once, which classes there are; False where it is not installed."""
    if _native is None:
        return False
    from oarlock.config import Config, config
    from oarlock.errors import DeviceTimeoutError
    from oarlock.runtime import array, lane, lifetimes, memory, pool, profile, program, stream, watchdog

    _native.know_running(
        {
            "Allocation": memory.Allocation,
            "Buffer": memory.Buffer,
            "Config": Config,
            "DeviceArray": array.DeviceArray,
            "Dropped": lifetimes.Dropped,
            "Gate": watchdog.Gate,
            "Lane": lane.Lane,
            "MemoryPool": pool.MemoryPool,
            "Parts": Parts,
            "PreparedPlan": program.PreparedPlan,
            "RLock": type(threading.RLock()),
            "Recipe": Recipe,
            "Switch": type(profile.switch),
            "config": config,
            "explained": _explained,
            "now": time.monotonic,
            "scope": stream.scopes,
            "slice": lane.SLICE_S,
            "switch": profile.switch,
            "timeout": DeviceTimeoutError,
        }
    )
    return True


def _explained(gate: Gate, what: str, error: Exception) -> NoReturn:
    """Raise ``error`` as the gate explains it."""
    found = gate.explain(what, error)
    raise found from (error if found is not error else error.__cause__)
