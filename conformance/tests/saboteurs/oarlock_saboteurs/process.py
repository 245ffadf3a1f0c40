"""Faults that only a process of its own can survive: crashes, hangs, noise, and what is left at the end."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from collections.abc import Sequence

from oarlock.hal import Binding, Driver, Handle
from oarlock_saboteurs import BrokenAdapter, BrokenDriver, saboteur

Grid = tuple[int, int, int]


@saboteur("process", "a launch of 257 blocks crashes")
class Crashes(BrokenDriver):
    def launch(
        self, stream: Handle | None, program: Handle, entry: str, grid: Grid, block: Grid,
        buffers: Sequence[Binding], scalars: bytes,
    ) -> None:  # fmt: skip
        if grid[0] == 257:
            os.kill(os.getpid(), signal.SIGSEGV)
        super().launch(stream, program, entry, grid, block, buffers, scalars)


@saboteur("process", "an empty-looking launch of 257 blocks never returns")
class Hangs(BrokenDriver):
    def launch(
        self, stream: Handle | None, program: Handle, entry: str, grid: Grid, block: Grid,
        buffers: Sequence[Binding], scalars: bytes,
    ) -> None:  # fmt: skip
        while grid[0] == 257:
            time.sleep(1)
        super().launch(stream, program, entry, grid, block, buffers, scalars)


@saboteur("process", "the driver prints when it is closed")
class Talks(BrokenDriver):
    def close(self) -> None:
        print("acme: 3 buffers in use at close", file=sys.stderr, flush=True)
        super().close()


@saboteur("process", "the process ends with a bad status")
class EndsBadly(BrokenAdapter):
    def open(self, index: int) -> Driver:
        atexit.register(os._exit, 3)
        return super().open(index)
