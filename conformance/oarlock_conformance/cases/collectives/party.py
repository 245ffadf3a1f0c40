"""The ranks of a case: threads of this process, on the devices of the adapter or the same device several times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import CommunicationError
from oarlock.runtime import Device, DeviceArray, from_numpy, open_device, storage_of
from oarlock.runtime.communication import ProcessGroup, local_groups
from oarlock_conformance.bench import Bench, expect_equal
from oarlock_conformance.case import Failure, Options

__all__ = ["TIMEOUT_S", "Guarded", "Party", "Values"]

T = TypeVar("T")
Values = npt.NDArray[Any]

TIMEOUT_S = 20.0
"""How long a rank waits for the others where they are to come: much more than a case takes."""
_STUCK_S = 20.0
"""How much longer than that a thread may take before it counts as hanging."""
_GUARD = 64
"""Elements before and after an array that must not change."""


class Party:
    """What a collective case works with."""

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.options = options
        self._benches: dict[str, Bench] = {}

    @property
    def device(self) -> Device:
        """The device that is certified; rank 0 is on it."""
        return open_device(self.name)

    def bench(self, device: Device) -> Bench:
        """Kernels for a rank's device."""
        return self._benches.setdefault(device.name, Bench(device.name, self.options))

    def forget(self) -> None:
        """Drop the kernels that are kept between cases."""
        for bench in self._benches.values():
            bench.forget()

    def devices(self, world_size: int, *stored: DType) -> list[Device]:
        """A device for each rank: those of the adapter in turn, from the certified one on, that store ``stored``."""
        own = self.device
        count = len(own.adapter.devices())
        named = [
            open_device(f"{own.adapter_name}:{(own.index + step) % count}") for step in range(min(count, world_size))
        ]
        usable = [device for device in named if all(device.target.stores(dtype) for dtype in stored)]
        return [usable[rank % len(usable)] for rank in range(world_size)]

    def ranks(
        self,
        world_size: int,
        work: Callable[[ProcessGroup], T],
        *stored: DType,
        devices: Sequence[Device] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> list[T]:
        """Run ``work`` as every rank; its results. What one raises fails the case, and a rank that hangs."""
        outcomes = self.outcomes(world_size, work, *stored, devices=devices, timeout_s=timeout_s)
        raised = [(rank, each) for rank, each in enumerate(outcomes) if isinstance(each, BaseException)]
        for rank, error in sorted(raised, key=lambda item: isinstance(item[1], CommunicationError)):
            if isinstance(error, Failure):
                raise Failure(f"rank {rank} of {world_size}: {error}") from error
            raise Failure(f"rank {rank} of {world_size} raised {type(error).__name__}: {error}") from error
        return [each for each in outcomes if not isinstance(each, BaseException)]

    def outcomes(
        self,
        world_size: int,
        work: Callable[[ProcessGroup], T],
        *stored: DType,
        devices: Sequence[Device] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> list[T | BaseException]:
        """The same, with what each rank raised in the place of its result; only a rank that hangs fails."""
        groups = local_groups(devices or self.devices(world_size, *stored), timeout_s=timeout_s)
        found: list[T | BaseException] = [Failure("the rank has not come back")] * world_size

        def run(group: ProcessGroup) -> None:
            try:
                with group:
                    found[group.rank] = work(group)
            except BaseException as error:
                found[group.rank] = error.with_traceback(None)

        threads = [threading.Thread(target=run, args=(group,), daemon=True) for group in groups]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + timeout_s + _STUCK_S
        for rank, thread in enumerate(threads):
            thread.join(max(0.1, deadline - time.monotonic()))
            if thread.is_alive():
                raise Failure(f"rank {rank} of {world_size} hangs: it has not come back in {timeout_s + _STUCK_S:g} s")
        return found

    def works(self, *devices: Device) -> None:
        """Fail unless the devices (the certified one) copy, launch and wait as they should."""
        for device in dict.fromkeys(devices or (self.device,)):
            self.bench(device).works()


class Guarded:
    """An array in the middle of a buffer whose other elements must not change. ``shift`` elements off its start."""

    def __init__(self, device: Device, values: Values, shift: int = 0) -> None:
        dtype = dtypes.from_numpy(values.dtype)
        flat = np.ascontiguousarray(values).reshape(-1)
        whole = np.zeros(_GUARD + shift + flat.size + _GUARD, values.dtype)
        whole.view(np.uint8)[:] = 1
        self._start = _GUARD + shift
        whole[self._start : self._start + flat.size] = flat
        self._before = whole
        self._whole = from_numpy(whole, device)
        offset = self._start * storage_of(device, dtype).itemsize
        self.array = DeviceArray(device, self._whole.buffer, offset, dtype, values.shape)

    def check(self, wanted: Values, what: str) -> None:
        """Fail unless the array holds ``wanted`` and the elements around it are as they were."""
        expect_equal(self.numpy(what), wanted.reshape(self.array.shape), what)

    def numpy(self, what: str) -> Values:
        """The array's values; fails unless the elements around it are as they were."""
        found = self._whole.numpy()
        end = self._start + self.array.size
        expect_equal(found[: self._start], self._before[: self._start], f"{what}: the elements before the array")
        expect_equal(found[end:], self._before[end:], f"{what}: the elements after the array")
        return found[self._start : end].reshape(self.array.shape)
