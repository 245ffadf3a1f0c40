"""Streams: in-order lanes of work, asynchronous to the host. Order across streams comes from events alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from oarlock.hal.memory import Handle

__all__ = ["ElapsedTime", "HostCallbacks", "StreamDriver", "Streams"]


class StreamDriver(ABC):
    """The stream part of a driver. Every driver has the one in-order stream ``None``."""

    @abstractmethod
    def synchronize(self, stream: Handle | None, timeout_s: float) -> None:
        """Wait until all work given to ``stream`` is done, polling, for at most ``timeout_s`` seconds.

        Raises the first failure of any command on the stream since the last call: LaunchError naming the kernel, or
        DeviceLostError. Raises DeviceTimeoutError when the deadline passes; that alone spoils nothing and forgets no
        failure: the core waits in slices of a few milliseconds, so that other threads get a turn at the driver.
        """


class Streams(Protocol):
    """Capability ``streams``: all of these or none."""

    def create_stream(self) -> Handle:
        """A new stream, distinct from every live one and from ``None``. Owned by the core until ``destroy_stream``."""
        ...

    def destroy_stream(self, stream: Handle) -> None:
        """Give a stream back, once. The core has synchronised it; its events may live on."""
        ...

    def record(self, stream: Handle | None) -> Handle:
        """An event that completes when all work given to ``stream`` so far is done; returns at once.

        Owned by the core until ``destroy_event``. What is given to the stream later does not change it.
        """
        ...

    def wait(self, stream: Handle | None, event: Handle) -> None:
        """Work given to ``stream`` from now on starts after ``event``; returns at once.

        A failed command before ``event`` is a failure of ``stream`` too, for its data is not what it waited for.
        """
        ...

    def query(self, event: Handle) -> bool:
        """Whether ``event`` is complete; returns at once. A failed command completes too. True stays true."""
        ...

    def destroy_event(self, event: Handle) -> None:
        """Give an event back, once, complete or not; pending waits on it stay valid."""
        ...


class ElapsedTime(Protocol):
    """Capability ``elapsed_time``."""

    def elapsed(self, start: Handle, end: Handle) -> float:
        """Seconds of device time between two completed events of one device; never negative in a stream's order."""
        ...


class HostCallbacks(Protocol):
    """Capability ``host_callbacks``."""

    def call_host(self, stream: Handle | None, function: Callable[[], None]) -> None:
        """Call ``function`` on the host, in stream order, from a thread that may use the driver; returns at once.

        It may give work to any stream: hold no lock of the driver's while it runs.
        When it raises, that is a failed command of ``stream``: ``synchronize`` tells its text. (What users give is
        wrapped by the core and does not raise.)
        """
        ...
