"""The kernels of a device: each compiled once, in batches and in parallel, found by its name, which names its text."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.pipeline import render, signature
from oarlock.ir import Operation
from oarlock.runtime.device import Device
from oarlock.runtime.program import Program

__all__ = ["KernelCache", "kernels_of"]

BATCH = 12
"""Kernels of one compilation: a program costs much more than one more kernel in it."""
WORKERS = 2

Progress = Callable[[int, int], None]
"""Called with (kernels compiled, kernels to compile)."""


class KernelCache:
    """Loaded kernels of one device by name."""

    def __init__(self, device: Device) -> None:
        self._device = weakref.ref(device)
        self._programs: dict[str, Program] = {}
        self._lock = threading.Lock()
        self.compiled = 0
        """Kernels compiled or taken from the disk cache so far."""

    def get(self, calls: Sequence[KernelCall], progress: Progress | None = None) -> dict[str, Program]:
        """The program that holds each kernel of ``calls``, by kernel name; missing ones are compiled."""
        functions = {str(c.function.attributes["name"]): c for c in calls}
        with self._lock:
            missing = [c for name, c in functions.items() if name not in self._programs]
            batches = [missing[i : i + BATCH] for i in range(0, len(missing), BATCH)]
            done = 0
            with ThreadPoolExecutor(WORKERS) as pool:
                for batch, program in zip(batches, pool.map(self._compile, batches), strict=True):
                    for call in batch:
                        self._programs[str(call.function.attributes["name"])] = program
                    done += len(batch)
                    if progress is not None:
                        progress(done, len(missing))
            self.compiled += done
            return {name: self._programs[name] for name in functions}

    def _compile(self, batch: Sequence[KernelCall]) -> Program:
        device = self._device()
        assert device is not None
        functions: list[Operation] = [call.function for call in batch]
        with device.gate.watched("rendering kernels"):
            source = render(functions, device.target)
        return device.load(device.compile(source, [signature(call, device.target) for call in batch]))


_lock = threading.Lock()


def kernels_of(device: Device) -> KernelCache:
    """The kernel cache of ``device``, which lives as long as the device is open."""
    with _lock:
        cache = device.held.get("kernels")
        if not isinstance(cache, KernelCache):
            cache = device.held["kernels"] = KernelCache(device)
        return cache
