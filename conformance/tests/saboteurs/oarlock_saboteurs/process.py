"""Faults that only a process of its own can survive, and those that depend on which process it is."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time

from oarlock.hal import Driver, LaunchStep
from oarlock_saboteurs import BrokenAdapter, BrokenDriver, saboteur
from oarlock_saboteurs.launching import Relaunching

SUITES = ("pytest", "oarlock_conformance")


@saboteur("process", "a launch of 257 blocks crashes")
class Crashes(BrokenDriver):
    def _run(self, step: LaunchStep) -> None:
        if step.grid[0] == 257:
            self.hit()
            os.kill(os.getpid(), signal.SIGSEGV)
        super()._run(step)


@saboteur("process", "giving a launch of 257 blocks never returns")
class Hangs(BrokenDriver):
    def _check_launch(self, step: LaunchStep) -> None:
        while step.grid[0] == 257:
            self.hit()
            time.sleep(1)
        super()._check_launch(step)


@saboteur("process", "the driver prints when it is closed")
class Talks(BrokenDriver):
    def close(self) -> None:
        self.hit()
        print("acme: 3 buffers in use at close", file=sys.stderr, flush=True)
        super().close()


@saboteur("process", "the process ends with a bad status")
class EndsBadly(BrokenAdapter):
    def open(self, index: int) -> Driver:
        self.hit()
        atexit.register(os._exit, 3)
        return super().open(index)


@saboteur("process", "the process crashes when it ends")
class CrashesAtExit(BrokenAdapter):
    def open(self, index: int) -> Driver:
        self.hit()
        atexit.register(os.kill, os.getpid(), signal.SIGABRT)
        return super().open(index)


@saboteur("process", "kernels run where a test suite is loaded, and nowhere else")
class NoticesTheSuite(Relaunching):
    def changed(self, step: LaunchStep) -> LaunchStep | None:
        return step if any(name in sys.modules for name in SUITES) else None
