"""Open devices and everything that lives on them: memory, streams, programs, arrays."""

from oarlock.runtime.array import DeviceArray, empty, from_numpy, storage_of, to_numpy
from oarlock.runtime.device import Counts, Device, Stats
from oarlock.runtime.memory import Buffer, split_offset
from oarlock.runtime.opening import open_device, open_devices
from oarlock.runtime.program import Program
from oarlock.runtime.stream import Event, Stream

__all__ = [
    "Buffer", "Counts", "Device", "DeviceArray", "Event", "Program", "Stats", "Stream", "empty", "from_numpy",
    "open_device", "open_devices", "split_offset", "storage_of", "to_numpy",
]  # fmt: skip
