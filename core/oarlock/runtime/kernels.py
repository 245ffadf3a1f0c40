"""The kernels of a device: each compiled once, in batches and in parallel, found by its name, which names its text."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from oarlock.abi import Executable, KernelSignature
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.pipeline import render, signature
from oarlock.ir import Operation
from oarlock.runtime.cache import cache_key, read_compiled
from oarlock.runtime.device import Device
from oarlock.runtime.program import Program

__all__ = ["KernelCache", "Progress", "Stored", "kernels_of"]

BATCH = 12
"""Kernels of one compilation: a program costs much more than one more kernel in it."""
WORKERS = 2

Progress = Callable[[int, int], None]
"""Called with (kernels compiled, kernels to compile)."""
_Given = TypeVar("_Given")


@dataclass(frozen=True, slots=True)
class Stored:
    """An executable in the disk cache: its key there, and its kernels."""

    key: str
    signatures: tuple[KernelSignature, ...]


class KernelCache:
    """Loaded kernels of one device by name."""

    def __init__(self, device: Device) -> None:
        self._device = weakref.ref(device)
        self._programs: dict[str, Program] = {}
        self._keys: dict[Program, str] = {}
        """The disk cache's keys of the programs whose text is not here."""
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
            for batch, program in zip(batches, _each(self._compile, batches), strict=True):
                for call in batch:
                    self._programs[str(call.function.attributes["name"])] = program
                done += len(batch)
                if progress is not None:
                    progress(done, len(missing))
            self.compiled += done
            return {name: self._programs[name] for name in functions}

    def take(self, stored: Sequence[Stored], progress: Progress | None = None) -> dict[str, Program] | None:
        """The program that holds each kernel of ``stored``, by kernel name, without a compiler.

        None, with nothing loaded, where an executable that is needed is not in the disk cache.
        """
        device = self._device()
        assert device is not None
        names = [signature.name for item in stored for signature in item.signatures]
        with self._lock:
            wanted = [item for item in stored if any(s.name not in self._programs for s in item.signatures)]
            payloads = [payload for item in wanted if (payload := read_compiled(item.key)) is not None]
            if len(payloads) != len(wanted):
                return None
            executables = [
                Executable(device.target, payload, item.signatures)
                for item, payload in zip(wanted, payloads, strict=True)
            ]
            total = len({name for name in names if name not in self._programs})
            before = len(self._programs)
            for item, program in zip(wanted, _each(device.load, executables), strict=True):
                self._keys[program] = item.key
                for name in program.signatures:
                    self._programs.setdefault(name, program)
                if progress is not None:
                    progress(len(self._programs) - before, total)
            self.compiled += len(self._programs) - before
            return {name: self._programs[name] for name in names}

    def key_of(self, program: Program) -> str:
        """The disk cache's key of a program that ``get`` or ``take`` gave."""
        known = self._keys.get(program)
        return known or cache_key(program.device, program.executable.source, list(program.signatures))

    def _compile(self, batch: Sequence[KernelCall]) -> Program:
        device = self._device()
        assert device is not None
        functions: list[Operation] = [call.function for call in batch]
        with device.gate.watched("rendering kernels"):
            source = render(functions, device.target)
        return device.load(device.compile(source, [signature(call, device.target) for call in batch]))


def _each(function: Callable[[_Given], Program], items: Sequence[_Given]) -> Iterator[Program]:
    """``function`` of each of ``items``, in order: in parallel where there are several."""
    if len(items) < 2:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(WORKERS) as pool:
        yield from pool.map(function, items)


_lock = threading.Lock()


def kernels_of(device: Device) -> KernelCache:
    """The kernel cache of ``device``, which lives as long as the device is open."""
    with _lock:
        cache = device.held.get("kernels")
        if not isinstance(cache, KernelCache):
            cache = device.held["kernels"] = KernelCache(device)
        return cache
