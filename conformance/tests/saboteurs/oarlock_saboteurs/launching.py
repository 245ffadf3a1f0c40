"""Faults of launches, programs and plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oarlock.abi import KernelSignature
from oarlock.errors import CompileError
from oarlock.hal import Binding, Handle
from oarlock.target import Target
from oarlock_saboteurs import BrokenAdapter, BrokenDriver, saboteur

Grid = tuple[int, int, int]


@saboteur("launch", "the last block of a row of more than 64 is not run")
class LastBlockSkipped(BrokenDriver):
    def launch(
        self, stream: Handle | None, program: Handle, entry: str, grid: Grid, block: Grid,
        buffers: Sequence[Binding], scalars: bytes,
    ) -> None:  # fmt: skip
        if grid[0] > 64:
            grid = (grid[0] - 1, grid[1], grid[2])
        super().launch(stream, program, entry, grid, block, buffers, scalars)


@saboteur("launch", "the y and z sizes of a grid are exchanged")
class GridAxesSwapped(BrokenDriver):
    def launch(
        self, stream: Handle | None, program: Handle, entry: str, grid: Grid, block: Grid,
        buffers: Sequence[Binding], scalars: bytes,
    ) -> None:  # fmt: skip
        super().launch(stream, program, entry, (grid[0], grid[2], grid[1]), block, buffers, scalars)


@saboteur("launch", "scalars of a kernel's first launch are used for ever")
class ScalarsStale(BrokenDriver):
    def launch(
        self, stream: Handle | None, program: Handle, entry: str, grid: Grid, block: Grid,
        buffers: Sequence[Binding], scalars: bytes,
    ) -> None:  # fmt: skip
        seen: dict[Any, bytes] = self.__dict__.setdefault("seen", {})
        super().launch(stream, program, entry, grid, block, buffers, seen.setdefault((program, entry), scalars))


@saboteur("launch", "a buffer in ninth place or later is bound to the first one's memory")
class NinthBufferLost(BrokenDriver):
    def launch(
        self, stream: Handle | None, program: Handle, entry: str, grid: Grid, block: Grid,
        buffers: Sequence[Binding], scalars: bytes,
    ) -> None:  # fmt: skip
        few = [*buffers[:8], *(buffers[0] for _ in buffers[8:])]
        super().launch(stream, program, entry, grid, block, few, scalars)


@saboteur("launch", "every fiftieth launch is dropped")
class LaunchDropped(BrokenDriver):
    number = 0

    def launch(
        self, stream: Handle | None, program: Handle, entry: str, grid: Grid, block: Grid,
        buffers: Sequence[Binding], scalars: bytes,
    ) -> None:  # fmt: skip
        self.number += 1
        if self.number % 50:
            super().launch(stream, program, entry, grid, block, buffers, scalars)


@saboteur("program", "a program is taken for an older one whose kernels have the same names")
class ProgramStale(BrokenDriver):
    def load(self, executable: bytes, signatures: Sequence[KernelSignature]) -> Handle:
        known: dict[tuple[str, ...], bytes] = self.__dict__.setdefault("known", {})
        key = tuple(sorted(signature.name for signature in signatures))
        return super().load(known.setdefault(key[:1], executable), signatures)


@saboteur("program", "a bad source raises CompileError without a log")
class LogLost(BrokenAdapter):
    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        try:
            return super().compile(target, source, entries)
        except CompileError:
            raise CompileError("it does not compile") from None


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
                    super().free(twin)
                twins.clear()
                break
        super().free(handle)


@saboteur("plan", "replay forgets the scalars that it is given")
class ReplayForgetsScalars(BrokenDriver):
    def replay(
        self, stream: Handle | None, plan: Handle, bindings: Sequence[Handle], scalars: Sequence[tuple[int, int, bytes]]
    ) -> None:
        super().replay(stream, plan, bindings, ())


@saboteur("plan", "replay keeps the memory of its first run")
class ReplayKeepsBindings(BrokenDriver):
    def replay(
        self, stream: Handle | None, plan: Handle, bindings: Sequence[Handle], scalars: Sequence[tuple[int, int, bytes]]
    ) -> None:
        first: dict[Handle, list[Handle]] = self.__dict__.setdefault("first", {})
        super().replay(stream, plan, first.setdefault(plan, list(bindings)), scalars)
