"""The collectives as functions of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from oarlock.dtypes import DType
from oarlock.errors import DeviceError
from oarlock.program.backend import backend, place
from oarlock.program.calls import Number
from oarlock.program.calls import kind as kind_of
from oarlock.program.host import host_array
from oarlock.program.tape import concrete
from oarlock.program.tensor import Tensor
from oarlock.runtime import Device, DeviceArray, communication, empty
from oarlock.runtime.communication import Kind, ProcessGroup

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "join_group", "local_groups", "recv",
    "reduce_scatter", "send",
]  # fmt: skip


def local_groups(devices: Sequence[Any], *, timeout_s: float | None = None) -> list[ProcessGroup]:
    """A group of one rank per device (names or devices), in order: give each end to the thread that is its rank.

    ``timeout_s``: how long a rank waits for the others in a call (None: ``OARLOCK_COMMUNICATION_S``, 120).
    """
    return communication.local_groups([_device(each) for each in devices], timeout_s=timeout_s)


def join_group(
    address: str, device: Any, rank: int, world_size: int, *, key: bytes, timeout_s: float | None = None
) -> ProcessGroup:
    """Join the group that meets at ``address`` as ``rank`` of ``world_size``; returns once all ranks have come.

    ``address`` is "host:port" or the path of a local socket, where rank 0 listens; ``key`` the same secret on all.
    Raises RankTimeoutError, MismatchError, or CommunicationError for a wrong key.
    """
    return communication.join_group(address, _device(device), rank, world_size, key=key, timeout_s=timeout_s)


def all_reduce(x: Tensor, group: ProcessGroup, kind: Kind = "sum") -> Tensor:
    """The ranks' tensors combined, element by element: "sum", "prod", "max", "min" or "avg". The same on every rank."""
    return _tensor(group.all_reduce(_data(x), kind=kind))


def all_gather(x: Tensor, group: ProcessGroup) -> Tensor:
    """The tensors of all ranks in their order: shape ``(world_size, *x.shape)``."""
    return _tensor(group.all_gather(_data(x)))


def reduce_scatter(x: Tensor, group: ProcessGroup, kind: Kind = "sum") -> Tensor:
    """The ranks' tensors combined; each rank gets its equal part of the first dimension."""
    return _tensor(group.reduce_scatter(_data(x), kind=kind))


def all_to_all(x: Tensor, group: ProcessGroup) -> Tensor:
    """The first dimension in ``world_size`` equal parts: rank r gets the r-th part of every rank, in their order."""
    return _tensor(group.all_to_all(_data(x)))


def broadcast(x: Tensor, group: ProcessGroup, root: int = 0) -> Tensor:
    """Rank ``root``'s tensor; the others give one of the same shape and dtype."""
    data = _data(x)
    return _tensor(group.broadcast(data if group.rank == root else empty(data.device, data.dtype, data.shape), root))


def send(x: Tensor, group: ProcessGroup, peer: int) -> None:
    """Send ``x`` to rank ``peer``, which calls ``recv``; waits until it does."""
    group.send(_data(x), peer)


def recv(shape: Sequence[int], dtype: DType, group: ProcessGroup, peer: int) -> Tensor:
    """The tensor of this shape and dtype that rank ``peer`` sends."""
    return _tensor(group.recv(empty(group.device, dtype, tuple(shape)), peer))


def barrier(group: ProcessGroup) -> None:
    """Return once every rank has come here."""
    group.barrier()


def _device(device: Any) -> Device:
    """An open device, by name or as it is."""
    found = place(device).device
    if not isinstance(found, Device):
        raise DeviceError(f"{found.name} is no device of the runtime; groups need one")
    return found


def _data(x: Tensor) -> DeviceArray:
    """What ``x`` holds on its device, contiguous; what was recorded for it runs now."""
    data = x._settle()
    if type(data) is Number:
        data = backend().put(x._place.device, host_array(x))
    return cast("DeviceArray", data)


def _tensor(array: DeviceArray) -> Tensor:
    return concrete(kind_of(array.dtype, array.shape), place(array.device), array)
