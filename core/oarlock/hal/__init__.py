"""The contract that an adapter implements.

An adapter is primitives on opaque handles; the core wraps them and owns all policy (bounds, lifetimes, pooling,
ordering, error context, counters). Twelve mandatory methods run every operator and program: three of Adapter, nine of
Driver. Everything else is optional, declared by name in ``DeviceInfo.capabilities`` and described by a protocol here.
"""

from oarlock.abi import BufferArgument, Executable, KernelSignature, ScalarField
from oarlock.hal.adapter import CONTRACT, Adapter, Driver
from oarlock.hal.communication import Collective, Communication, Place, ReduceKind
from oarlock.hal.device import DeviceDriver, DeviceInfo, MemoryInfo, Reset
from oarlock.hal.memory import Addressable, Fill, Handle, MemoryDriver, PeerCopy, Pinned
from oarlock.hal.operators import OperatorCall, OperatorKernel, Operators
from oarlock.hal.program import Binding, CopyStep, LaunchStep, Plans, ProgramDriver
from oarlock.hal.stream import ElapsedTime, HostCallbacks, StreamDriver, Streams

__all__ = [
    "CONTRACT", "Adapter", "Addressable", "Binding", "BufferArgument", "Collective", "Communication", "CopyStep",
    "DeviceDriver", "DeviceInfo", "Driver", "ElapsedTime", "Executable", "Fill", "Handle", "HostCallbacks",
    "KernelSignature", "LaunchStep", "MemoryDriver", "MemoryInfo", "OperatorCall", "OperatorKernel", "Operators",
    "PeerCopy", "Pinned", "Place", "Plans", "ProgramDriver", "ReduceKind", "Reset", "ScalarField", "StreamDriver",
    "Streams",
]  # fmt: skip
