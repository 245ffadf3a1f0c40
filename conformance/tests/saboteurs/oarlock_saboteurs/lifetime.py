"""Faults of opening, closing, reopening, threads and processes."""

from __future__ import annotations

import sys
import threading
from typing import Any, ClassVar

from oarlock.errors import DeviceError
from oarlock.hal import Driver, Handle
from oarlock_saboteurs import BrokenAdapter, BrokenDriver, saboteur
from oarlock_saboteurs.bases import Pair
from oarlock_sim.memory import Allocation


@saboteur("life", "a device that was closed cannot be opened again")
class ReopenFails(BrokenAdapter):
    opened = 0

    def open(self, index: int) -> Driver:
        self.opened += 1
        if self.opened > 1:
            self.hit()
            raise DeviceError("the context exists already")
        return super().open(index)


@saboteur("life", "a device that is opened again counts the memory of its former life as in use")
class ReopenKeepsMemory(BrokenAdapter):
    class Remembering(BrokenDriver):
        former: ClassVar[int] = 0

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            if self.former:
                self.hit()
                self.used = self.former

        def close(self) -> None:
            type(self).former = max(self.used, 1 << 20)
            super().close()

    driver = Remembering


@saboteur("life", "close fails while buffers are alive")
class CloseRefuses(BrokenDriver):
    def close(self) -> None:
        live = any(isinstance(thing, Allocation) for thing in self.objects.values())
        super().close()
        if live:
            self.hit()
            raise DeviceError("3 buffers are still in use")


@saboteur("life", "close waits for ever when a stream has work")
class CloseHangs(BrokenDriver):
    def close(self) -> None:
        if any(not lane.idle for lane in self.lanes.values()):
            self.hit()
            threading.Event().wait()
        super().close()


@saboteur("life", "close is refused when streams are alive, and says so on standard error")
class CloseComplains(BrokenDriver):
    def close(self) -> None:
        if len(self.lanes) > 1:
            self.hit()
            print("acme: a context with live streams was destroyed", file=sys.stderr, flush=True)
        super().close()


@saboteur("life", "the driver starts a thread that keeps the process from ending")
class ThreadStays(BrokenAdapter):
    def open(self, index: int) -> Driver:
        self.hit()
        threading.Thread(target=threading.Event().wait, name="acme-poller").start()
        return super().open(index)


@saboteur("thread", "the driver works in the thread that opened it alone")
class ThreadBound(BrokenDriver):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.owner = threading.get_ident()

    def allocate(self, nbytes: int) -> Handle:
        self._check_thread()
        return super().allocate(nbytes)

    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        self._check_thread()
        super().copy_in(stream, dst, dst_offset, src)

    def _check_thread(self) -> None:
        if threading.get_ident() != self.owner:
            self.hit()
            raise DeviceError("no context is current in this thread")


@saboteur("thread", "the current stream belongs to the thread that used it last")
class ThreadMovesStreams(BrokenDriver):
    def submit(self, stream: Handle | None, name: str, *rest: Any, **more: Any) -> None:
        mine: dict[int, Any] = self.__dict__.setdefault("mine", {})
        thread = threading.get_ident()
        first = mine.setdefault(thread, stream)
        if first != stream and first in self.lanes and name.startswith("kernel"):
            self.hit()
            stream = first
        super().submit(stream, name, *rest, **more)


@saboteur("devices", "opening the second device opens the first one's driver", Pair)
class SecondDeviceIsFirst(BrokenDriver):
    first: ClassVar[SecondDeviceIsFirst | None] = None

    def __init__(self, info: Any, plan: Any) -> None:
        super().__init__(info, plan)
        cls = type(self)
        if cls.first is None or cls.first.closed:
            cls.first = self
        elif info.name != cls.first.info.name:
            self.hit()
            self.objects, self.lanes, self.serial = cls.first.objects, cls.first.lanes, cls.first.serial

    def allocate(self, nbytes: int) -> Handle:
        handle = super().allocate(nbytes)
        first = type(self).first
        if first is not None and first is not self:
            first.used += nbytes
            self.used -= nbytes
        return handle
