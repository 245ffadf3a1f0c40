"""The gate in front of a driver: one thread at a time, a deadline per call, and one place that refuses further use."""

from __future__ import annotations

import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from oarlock.config import config
from oarlock.errors import (
    ClosedError,
    DeviceError,
    DeviceLostError,
    DeviceTimeoutError,
    ForkedProcessError,
    OarlockError,
    OutOfMemoryError,
)
from oarlock.runtime.checks import hint_for

__all__ = ["Gate", "all_gates"]

T = TypeVar("T")

_CORE = str(Path(__file__).parent.parent)
_now = time.monotonic
_gates: weakref.WeakSet[Gate] = weakref.WeakSet()
_watching = threading.Lock()
_monitor: threading.Thread | None = None


def all_gates() -> list[Gate]:
    """The gates of every device of this process that is still referenced."""
    return list(_gates)


class Gate:
    """Serialises the calls of one driver and watches their time.

    ``refusal`` is None while the device can be used; afterwards it makes the exception that every use raises: the
    device is closed, lost, or belongs to the parent of a forked process. A caller that hangs in the driver cannot be
    interrupted; when its deadline passes the device is lost, so that every other thread gets an error at once, and
    so does the caller if it ever returns.
    """

    __slots__ = (
        "__weakref__", "_depth", "_lock", "_outside", "_started", "_what", "closed", "device", "is_forked",
        "refusal", "waiters",
    )  # fmt: skip

    def __init__(self, device: str) -> None:
        self.device = device
        self.refusal: Callable[[], OarlockError] | None = None
        self.closed = False
        self.is_forked = False
        self.waiters = 0
        self._lock = threading.RLock()
        self._depth = 0
        self._started = 0.0
        self._what = ""
        self._outside: dict[object, tuple[str, float]] = {}
        _gates.add(self)
        _start_monitor()

    def enter(self, what: str) -> None:
        """Take the driver for this thread, for a call described by ``what``. Pair with ``leave`` in a ``finally``."""
        if self.refusal is not None:
            raise self.refusal()
        if not self._lock.acquire(False):
            self._contend()
        if self.refusal is not None:
            self._lock.release()
            raise self.refusal()
        self._depth += 1
        self._what = what
        self._started = _now()

    def leave(self) -> None:
        """Give the driver back."""
        self._depth -= 1
        if not self._depth:
            self._started = 0.0
        self._lock.release()

    def check(self) -> None:
        """Raise if the device was refused meanwhile, as by the watchdog during a call that then returned."""
        if self.refusal is not None:
            raise self.refusal()

    def call(self, what: str, function: Callable[..., T], *arguments: Any) -> T:
        """``function(*arguments)`` through the gate, its errors explained."""
        self.enter(what)
        try:
            value = function(*arguments)
            self.expire(time.monotonic())  # the monitor may have slept past it
        except Exception as error:
            explained = self.explain(what, error)
            raise explained from (error if explained is not error else error.__cause__)
        finally:
            self.leave()
        self.check()
        return value

    @contextmanager
    def watched(self, what: str) -> Iterator[None]:
        """Watch the time of a call that needs no driver, such as ``compile``, and explain its errors."""
        self.check()
        key = object()
        self._outside[key] = (what, time.monotonic())
        try:
            yield
            self.expire(time.monotonic())
        except Exception as error:
            explained = self.explain(what, error)
            raise explained from (error if explained is not error else error.__cause__)
        finally:
            del self._outside[key]
        self.check()

    def try_enter(self, timeout_s: float) -> bool:
        """Take the driver even when it is refused, unless another thread keeps it for ``timeout_s``."""
        taken = self._lock.acquire(timeout=timeout_s)
        self._depth += taken
        return taken

    def explain(self, what: str, error: Exception) -> Exception:
        """``error`` with the device's name in front; what is no OarlockError becomes a DeviceError that caused it."""
        if isinstance(error, MemoryError) and not isinstance(error, OutOfMemoryError):
            return OutOfMemoryError(f"{self.device}: {what}: {error or 'out of memory'}")
        if not isinstance(error, OarlockError):
            text = f"{self.device}: {what} failed: {type(error).__name__}: {error}"
            return DeviceError(f"{text}{_raised_from(error)}; {hint_for(error)}")
        text = str(error)
        if not text.startswith(self.device):
            error.args = (f"{self.device}: {text}", *error.args[1:])
        if isinstance(error, DeviceLostError):
            self.lose(error)
        return error

    def lose(self, error: DeviceLostError) -> None:
        """Mark the device lost: every use from now on raises an error of the same type and text."""
        if self.refusal is None:
            kind, text = type(error), str(error)
            self.refusal = lambda: kind(text)

    def close(self) -> None:
        """Refuse every use because the device was closed. A lost device goes on saying how it was lost."""
        name = self.device
        self.closed = True
        if self.refusal is None:
            self.refusal = lambda: ClosedError(f'{name} is closed; open it again with open_device("{name}")')

    def forked(self) -> None:
        """Refuse every use because this process is a forked child of the one that opened the device."""
        name = self.device
        self.is_forked = True
        self.refusal = lambda: ForkedProcessError(
            f'{name} was opened before fork() and cannot be used in the child; start workers with the "spawn" method, '
            f"or open devices only in the child"
        )

    def expire(self, now: float) -> None:
        """Called by the monitor: lose the device when the call in progress has passed its deadline."""
        deadline = config.watchdog_s
        if deadline <= 0 or self.refusal is not None:
            return
        for what, started in [(self._what, self._started), *self._outside.copy().values()]:
            if started and now - started > deadline:
                self.lose(self.late(what, deadline))
                return

    def late(self, what: str, deadline_s: float) -> DeviceTimeoutError:
        """The error of a call that passed its deadline."""
        return DeviceTimeoutError(
            f"{self.device}: {what} passed its deadline of {deadline_s:g} s; the device is lost until it is opened "
            f"again (OARLOCK_WATCHDOG_S sets the deadline)"
        )

    def _contend(self) -> None:
        """Wait for the driver, but not for one that was lost in another thread's hands."""
        self.waiters += 1
        try:
            while not self._lock.acquire(timeout=0.05):
                self.check()
        finally:
            self.waiters -= 1


def _raised_from(error: Exception) -> str:
    """``, raised from FILE:LINE``: the innermost place that is no part of the core."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if not frame.filename.startswith(_CORE)]
    return f", raised from {outside[-1].filename}:{outside[-1].lineno}" if outside else ""


def _start_monitor() -> None:
    global _monitor
    with _watching:
        if _monitor is None or not _monitor.is_alive():
            _monitor = threading.Thread(target=_watch, name="oarlock-watchdog", daemon=True)
            _monitor.start()


def _watch() -> None:
    while True:
        time.sleep(min(1.0, max(0.02, config.watchdog_s / 4)) if config.watchdog_s > 0 else 1.0)
        now = time.monotonic()
        for gate in all_gates():
            gate.expire(now)


def after_fork() -> None:
    """In a forked child: refuse every device of the parent, and forget the thread that does not exist here."""
    global _monitor, _watching
    _watching = threading.Lock()
    _monitor = None
    for gate in all_gates():
        gate.forked()
