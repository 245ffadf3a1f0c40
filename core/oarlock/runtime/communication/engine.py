"""A vendor's own collectives for one group: which calls they serve, giving calls to the driver, aborting."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast, get_args

from oarlock.dtypes import DType
from oarlock.errors import OarlockError
from oarlock.hal import Collective, Handle, ReduceKind
from oarlock.runtime.retired import Retired

if TYPE_CHECKING:
    from oarlock.runtime.array import DeviceArray
    from oarlock.runtime.device import Device
    from oarlock.runtime.lane import Lane

__all__ = ["Engine", "Member", "shared_engine"]

_PROCESS = uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Member:
    """What a rank says of itself when its group begins. ``group_id`` is the engine's name for the group, of rank 0."""

    device: str
    process: str
    engine: str = ""
    reach: str = "process"
    group_id: str = ""

    @classmethod
    def of(cls, device: Device, rank: int) -> Member:
        """This process's member on ``device``."""
        process = f"{_PROCESS}-{os.getpid()}"
        driver = device.can.communication
        if driver is None:
            return cls(device.name, process)
        group_id = device.gate.call("unique_id", driver.unique_id).hex() if rank == 0 else ""
        return cls(device.name, process, driver.engine, driver.reach, group_id)

    def to_json(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, fields: Mapping[str, str]) -> Member:
        return cls(**fields)


def shared_engine(members: Sequence[Member]) -> bool:
    """Whether the members can be one group of an engine: all have the same one, no device twice, within its reach."""
    first = members[0]
    return (
        bool(first.engine)
        and all((member.engine, member.reach) == (first.engine, first.reach) for member in members)
        and len({(member.device, member.process) for member in members}) == len(members)
        and (first.reach == "system" or all(member.process == first.process for member in members))
    )


class Engine:
    """One rank's end of a group of the vendor's engine."""

    def __init__(self, device: Device, group_id: bytes, rank: int, world_size: int) -> None:
        driver = device.can.communication
        assert driver is not None  # shared_engine has looked
        self._device = device
        self._driver = driver
        self._methods = {
            name: method for name in get_args(Collective) if callable(method := getattr(driver, name, None))
        }
        self._answers: dict[tuple[str, DType, str], bool] = {}
        self._uses: dict[Lane, int] = {}
        self._handle: Handle = device.gate.call("init_group", driver.init_group, group_id, rank, world_size)
        self._closed = False

    def has(self, operation: str, dtype: DType, kind: str = "") -> bool:
        """Whether the driver does it; asked once."""
        key = (operation, dtype, kind)
        if key not in self._answers:
            asked = (cast("Collective", operation), dtype, cast("ReduceKind", kind) if kind else None)
            self._answers[key] = operation in self._methods and bool(
                self._device.gate.call("supports", self._driver.supports, *asked)
            )
        return self._answers[key]

    def submit(self, operation: str, lane: Lane, arrays: Sequence[DeviceArray], *arguments: Any) -> None:
        """Give one collective on ``arrays`` to the driver."""
        with self._device.using(operation):
            places = []
            for array in arrays:
                allocation = array.buffer.allocation
                allocation.use(lane)
                places.append((allocation.handle, array.offset_bytes))
            lane.ticket += 1
            self._uses[lane] = lane.ticket
            method: Callable[..., None] = self._methods[operation]
            method(lane.handle, self._handle, *places, *arguments)

    def abort(self) -> None:
        """End what is pending. The group is given up already, and why is told: a driver that fails adds nothing."""
        if self._closed or not self._device.usable:
            return
        try:
            self._device.gate.call("abort_group", self._driver.abort_group, self._handle)
        except OarlockError:
            return

    def close(self) -> None:
        """Leave the group once its work has ended; the device sees to it."""
        if not self._closed:
            self._closed = True
            self._device.dropped.items.append(Retired("group", self._handle, self._uses))
