"""Checks a launch against its signature and the device's limits, and turns buffers into bindings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oarlock.abi import KernelSignature
from oarlock.errors import BoundsError, UnsupportedError
from oarlock.hal import Binding
from oarlock.runtime.memory import Buffer

if TYPE_CHECKING:
    from oarlock.runtime.device import Device
    from oarlock.runtime.stream import Stream

__all__ = ["bind", "fits"]


def fits(device: Device, signature: KernelSignature, grid: tuple[int, int, int], buffers: int, scalars: int) -> bool:
    """Raise BoundsError for a launch that passes a limit or contradicts its signature; False for an empty grid."""
    limits = device.target.limits
    x, y, z = grid
    largest = limits.max_grid
    if x > largest[0] or y > largest[1] or z > largest[2] or x < 0 or y < 0 or z < 0:
        raise _refusal(device, signature, f"grid {tuple(grid)} lies outside 0 .. {largest}")
    block = signature.block
    if block != (1, 1, 1):
        _check_block(device, signature)
    if scalars != signature.scalar_bytes:
        raise _refusal(device, signature, f"{scalars} scalar bytes given, it takes {signature.scalar_bytes}")
    if scalars > limits.max_scalar_bytes:
        raise _refusal(device, signature, f"{scalars} scalar bytes, the device allows {limits.max_scalar_bytes}")
    if buffers != len(signature.buffers):
        raise _refusal(device, signature, f"{buffers} buffers given, it takes {len(signature.buffers)}")
    if buffers > limits.max_buffers:
        raise _refusal(device, signature, f"{buffers} buffers, the device allows {limits.max_buffers}")
    return x > 0 and y > 0 and z > 0


def bind(
    device: Device, signature: KernelSignature, buffers: Sequence[tuple[Buffer, int]], lane: Stream, ticket: int
) -> list[Binding]:
    """The bindings of a launch, with its use of each allocation noted. The driver is held."""
    limits = device.target.limits
    alignment = limits.binding_alignment
    widest = limits.max_binding
    unit = device.unit
    bindings: list[Binding] = []
    for position, (buffer, offset) in enumerate(buffers):
        nbytes = buffer.nbytes
        if offset < 0 or offset > nbytes or buffer.device is not device:
            device.check_owner(buffer)
            buffer.check_range(offset, 0, f"kernel {signature.name}: binding {position}")
        if nbytes:
            allocation = buffer.allocation
            base = offset - offset % alignment if alignment else 0
            extent = min(nbytes + -nbytes % unit, allocation.capacity) - base
        else:
            allocation = device.null(position)
            base, extent = 0, allocation.capacity
        if extent > widest:
            text = f"binding {position} spans {extent} bytes, the device allows {widest}; use smaller buffers"
            raise _refusal(device, signature, text)
        if extent <= 0:  # the offset is the very end: nothing can be read, but something must be bound
            allocation = device.null(position)
            base, extent = 0, allocation.capacity
        if allocation.stream is not lane:
            allocation.change(lane)
        allocation.ticket = ticket
        bindings.append((allocation.handle, base, extent))
    if limits.exclusive_binding:
        _check_exclusive(device, signature, bindings)
    return bindings


def _check_block(device: Device, signature: KernelSignature) -> None:
    limits = device.target.limits
    block = signature.block
    too_wide = any(size > most or size < 1 for size, most in zip(block, limits.max_block, strict=True))
    if too_wide or block[0] * block[1] * block[2] > limits.max_threads:
        text = f"block {block} passes {limits.max_block}, or {limits.max_threads} threads in all"
        raise _refusal(device, signature, text)


def _check_exclusive(device: Device, signature: KernelSignature, bindings: Sequence[Binding]) -> None:
    places: dict[int, int] = {}
    for position, (handle, _, _) in enumerate(bindings):
        first = places.setdefault(id(handle), position)
        if first != position:
            raise UnsupportedError(
                f"{device.name}: kernel {signature.name}: bindings {first} and {position} are one allocation, which "
                f"the device does not allow; copy one of them first"
            )


def _refusal(device: Device, signature: KernelSignature, text: str) -> BoundsError:
    return BoundsError(f"{device.name}: kernel {signature.name}: {text}")
