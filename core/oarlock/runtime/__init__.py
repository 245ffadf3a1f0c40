"""Open devices and everything that lives on them: memory, streams, programs, arrays."""

from oarlock.runtime.array import DeviceArray, empty, from_numpy, storage_of, to_numpy, transfer
from oarlock.runtime.device import Counts, Device, Stats
from oarlock.runtime.memory import Buffer, split_offset
from oarlock.runtime.opening import device_names, open_device, open_devices
from oarlock.runtime.program import PreparedPlan, Program
from oarlock.runtime.stream import Event, Stream
from oarlock.runtime.transfer import copy_across

__all__ = [
    "Buffer", "Counts", "Device", "DeviceArray", "Event", "PreparedPlan", "Program", "Stats", "Stream", "copy_across",
    "device_names", "empty", "from_numpy", "open_device", "open_devices", "split_offset", "storage_of", "to_numpy",
    "transfer",
]  # fmt: skip
