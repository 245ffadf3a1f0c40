"""Runs a program on a device twice: on separate operands, then at odd offsets of one buffer, on poisoned memory.

Both runs must give the same bits. The operands' buffer must be unchanged, guards included, and nothing may be written
behind a result (which shows where freed memory is overwritten: ``config.poison``).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.config import config
from oarlock.ir import Operation
from oarlock.runtime import Device, DeviceArray, from_numpy, to_numpy
from oarlock.runtime.array import to_storage
from oarlock.runtime.execute import plan_for
from oarlock.runtime.memory import Allocation
from oarlock.runtime.plan import Operand
from oarlock_conformance.case import Failure

__all__ = ["run_twice"]

Array = npt.NDArray[Any]
_GUARD = 0xB6
_POISON = 0xFF
"""What freed memory is overwritten with."""


def run_twice(device: Device, function: Operation, operands: Sequence[Array], scalar: frozenset[int]) -> list[Array]:
    """The results of ``function``; raises Failure where the two runs differ or something else was written."""
    plan = plan_for(function, device)
    given: list[Operand] = [
        x.item() if position in scalar else from_numpy(x, device) for position, x in enumerate(operands)
    ]
    results = plan.run(given)
    first = [to_numpy(result) for result in results]
    held = [(weakref.ref(result.buffer), result.buffer.allocation) for result in results if result.nbytes]
    del results, given
    device.collect()  # now the memory of the results is poisoned, and comes back for the second run
    recycled = [allocation for buffer, allocation in held if buffer() is None]
    packed = _Packed(device, operands, scalar)
    results = plan.run(packed.operands)
    second = [to_numpy(result) for result in results]
    for number, (one, two) in enumerate(zip(first, second, strict=True)):
        if one.tobytes() != two.tobytes():
            raise Failure(_difference(number, one, two))
    packed.check()
    for number, result in enumerate(results):
        alone = result.nbytes and not packed.holds(result)  # a result may be an operand as it is
        if config.poison and alone and any(result.buffer.allocation is known for known in recycled):
            _check_behind(device, number, result.buffer.allocation, result.nbytes)
    return second


class _Packed:
    """Operands one behind the other in one buffer, at odd elements, with guard bytes between them."""

    def __init__(self, device: Device, operands: Sequence[Array], scalar: frozenset[int]) -> None:
        self._device = device
        places: list[int] = []
        end = 0
        held: list[Array] = []
        for position, x in enumerate(operands):
            if position in scalar:
                held.append(np.zeros(0, np.uint8))
                places.append(0)
                continue
            dtype = dtypes.from_numpy(x.dtype)
            storage = device.target.storage_of(dtype)
            data = to_storage(x, dtype, storage)
            size = storage.itemsize
            at = (end // size + 2) * size
            at += size * ((at // size + 1) % 2)  # an odd element
            held.append(data)
            places.append(at)
            end = at + data.nbytes
        self._bytes = np.full(end + 64, _GUARD, np.uint8)
        for at, data in zip(places, held, strict=True):
            self._bytes[at : at + data.nbytes] = data.view(np.uint8)
        self._buffer = device.allocate(self._bytes.nbytes, label="packed operands")
        device.copy_in(self._buffer, 0, self._bytes)
        self.operands: list[Operand] = [
            x.item()
            if i in scalar
            else DeviceArray(device, self._buffer, places[i], dtypes.from_numpy(x.dtype), x.shape)
            for i, x in enumerate(operands)
        ]

    def check(self) -> None:
        """Raise Failure when a program wrote to its operands or beside them."""
        found = np.empty_like(self._bytes)
        self._device.copy_out(found, self._buffer, 0)
        self._device.synchronize()
        wrong = np.flatnonzero(found != self._bytes)
        if len(wrong):
            raise Failure(
                f"the program wrote to its operands: byte {wrong[0]} of their buffer and {len(wrong) - 1} more"
            )

    def holds(self, result: DeviceArray) -> bool:
        """Whether a result is one of the operands: its memory is this buffer."""
        return result.buffer is self._buffer


def _check_behind(device: Device, number: int, allocation: Allocation, nbytes: int) -> None:
    """Raise Failure when what lies behind a result is no longer poisoned."""
    if allocation.capacity == nbytes:
        return
    host = np.zeros(allocation.capacity, np.uint8)
    with device.using("copy_out"):
        device.driver.copy_out(None, host.data, allocation.handle, 0)
    device.synchronize()
    wrong = np.flatnonzero(host[nbytes:] != _POISON)
    if len(wrong):
        raise Failure(
            f"result {number} has {nbytes} bytes, and the program wrote behind it: byte {nbytes + wrong[0]} and "
            f"{len(wrong) - 1} more"
        )


def _difference(number: int, one: Array, two: Array) -> str:
    left = np.frombuffer(one.tobytes(), np.uint8).reshape(max(1, one.size), -1)
    right = np.frombuffer(two.tobytes(), np.uint8).reshape(max(1, two.size), -1)
    wrong = np.flatnonzero((left != right).any(axis=1))
    at = int(wrong[0])
    return (
        f"result {number} differs between a run on fresh memory and one on poisoned memory with operands at offsets: "
        f"element {at} is {one.reshape(-1)[at]}, then {two.reshape(-1)[at]}; {len(wrong)} of {one.size} differ"
    )
