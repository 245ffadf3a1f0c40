"""Communication: a vendor's own collectives on streams. What an adapter lacks, the core composes.

A group is ``world_size`` ranks, one device each. The core makes groups of a vendor's engine where every rank's driver
has the same ``engine`` and no device is there twice; it checks every call across the ranks before it reaches a driver
(operation, order, dtype, count, kind, root), keeps time, and aborts a group when a rank fails. So a driver may rely on
this: all ranks give the same calls in the same order, with the same arguments. What an engine does not do is composed
of what it does (all_gather of broadcasts, reduce_scatter of an all_reduce, all_to_all of sends), else over the host.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from oarlock.dtypes import DType
from oarlock.hal.memory import Handle

__all__ = ["Collective", "Communication", "Place", "ReduceKind"]

Collective: TypeAlias = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send", "recv"]
"""The seven operations; each is optional."""

ReduceKind: TypeAlias = Literal["sum", "prod", "max", "min"]
"""How values are combined. Integers wrap; NaN wins in max and min; float16 and bfloat16 are combined in float32 and
rounded once. Averages are composed by the core."""

Place: TypeAlias = tuple[Handle, int]
"""(allocation, offset in bytes). The offset is a multiple of the element's storage size, and of nothing else."""


class Communication(Protocol):
    """Capability ``communication``: the group methods, and any of the seven collectives.

    Collectives are asynchronous, in the order of ``stream``: they read what the stream's work before them wrote, and
    the stream's work after them sees the result. They must not wait for another rank before they return; a failure that
    shows later comes from ``synchronize``. Counts are elements of ``dtype`` as this device stores it, never 0. Memory
    belongs to the core, which keeps it until the stream has passed. Every rank gets the same bits, and the same
    operands give the same bits again. Where the stream of one rank has failed, the others' collectives fail, or wait
    until the group is aborted.
    """

    engine: str
    """Who may meet: devices whose drivers have the same text here. Name the library and its major version."""

    reach: Literal["process", "system"]
    """Whether all ranks must be in one process, or may be in several (of one machine or more)."""

    def unique_id(self) -> bytes:
        """A name for a new group, asked of rank 0; the core brings it to the other ranks."""
        ...

    def init_group(self, unique_id: bytes, rank: int, world_size: int) -> Handle:
        """Join a group as ``rank``. Returns without waiting for other ranks: they meet in the first collective."""
        ...

    def abort_group(self, group: Handle) -> None:
        """Give up what is pending in the group: it ends as a failure of its stream, which goes on once that is told.

        What all ranks have given may still end well. The device stays usable. Called from any thread, while work is
        pending. The group takes no more collectives, and is destroyed afterwards.
        """
        ...

    def destroy_group(self, group: Handle) -> None:
        """Leave the group. What was pending has ended, or the group was aborted."""
        ...

    def supports(self, operation: Collective, dtype: DType, kind: ReduceKind | None) -> bool:
        """Whether the driver does ``operation`` on ``dtype`` itself; ``kind`` is None where nothing is reduced.

        The answer is the same whenever it is asked. Asked only for operations whose method exists. One rank that
        says no has the core compose the call for all of them.
        """
        ...

    def all_reduce(
        self, stream: Handle | None, group: Handle, src: Place, dst: Place, count: int, dtype: DType, kind: ReduceKind
    ) -> None:
        """Combine ``count`` elements of every rank; each gets the result. ``src`` may equal ``dst``, else they are
        apart."""
        ...

    def all_gather(
        self, stream: Handle | None, group: Handle, src: Place, dst: Place, count: int, dtype: DType
    ) -> None:
        """Each rank gets the ``count`` elements of every rank, in the order of ranks: ``world_size * count``."""
        ...

    def reduce_scatter(
        self, stream: Handle | None, group: Handle, src: Place, dst: Place, count: int, dtype: DType, kind: ReduceKind
    ) -> None:
        """Combine ``world_size * count`` elements of every rank; rank r gets the r-th ``count`` of the result."""
        ...

    def broadcast(
        self, stream: Handle | None, group: Handle, buffer: Place, count: int, dtype: DType, root: int
    ) -> None:
        """Copy ``count`` elements of rank ``root`` over those of the others."""
        ...

    def all_to_all(
        self, stream: Handle | None, group: Handle, src: Place, dst: Place, count: int, dtype: DType
    ) -> None:
        """Rank r gets the r-th ``count`` elements of every rank, in the order of ranks. ``world_size * count`` each."""
        ...

    def send(self, stream: Handle | None, group: Handle, src: Place, count: int, dtype: DType, peer: int) -> None:
        """Send to rank ``peer``, which receives as much."""
        ...

    def recv(self, stream: Handle | None, group: Handle, dst: Place, count: int, dtype: DType, peer: int) -> None:
        """Receive from rank ``peer``."""
        ...
