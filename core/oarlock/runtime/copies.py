"""Copies between host and device and within a device, for every offset and size, on targets that want alignment.

A copy whose ends are no multiples of ``copy_alignment`` is widened: the bytes around it are read first and written
back unchanged, or read and cut off. Allocations are a multiple of the alignment long, so there is always room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from oarlock.errors import BoundsError
from oarlock.runtime.checks import check_nothing
from oarlock.runtime.stream import check_stream, in_callback

if TYPE_CHECKING:
    from oarlock.runtime.device import Device
    from oarlock.runtime.lane import Lane
    from oarlock.runtime.memory import Allocation, Buffer
    from oarlock.runtime.stream import Stream

__all__ = ["HostData", "copy", "copy_in", "copy_out", "fill", "host_bytes", "poison"]

HostData: TypeAlias = bytes | bytearray | memoryview | np.ndarray[Any, Any]
"""Host memory; any shape and strides as a source."""

_CHUNK = 2**20
POISON = 0xFF
"""Every float made of this byte is NaN, every signed integer is -1."""


def host_bytes(source: HostData) -> memoryview:
    """The bytes of ``source`` in row-major order as a flat view: of the memory itself where it is contiguous."""
    if isinstance(source, np.ndarray):
        return np.ascontiguousarray(source).reshape(-1).view(np.uint8).data
    view = memoryview(source)
    if not view.c_contiguous:
        return memoryview(view.tobytes())
    return view.cast("B") if view.nbytes else memoryview(b"")


def copy_in(device: Device, buffer: Buffer, offset: int, source: HostData, stream: Stream | Lane | None) -> None:
    """See ``Device.copy_in``."""
    data = host_bytes(source)
    nbytes = len(data)
    buffer.check_range(offset, nbytes, "copy_in")
    device.check_owner(buffer)
    lane = check_stream(device, stream)
    if not nbytes:
        return
    low, high = _widened(device, offset, nbytes)
    if (low, high) == (offset, offset + nbytes):
        _submit_in(device, lane, buffer.allocation, offset, data)
        return
    alignment = device.target.limits.copy_alignment
    with device.edges:
        whole = bytearray(high - low)
        view = memoryview(whole)
        _submit_out(device, lane, view[:alignment], buffer.allocation, low)
        if high - low > alignment:
            _submit_out(device, lane, view[-alignment:], buffer.allocation, high - alignment)
        lane.synchronize()
        view[offset - low : offset - low + nbytes] = data
        _submit_in(device, lane, buffer.allocation, low, view)


def copy_out(device: Device, destination: HostData, buffer: Buffer, offset: int, stream: Stream | Lane | None) -> None:
    """See ``Device.copy_out``."""
    data = _writable(destination)
    nbytes = len(data)
    buffer.check_range(offset, nbytes, "copy_out")
    device.check_owner(buffer)
    lane = check_stream(device, stream)
    if not nbytes:
        return
    low, high = _widened(device, offset, nbytes)
    if (low, high) == (offset, offset + nbytes):
        _submit_out(device, lane, data, buffer.allocation, offset)
        return
    whole = memoryview(bytearray(high - low))

    def cut() -> None:
        data[:] = whole[offset - low : offset - low + nbytes]

    _submit_out(device, lane, whole, buffer.allocation, low)
    lane.defer(cut)


def copy(
    device: Device,
    dst: Buffer,
    dst_offset: int,
    src: Buffer,
    src_offset: int,
    nbytes: int,
    stream: Stream | Lane | None,
) -> None:
    """See ``Device.copy``."""
    src.check_range(src_offset, nbytes, "copy from")
    dst.check_range(dst_offset, nbytes, "copy to")
    device.check_owner(src)
    device.check_owner(dst)
    lane = check_stream(device, stream)
    if not nbytes:
        return
    same = dst.allocation is src.allocation
    if same and dst_offset == src_offset:
        return
    alignment = device.target.limits.copy_alignment
    if dst_offset % alignment or src_offset % alignment or nbytes % alignment:
        through = bytearray(nbytes)
        copy_out(device, through, src, src_offset, lane)
        lane.synchronize()
        copy_in(device, dst, dst_offset, through, lane)
    elif same and abs(dst_offset - src_offset) < nbytes:
        between = device.allocate_on(lane, nbytes, "overlapping copy")
        _submit_copy(device, lane, between.allocation, 0, src.allocation, src_offset, nbytes)
        _submit_copy(device, lane, dst.allocation, dst_offset, between.allocation, 0, nbytes)
    else:
        _submit_copy(device, lane, dst.allocation, dst_offset, src.allocation, src_offset, nbytes)


def fill(device: Device, buffer: Buffer, offset: int, nbytes: int, byte: int, stream: Stream | Lane | None) -> None:
    """See ``Device.fill``."""
    if not 0 <= byte <= 255:
        raise BoundsError(f"fill takes a byte, 0 to 255, not {byte}")
    buffer.check_range(offset, nbytes, "fill")
    device.check_owner(buffer)
    lane = check_stream(device, stream)
    if not nbytes:
        return
    if device.can.fill is not None and _widened(device, offset, nbytes) == (offset, offset + nbytes):
        allocation = buffer.allocation
        with device.using("fill"):
            _note(lane, allocation)
            device.can.fill.fill(lane.handle, allocation.handle, offset, nbytes, byte)
        return
    pattern = memoryview(bytes([byte]) * min(nbytes, _CHUNK))
    for start in range(0, nbytes, _CHUNK):
        copy_in(device, buffer, offset + start, pattern[: min(_CHUNK, nbytes - start)], lane)


def poison(device: Device, allocation: Allocation) -> None:
    """Overwrite memory that was freed, after the work that uses it. The driver is held."""
    lane = allocation.lane
    if lane is None or lane.closed:
        lane = device.default_lane
    for other, ticket in allocation.uses().items():
        if other is not lane:
            lane.follow(other, ticket)
    _note(lane, allocation)
    if device.can.fill is not None:
        device.can.fill.fill(lane.handle, allocation.handle, 0, allocation.capacity, POISON)
        return
    pattern = memoryview(bytes([POISON]) * min(allocation.capacity, _CHUNK))
    for start in range(0, allocation.capacity, _CHUNK):
        part = pattern[: min(_CHUNK, allocation.capacity - start)]
        device.driver.copy_in(lane.handle, allocation.handle, start, part)


def _widened(device: Device, offset: int, nbytes: int) -> tuple[int, int]:
    """The smallest aligned range around ``offset .. offset + nbytes``."""
    alignment = device.target.limits.copy_alignment
    return offset - offset % alignment, -(-(offset + nbytes) // alignment) * alignment


def _writable(destination: HostData) -> memoryview:
    if isinstance(destination, np.ndarray):
        destination = _flat(destination)
    view = memoryview(destination)
    if view.readonly or not view.c_contiguous:
        raise BoundsError("copy_out needs writable, contiguous host memory")
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def _flat(destination: np.ndarray[Any, Any]) -> memoryview:
    if not destination.flags.c_contiguous:
        raise BoundsError("copy_out needs writable, contiguous host memory")
    return destination.reshape(-1).view(np.uint8).data


def _note(lane: Lane, *allocations: Allocation) -> None:
    """Take a ticket of ``lane`` for work on ``allocations``."""
    for allocation in allocations:
        allocation.use(lane)
    lane.ticket += 1


def _submit_in(device: Device, lane: Lane, dst: Allocation, offset: int, data: memoryview) -> None:
    _let_callbacks_run(lane)
    with device.using("copy_in"):
        _note(lane, dst)
        given: object = device.driver.copy_in(lane.handle, dst.handle, offset, data)
        if given is not None:
            check_nothing("copy_in", given)
        device.counts.bytes_in += len(data)


def _submit_out(device: Device, lane: Lane, data: memoryview, src: Allocation, offset: int) -> None:
    _let_callbacks_run(lane)
    with device.using("copy_out"):
        _note(lane, src)
        given: object = device.driver.copy_out(lane.handle, data, src.handle, offset)
        if given is not None:
            check_nothing("copy_out", given)
        device.counts.bytes_out += len(data)
        lane.defer(data.__len__)  # keeps the memory until the copy is known to have ended


def _let_callbacks_run(lane: Lane) -> None:
    """A copy may block in the driver behind a host callback that itself wants the driver: let those end first."""
    if lane.device.host_calls and not in_callback():
        lane.settle()


def _submit_copy(
    device: Device, lane: Lane, dst: Allocation, dst_offset: int, src: Allocation, src_offset: int, nbytes: int
) -> None:
    with device.using("copy"):
        _note(lane, dst, src)
        device.driver.copy(lane.handle, dst.handle, dst_offset, src.handle, src_offset, nbytes)
