"""Groups whose ranks are threads of this process."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from oarlock.config import config
from oarlock.errors import BoundsError
from oarlock.runtime.communication.group import ProcessGroup
from oarlock.runtime.communication.hub import Hub
from oarlock.runtime.device import Device

__all__ = ["local_groups"]

_numbers = itertools.count(1)


def local_groups(devices: Sequence[Device], *, timeout_s: float | None = None, name: str = "") -> list[ProcessGroup]:
    """A group of one rank per device, in order, all in this process: give each end to the thread that is its rank.

    Devices may be of different adapters, and one may be there several times. ``timeout_s``: how long a rank waits for
    the others in a call (None: ``config.communication_s``).
    """
    if not devices:
        raise BoundsError("a group has at least one rank: give a device for each")
    title = name or f"group {next(_numbers)}"
    hub = Hub(title, len(devices), config.communication_s if timeout_s is None else timeout_s)
    return [ProcessGroup(hub, device, rank, len(devices), title) for rank, device in enumerate(devices)]
