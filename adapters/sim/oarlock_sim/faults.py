"""Faults on purpose: out of memory, failing and hanging launches, lost devices, streams in an adverse order.

A ``Plan`` says what goes wrong and when; counts begin at 1, with the plan. ``with plan(...) as p:`` applies one to
every simulated device of the process; ``SimAdapter(plan=Plan(...))`` to the devices that this adapter opens, which a
child process can do for itself. ``hold(driver, stream)`` stops one stream until it is released.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from oarlock.errors import CompileError, DeviceError, LaunchError, OutOfMemoryError

__all__ = ["Hold", "Interleaving", "Plan", "active", "called", "gates", "hold", "interleaving", "plan"]

_ERRORS: dict[str, type[Exception]] = {
    "allocate": OutOfMemoryError,
    "compile": CompileError,
    "launch": LaunchError,
    "load": CompileError,
    "replay": LaunchError,
}


@dataclass(eq=False)
class Plan:
    """What goes wrong, and when."""

    out_of_memory_at: int | None = None
    """This allocation is refused."""
    fail_at: Mapping[str, int] = field(default_factory=dict)
    """Method name to the number of the call that fails at once: a method of the driver, or ``devices``, ``open``,
    ``compile``. The error is the one that the contract names for it, DeviceError where it names none."""
    launch_fails_at: int | None = None
    """This launch fails when it runs, with the plan that it belongs to; ``synchronize`` tells."""
    launch_hangs_at: int | None = None
    """This launch starts only after ``hang_s``, or after ``release()``."""
    hang_s: float | None = None
    """Seconds that the hanging launch hangs; None: until ``release()``."""
    lost_at: int | None = None
    """The device is lost when this command begins to run."""
    poison: bool = False
    """Memory is filled with 0xDB when it is given out and when it is freed, so that reading it shows."""
    seed: int | None = None
    """Commands run only while the host waits, one at a time, from a stream drawn at random with this seed."""
    unordered_copies: bool = False
    """A copy overtakes what its stream has not begun, unless the stream waits for an event: a broken device."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._released = threading.Event()
        self._orders: weakref.WeakKeyDictionary[Any, Interleaving] = weakref.WeakKeyDictionary()

    def release(self) -> None:
        """Let the hanging launch go on."""
        self._released.set()

    def count(self, what: str) -> int:
        """The number of this occurrence of ``what``."""
        with self._lock:
            self._counts[what] += 1
            return self._counts[what]

    def called(self, method: str) -> None:
        """Count a call of ``method``; raises when it is to fail."""
        number = self.count(f"call {method}")
        if number == self.fail_at.get(method) or (method == "allocate" and number == self.out_of_memory_at):
            raise _ERRORS.get(method, DeviceError)(f"injected fault: call {number} of {method} fails")

    def gate(self, kernel: str) -> Callable[[], bool] | None:
        """The test of whether a submitted launch may start (None: at once); the test raises when it is to fail."""
        number = self.count("launch")
        if number == self.launch_fails_at:
            return _failing(kernel, number)
        if number == self.launch_hangs_at:
            return _Hang(self._released, self.hang_s)
        return None

    def loses(self) -> bool:
        """Count a command that begins to run; True when the device is lost with it."""
        return self.count("command") == self.lost_at

    def order(self, driver: object) -> Interleaving | None:
        """The order in which ``driver`` runs its streams, or None: they run freely."""
        if self.seed is None:
            return None
        with self._lock:
            return self._orders.setdefault(driver, Interleaving(self.seed))


def _failing(kernel: str, number: int) -> Callable[[], bool]:
    def gate() -> bool:
        raise LaunchError(f"kernel {kernel}: injected fault: launch {number} fails")

    return gate


class _Hang:
    """True once it is released, or ``seconds`` after it was first asked."""

    def __init__(self, released: threading.Event, seconds: float | None) -> None:
        self._released = released
        self._seconds = seconds
        self._began: float | None = None

    def __call__(self) -> bool:
        now = time.monotonic()
        self._began = now if self._began is None else self._began
        return self._released.is_set() or (self._seconds is not None and now - self._began >= self._seconds)


class Runnable(Protocol):
    """A stream as an Interleaving sees it."""

    def ready(self) -> bool:
        """Whether its next command could start."""
        ...


class Interleaving:
    """Which stream runs its next command: drawn at random among those that could, while the host waits for one.

    With a host of one thread the order depends on the seed alone. Every method is called with the driver's lock held.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._chosen: Runnable | None = None
        self.running: Runnable | None = None
        self.waiting = 0
        """Host threads inside ``synchronize``."""
        self.steps = 0
        """Commands that ``query`` lets run."""

    def may_run(self, stream: Runnable, streams: Sequence[Runnable]) -> bool:
        """Whether ``stream``, which is ready, is the one to go on."""
        if self.running is not None or (self.waiting == 0 and self.steps == 0):
            return False
        if self._chosen is None:
            self._chosen = self._random.choice([other for other in streams if other.ready()])
        return self._chosen is stream

    def begin(self, stream: Runnable) -> None:
        self.running, self._chosen = stream, None
        self.steps = max(0, self.steps - 1) if self.waiting == 0 else self.steps

    def end(self) -> None:
        self.running = None


_lock = threading.Lock()
_active: list[Plan] = []


@contextlib.contextmanager
def plan(**settings: Any) -> Iterator[Plan]:
    """Apply ``Plan(**settings)`` to every simulated device of this process, inside the block."""
    made = Plan(**settings)
    with _lock:
        _active.append(made)
    try:
        yield made
    finally:
        with _lock:
            _active.remove(made)
        made.release()


def active(own: Plan | None) -> list[Plan]:
    """The plans that apply to a device with the plan ``own``."""
    with _lock:
        return [*_active, own] if own is not None else list(_active)


def called(method: str, own: Plan | None) -> None:
    """Count a call in every plan; raises when one says so."""
    for each in active(own):
        each.called(method)


def gates(kernels: Sequence[str], own: Plan | None) -> Callable[[], bool] | None:
    """Count launches of ``kernels``; the test of whether they may start, or None: at once."""
    found = [gate for kernel in kernels for each in active(own) if (gate := each.gate(kernel)) is not None]
    return (lambda: all(gate() for gate in found)) if found else None


def interleaving(driver: Any, own: Plan | None) -> Interleaving | None:
    """The order that a plan puts on the streams of ``driver``."""
    orders = (each.order(driver) for each in active(own))
    return next((order for order in orders if order is not None), None)


class Hold:
    """A stream that does not go on until ``release()``; also a context manager."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def release(self) -> None:
        """Let the stream go on."""
        self.released.set()

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def hold(driver: Any, stream: Any = None) -> Hold:
    """Stop ``stream`` of a simulated ``driver`` behind the work it has: what is submitted from now on waits."""
    held = Hold()
    driver.submit(stream, "hold", ready=held.released.is_set)
    return held
