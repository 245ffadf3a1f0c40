"""Faults of compiling and loading programs."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from oarlock.abi import KernelSignature
from oarlock.errors import CompileError, DeviceError
from oarlock.hal import Handle
from oarlock.target import Target
from oarlock_saboteurs import BrokenAdapter, BrokenDriver, saboteur
from oarlock_sim.program import Program


@saboteur("program", "a program is taken for an older one whose kernels have the same names")
class ProgramStale(BrokenDriver):
    def load(self, executable: bytes, signatures: Sequence[KernelSignature]) -> Handle:
        known: dict[tuple[str, ...], bytes] = self.__dict__.setdefault("known", {})
        key = tuple(sorted(signature.name for signature in signatures))
        old = known.setdefault(key, executable)
        if old != executable:
            self.hit()
        return super().load(old, signatures)


@saboteur("program", "a bad source raises CompileError without a log")
class LogLost(BrokenAdapter):
    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        try:
            return super().compile(target, source, entries)
        except CompileError:
            self.hit()
            raise CompileError("it does not compile") from None


@saboteur("program", "a bad source gives the last good program")
class CompileAcceptsAll(BrokenAdapter):
    last = b""

    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        try:
            self.last = super().compile(target, source, entries)
        except CompileError:
            self.hit()
        return self.last


@saboteur("program", "a bad source raises an error that is no CompileError")
class CompileErrorUntyped(BrokenAdapter):
    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        try:
            return super().compile(target, source, entries)
        except CompileError as error:
            self.hit()
            raise RuntimeError(str(error)) from None


@saboteur("program", "compile keeps its source in one place, which another thread overwrites")
class CompileShared(BrokenAdapter):
    source = ""
    entries: Sequence[str] = ()

    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        self.source, self.entries = source, entries
        time.sleep(0.01)
        if self.source != source:
            self.hit()
        return super().compile(target, self.source, self.entries)


@saboteur("program", "compiled bytes mean something only to the process that made them")
class CompiledBytesLocal(BrokenAdapter):
    made: dict[bytes, bytes] = {}

    class LocalDriver(BrokenDriver):
        def load(self, executable: bytes, signatures: Sequence[KernelSignature]) -> Handle:
            if executable not in CompiledBytesLocal.made:
                self.hit()
                raise DeviceError("the executable is not known")
            return super().load(CompiledBytesLocal.made[executable], signatures)

    driver = LocalDriver

    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        payload = super().compile(target, source, entries)
        token = b"executable %d" % (id(self) + len(self.made))
        self.made[token] = payload
        return token


@saboteur("program", "free of one program unloads all that were loaded from its bytes")
class FreeUnloadsTwins(BrokenDriver):
    def load(self, executable: bytes, signatures: Sequence[KernelSignature]) -> Handle:
        twins: dict[bytes, list[Handle]] = self.__dict__.setdefault("twins", {})
        handle = super().load(executable, signatures)
        twins.setdefault(executable, []).append(handle)
        return handle

    def free(self, handle: Handle) -> None:
        for twins in self.__dict__.get("twins", {}).values():
            if handle in twins:
                twins.remove(handle)
                for twin in twins:
                    self.hit()
                    super().free(twin)
                twins.clear()
                break
        super().free(handle)


@saboteur("program", "the kernels of a program of several change places")
class EntriesSwapped(BrokenDriver):
    def load(self, executable: bytes, signatures: Sequence[KernelSignature]) -> Handle:
        handle = super().load(executable, signatures)
        program: Program = self.find(handle, Program, "load")
        kernels = program.library.kernels
        if len(kernels) > 1:
            self.hit()
            names = list(kernels)
            program.library.kernels = dict(zip(names, [kernels[name] for name in reversed(names)], strict=True))
        return handle


@saboteur("program", "the driver keeps 16 programs, and forgets the oldest for a new one")
class ProgramsEvicted(BrokenDriver):
    def load(self, executable: bytes, signatures: Sequence[KernelSignature]) -> Handle:
        handle = super().load(executable, signatures)
        live = [key for key, thing in self.objects.items() if isinstance(thing, Program)]
        if len(live) > 16:
            self.hit()
            super().free(live[0])
        return handle


@saboteur("program", "compile refuses a second thread while it works")
class CompileOneAtATime(BrokenAdapter):
    busy = threading.Lock()

    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        if not self.busy.acquire(blocking=False):
            self.hit()
            raise CompileError.from_log("the compiler is in use by another thread", source)
        try:
            time.sleep(0.01)
            return super().compile(target, source, entries)
        finally:
            self.busy.release()
