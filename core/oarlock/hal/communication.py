"""Communication: collectives on streams. What an adapter lacks, the core composes from what there is."""

from __future__ import annotations

from typing import Literal, Protocol

from oarlock.dtypes import DType
from oarlock.hal.memory import Handle

__all__ = ["Communication"]

ReduceKind = Literal["sum", "prod", "max", "min"]


class Communication(Protocol):
    """Capability ``communication``: any of these; counts are elements, buffers are (handle, byte offset)."""

    def init_group(self, unique_id: bytes, rank: int, world_size: int) -> Handle:
        """Join a group; collective over its members."""
        ...

    def destroy_group(self, group: Handle) -> None:
        """Leave the group, aborting what is pending."""
        ...

    def all_reduce(
        self,
        stream: Handle | None,
        group: Handle,
        src: tuple[Handle, int],
        dst: tuple[Handle, int],
        count: int,
        dtype: DType,
        kind: ReduceKind,
    ) -> None:
        """Combine ``count`` elements of every rank; each rank gets the result. ``src`` may equal ``dst``."""
        ...
