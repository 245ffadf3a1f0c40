"""Copies between two devices: directly where their adapter can, else through the host, a part at a time."""

from __future__ import annotations

from oarlock.runtime.memory import Buffer
from oarlock.runtime.stream import check_stream

__all__ = ["copy_across"]

_PART = 64 * 2**20


def copy_across(dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, nbytes: int) -> None:
    """Copy bytes between buffers of any two devices, in the order of both current streams.

    Returns when the copy is done. Raises the first failure of the work before it.
    """
    src.check_range(src_offset, nbytes, "copy from")
    dst.check_range(dst_offset, nbytes, "copy to")
    if not nbytes:
        return
    if src.device is dst.device:
        dst.device.copy(dst, dst_offset, src, src_offset, nbytes)
        dst.device.current_stream.synchronize()
    elif _direct(dst, dst_offset, src, src_offset, nbytes):
        _copy_peer(dst, dst_offset, src, src_offset, nbytes)
    else:
        _copy_through_host(dst, dst_offset, src, src_offset, nbytes)


def _direct(dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, nbytes: int) -> bool:
    if src.device.adapter_name != dst.device.adapter_name:
        return False
    if src.device.can.peer_copy is None or dst.device.can.peer_copy is None:
        return False
    alignment = max(src.device.target.limits.copy_alignment, dst.device.target.limits.copy_alignment)
    return not (dst_offset % alignment or src_offset % alignment or nbytes % alignment)


def _copy_peer(dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, nbytes: int) -> None:
    target, source = dst.device, src.device
    peer_copy = target.can.peer_copy
    assert peer_copy is not None  # _direct has looked
    source.current_stream.synchronize()
    lane = check_stream(target, None)
    first, second = sorted((target, source), key=lambda device: device.name)  # one order, so that two threads cannot
    with first.using("copy_peer"), second.using("copy_peer"):  # wait for each other
        allocation = dst.allocation
        allocation.use(lane)
        lane.ticket += 1
        peer_copy.copy_peer(
            lane.handle, allocation.handle, dst_offset, source.driver, src.allocation.handle, src_offset, nbytes
        )
    lane.synchronize()


def _copy_through_host(dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, nbytes: int) -> None:
    lane = src.device.current_stream
    for start in range(0, nbytes, _PART):
        part = bytearray(min(_PART, nbytes - start))
        src.device.copy_out(part, src, src_offset + start, lane)
        lane.synchronize()
        dst.device.copy_in(dst, dst_offset + start, part)
    dst.device.current_stream.synchronize()
