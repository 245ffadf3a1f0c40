"""The optional interfaces of an open driver: looked up once, when it is opened, from what the device declares."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import cast, get_args

from oarlock.errors import DeviceError
from oarlock.hal import (
    Addressable,
    Collective,
    Communication,
    Driver,
    ElapsedTime,
    Fill,
    HostCallbacks,
    MemoryInfo,
    Operators,
    PeerCopy,
    Pinned,
    Plans,
    Reset,
    Streams,
)
from oarlock.registry.methods import method_problems

__all__ = ["Abilities", "abilities_of"]

_METHODS: dict[str, tuple[str, ...]] = {
    "address": ("address", "adopt"),
    "communication": ("unique_id", "init_group", "abort_group", "destroy_group", "supports"),  # and any collectives
    "elapsed_time": ("elapsed",),
    "fill": ("fill",),
    "host_callbacks": ("call_host",),
    "host_memory": (),
    "memory_info": ("memory_info",),
    "operators": ("match",),
    "peer_copy": ("copy_peer",),
    "pinned": ("allocate_pinned",),
    "plans": ("prepare", "replay"),
    "reset": ("reset",),
    "streams": ("create_stream", "destroy_stream", "record", "wait", "query", "destroy_event"),
}


_PROTOCOLS: dict[str, type] = {
    "address": Addressable, "communication": Communication, "elapsed_time": ElapsedTime, "fill": Fill,
    "host_callbacks": HostCallbacks, "host_memory": Addressable, "memory_info": MemoryInfo, "operators": Operators,
    "peer_copy": PeerCopy, "pinned": Pinned, "plans": Plans, "reset": Reset, "streams": Streams,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Abilities:
    """A driver seen through each optional protocol, or None where the device does not declare it."""

    address: Addressable | None = None
    communication: Communication | None = None
    elapsed_time: ElapsedTime | None = None
    fill: Fill | None = None
    host_callbacks: HostCallbacks | None = None
    memory_info: MemoryInfo | None = None
    peer_copy: PeerCopy | None = None
    pinned: Pinned | None = None
    plans: Plans | None = None
    reset: Reset | None = None
    streams: Streams | None = None


def abilities_of(driver: Driver, capabilities: frozenset[str]) -> Abilities:
    """Check what a device declares; raises DeviceError for an unknown word or a method that is not there."""
    for name in sorted(capabilities):
        if name not in _METHODS:
            near = get_close_matches(name, _METHODS, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_METHODS)}"
            raise DeviceError(f"the device declares an unknown capability {name}; {hint}")
        missing = [method for method in _METHODS[name] if not callable(getattr(driver, method, None))]
        if missing:
            raise DeviceError(
                f"the device declares capability {name}, and its driver has no {', '.join(missing)}; expected "
                f"{', '.join(_METHODS[name])}: define them, or leave {name} out of DeviceInfo.capabilities"
            )
        wanted = [(_PROTOCOLS[name], method) for method in _METHODS[name] if hasattr(_PROTOCOLS[name], method)]
        if name == "communication":
            wanted += [(Communication, each) for each in get_args(Collective) if callable(getattr(driver, each, None))]
        for problem in method_problems(driver, wanted):
            raise DeviceError(f"capability {name}: the driver's method {problem}")
    if "communication" in capabilities and not getattr(driver, "engine", ""):
        raise DeviceError("the device declares capability communication, and its driver has no engine, a name")
    return Abilities(
        address=cast("Addressable", driver) if "address" in capabilities else None,
        communication=cast("Communication", driver) if "communication" in capabilities else None,
        elapsed_time=cast("ElapsedTime", driver) if "elapsed_time" in capabilities else None,
        fill=cast("Fill", driver) if "fill" in capabilities else None,
        host_callbacks=cast("HostCallbacks", driver) if "host_callbacks" in capabilities else None,
        memory_info=cast("MemoryInfo", driver) if "memory_info" in capabilities else None,
        peer_copy=cast("PeerCopy", driver) if "peer_copy" in capabilities else None,
        pinned=cast("Pinned", driver) if "pinned" in capabilities else None,
        plans=cast("Plans", driver) if "plans" in capabilities else None,
        reset=cast("Reset", driver) if "reset" in capabilities else None,
        streams=cast("Streams", driver) if "streams" in capabilities else None,
    )
