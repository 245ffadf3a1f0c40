"""The simulator: two devices with memory of their own, run by the host, that enforce every limit they declare."""

from __future__ import annotations

from oarlock.plugin import hookimpl
from oarlock_sim import faults
from oarlock_sim.device import SimAdapter

__all__ = ["SimAdapter", "faults", "oarlock_adapter"]


@hookimpl
def oarlock_adapter() -> SimAdapter:
    """The adapter's one object."""
    return SimAdapter()
