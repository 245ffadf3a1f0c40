"""Where the author of an adapter looks when a runtime case fails: the methods behind each kind of case."""

from __future__ import annotations

from collections.abc import Iterable

from oarlock.hal import Adapter, Driver, ElapsedTime, Fill, HostCallbacks, MemoryInfo, Plans, Streams
from oarlock.registry.methods import described

__all__ = ["advice"]

_METHODS: tuple[tuple[str, tuple[tuple[type, str], ...]], ...] = (
    ("memory.copy_in/", ((Driver, "copy_in"),)),
    ("memory.copy_out/", ((Driver, "copy_out"), (Driver, "synchronize"))),
    ("memory.copy/", ((Driver, "copy_in"), (Driver, "copy"), (Driver, "copy_out"))),
    ("memory.arrays/", ((Driver, "copy_in"), (Driver, "copy_out"))),
    ("memory.allocate/", ((Driver, "allocate"), (Driver, "free"))),
    ("memory.free/", ((Driver, "free"),)),
    ("memory.reuse/", ((Driver, "synchronize"), (Streams, "wait"))),
    ("memory.fill/", ((Fill, "fill"),)),
    ("memory.info/", ((MemoryInfo, "memory_info"),)),
    ("launch.", ((Driver, "launch"),)),
    ("program.compile/", ((Adapter, "compile"), (Driver, "load"))),
    ("program.", ((Driver, "load"), (Driver, "free"))),
    ("stream.call_host/", ((HostCallbacks, "call_host"),)),
    ("stream.synchronize/", ((Driver, "synchronize"),)),
    ("stream.create/", ((Streams, "create_stream"),)),
    ("event.wait/", ((Streams, "record"), (Streams, "wait"))),
    ("event.elapsed/", ((ElapsedTime, "elapsed"),)),
    ("event.", ((Streams, "record"), (Streams, "query"))),
    ("plan.", ((Plans, "prepare"), (Plans, "replay"))),
    ("failure.", ((Driver, "synchronize"),)),
    ("discovery.", ((Adapter, "devices"),)),
    ("cache.", ((Adapter, "cache_key"), (Adapter, "compile"))),
    ("life.", ((Driver, "close"), (Adapter, "open"))),
    ("claims.capability/", ((Adapter, "devices"),)),
    ("claims.", ((Adapter, "devices"),)),
    ("devices.", ((Adapter, "open"),)),
)
"""Prefixes of cases, the longer ones first, and what each is about."""


def advice(case: str) -> str:
    """One sentence: which methods to look at when ``case`` fails, and where they are described."""
    methods = next((methods for prefix, methods in _METHODS if case.startswith(prefix)), ())
    if not methods:
        return "Look at the contract: docs/contract.md"
    return f"Look at {_listed(described(owner, name) for owner, name in methods)} in docs/contract.md"


def _listed(items: Iterable[str]) -> str:
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last
