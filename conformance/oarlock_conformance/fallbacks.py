"""Work that ran on the host although it should have run on the device; certification forbids it."""

from __future__ import annotations

import sys

from oarlock.ops import RECORDS

__all__ = ["HOST_FUNCTIONS", "declared", "fallbacks"]

HOST_FUNCTIONS: frozenset[str] = frozenset(
    {"mask", "nonzero", "repeat", "unique_all", "unique_counts", "unique_inverse", "unique_values"}
)
"""Functions of the public face that run on the host by declaration: the size of what they give depends on data."""


def declared() -> list[str]:
    """Everything that may run on the host, sorted: host records and the functions above."""
    return sorted({record.name for record in RECORDS.values() if record.host} | HOST_FUNCTIONS)


def fallbacks() -> dict[str, int]:
    """How often each operator ran on the host in this process without being declared to, by name.

    The array functions count what they run on the host; a program below them that a device cannot run is refused with
    UnsupportedError instead.
    """
    host = sys.modules.get("oarlock.program.host")
    if host is None:  # the array functions were not used
        return {}
    allowed = set(declared())
    return {name: count for name, count in host.host_operations().items() if name not in allowed}
