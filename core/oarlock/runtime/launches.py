"""Checks a launch against its signature and the device's limits, and turns buffers into bindings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oarlock.abi import KernelSignature
from oarlock.errors import BoundsError, UnsupportedError
from oarlock.hal import Binding
from oarlock.runtime.memory import Allocation, Buffer

if TYPE_CHECKING:
    from oarlock.runtime.device import Device
    from oarlock.runtime.lane import Lane

__all__ = ["bind", "check_launch", "check_signature"]


def check_signature(device: Device, signature: KernelSignature) -> None:
    """Raise BoundsError for a kernel that no launch on ``device`` could satisfy."""
    limits = device.target.limits
    block = signature.block
    too_wide = any(size > most or size < 1 for size, most in zip(block, limits.max_block, strict=True))
    if too_wide or block[0] * block[1] * block[2] > limits.max_threads:
        text = f"block {block} passes {limits.max_block}, or {limits.max_threads} threads in all"
        raise _refusal(device, signature, text)
    if signature.scalar_bytes > limits.max_scalar_bytes:
        text = f"{signature.scalar_bytes} scalar bytes, the device allows {limits.max_scalar_bytes}"
        raise _refusal(device, signature, text)
    if len(signature.buffers) > limits.max_buffers:
        raise _refusal(device, signature, f"{len(signature.buffers)} buffers, the device allows {limits.max_buffers}")


def check_launch(
    device: Device, signature: KernelSignature, grid: tuple[int, int, int], buffers: int, scalars: int
) -> bool:
    """Raise BoundsError for a launch that contradicts its signature or passes a limit; False for an empty grid."""
    x, y, z = grid
    largest = device.target.limits.max_grid
    if x > largest[0] or y > largest[1] or z > largest[2] or x < 0 or y < 0 or z < 0:
        raise _refusal(device, signature, f"grid {tuple(grid)} lies outside 0 .. {largest}")
    if scalars != signature.scalar_bytes:
        raise _refusal(device, signature, f"{scalars} scalar bytes given, it takes {signature.scalar_bytes}")
    if buffers != len(signature.buffers):
        raise _refusal(device, signature, f"{buffers} buffers given, it takes {len(signature.buffers)}")
    return x > 0 and y > 0 and z > 0


def bind(
    device: Device, signature: KernelSignature, buffers: Sequence[tuple[Buffer, int]], lane: Lane, ticket: int
) -> list[Binding]:
    """The bindings of a launch, with its use of each allocation noted. The driver is held.

    This runs for every buffer of every launch: the usual case is kept short.
    """
    limits = device.target.limits
    alignment = limits.binding_alignment
    widest = limits.max_binding
    bindings: list[Binding] = []
    for buffer, offset in buffers:
        allocation = buffer._allocation
        if allocation is None or offset < 0 or offset >= buffer.nbytes or buffer.device is not device:
            allocation = _unusual(device, signature, buffer, offset, len(bindings))
            binding = allocation.whole
        else:
            binding = allocation.whole
            if alignment and offset >= alignment:
                base = offset - offset % alignment
                binding = (allocation.handle, base, binding[2] - base)
            if binding[2] > widest:
                text = f"spans {binding[2]} bytes, the device allows {widest}; use smaller buffers"
                raise _refusal(device, signature, f"binding {len(bindings)} {text}")
        if allocation.lane is not lane:
            allocation.change(lane)
        allocation.ticket = ticket
        bindings.append(binding)
    if limits.exclusive_binding:
        _check_exclusive(device, signature, bindings)
    return bindings


def _unusual(device: Device, signature: KernelSignature, buffer: Buffer, offset: int, position: int) -> Allocation:
    """The null buffer for an empty operand, or one at the very end of its buffer; anything else is an error."""
    device.check_owner(buffer)
    buffer.check_range(offset, 0, f"kernel {signature.name}: binding {position}")
    buffer.check_live()
    return device.null(position)


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
