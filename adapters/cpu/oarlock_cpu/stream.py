"""The one stream: in order, and synchronous, for every command finishes before its call returns."""

from __future__ import annotations

from oarlock.hal import Handle, StreamDriver

__all__ = ["CpuStream"]


class CpuStream(StreamDriver):
    """There is never work in flight, so there is nothing to wait for and no late failure."""

    def synchronize(self, stream: Handle | None, timeout_s: float) -> None:
        """Everything is done already."""
