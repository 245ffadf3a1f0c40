"""A witness between the core and a driver: it sees every call, keeps the accounts of handles, and fails one on demand.

What the contract promises to an adapter, such as "never passes 0 bytes" or "has waited for all work that uses it", can
only be seen here. What a call breaks of it is kept in ``breaches``.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from oarlock.abi import KernelSignature
from oarlock.errors import DeviceTimeoutError
from oarlock.hal import Binding, Driver, Handle
from oarlock.runtime import Device
from oarlock.runtime.abilities import abilities_of

__all__ = ["Fault", "Witness", "witnessed"]

_GIVES = {
    "allocate": "memory", "adopt": "memory", "load": "program", "prepare": "plan", "create_stream": "stream",
    "record": "event",
}  # fmt: skip
_REMEMBERED = 64
_TAKES = {"free": ("memory", "program", "plan"), "destroy_stream": ("stream",), "destroy_event": ("event",)}


@dataclass(frozen=True, slots=True)
class Fault:
    """Call number ``number`` of ``method`` raises what ``error`` makes; ``after`` the driver has done it, if asked."""

    method: str
    number: int
    error: Callable[[], Exception]
    after: bool = False


class _Kept:
    """A live handle: what it is, its size in bytes, and the last use per stream."""

    __slots__ = ("handle", "kind", "nbytes", "signatures", "uses")

    def __init__(self, kind: str, handle: Handle, nbytes: int = 0) -> None:
        self.kind = kind
        self.handle = handle
        self.nbytes = nbytes
        self.uses: dict[int, int] = {}
        self.signatures: dict[str, KernelSignature] = {}


class Witness:
    """Stands for ``driver``. ``calls`` counts calls by method; ``live`` names the handles that were not taken back."""

    def __init__(self, driver: Driver, device: Device, fault: Fault | None = None) -> None:
        self.driver = driver
        self.fault = fault
        self.calls: Counter[str] = Counter()
        self.breaches: list[str] = []
        self.streams: list[tuple[str, Handle | None]] = []
        """(method, stream's handle) of the latest submissions."""
        self.fired = False
        self.closed = False
        self._limits = device.target.limits
        self._kept: dict[int, _Kept] = {}
        self._gone: dict[int, Handle] = {}
        self._busy = threading.RLock()
        self._given: Counter[int] = Counter()
        self._done: Counter[int] = Counter()
        self._marks: dict[int, tuple[int, int]] = {}

    @property
    def live(self) -> list[str]:
        """What kind of handle is alive, one word each."""
        return [kept.kind for kept in self._kept.values()]

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.driver, name)
        if not callable(method):
            return method

        def call(*arguments: Any) -> Any:
            return self._call(name, method, [a.driver if isinstance(a, Witness) else a for a in arguments])

        return call

    def _call(self, name: str, method: Callable[..., Any], arguments: list[Any]) -> Any:
        if not self._busy.acquire(blocking=False):
            self.breaches.append(f"{name} was called while another thread was in the driver")
            self._busy.acquire()
        try:
            self._expect(not self.closed, f"{name} was called after close")
            self.calls[name] += 1
            fault = self.fault
            due = fault is not None and fault.method == name and self.calls[name] == fault.number
            check = getattr(self, f"_before_{name}", None)
            if check is not None:
                check(*arguments)
            if due and fault is not None and not fault.after:
                self._note_taken(name, arguments)
                self.fired = True
                raise fault.error()
            given = self._submitted(name, arguments)
            try:
                value = method(*arguments)
            except DeviceTimeoutError:
                self.calls[name] -= 1  # a look that came too early is no call to fail
                raise
            except Exception:
                self._ended(name, arguments, given, None)
                raise
            self._ended(name, arguments, given, value)
            if due and fault is not None:
                self.fired = True
                raise fault.error()
            return value
        finally:
            self._busy.release()

    def _expect(self, condition: bool, text: str) -> None:
        if not condition:
            self.breaches.append(text)

    # --- handles ------------------------------------------------------------------------------------------------------

    def _note_taken(self, name: str, arguments: Sequence[Any]) -> None:
        if name in _TAKES:
            handle = arguments[0]
            self._kept.pop(id(handle), None)
            self._gone[id(handle)] = handle

    def _submitted(self, name: str, arguments: Sequence[Any]) -> int:
        """Count work that a call gives to a stream; the stream's count before the call, for those that wait."""
        if name in ("free", "destroy_stream", "destroy_event"):
            handle = arguments[0]
            self._expect(id(handle) not in self._gone, f"{name} was called twice for one handle")
            self._note_taken(name, arguments)
            return 0
        if name in ("copy_in", "copy_out", "copy", "fill", "launch", "replay", "wait", "call_host", "copy_peer"):
            stream = id(arguments[0])
            self._given[stream] += 1
            self.streams[:-_REMEMBERED] = []
            self.streams.append((name, arguments[0]))
            for handle in _handles(name, arguments):
                self._use(name, handle, stream)
            return self._given[stream]
        return self._given[id(arguments[0])] if name in ("synchronize", "record") else 0

    def _use(self, name: str, handle: Handle, stream: int) -> None:
        self._expect(id(handle) not in self._gone, f"{name} was given a handle that was freed")
        kept = self._kept.get(id(handle))
        if kept is not None:
            kept.uses[stream] = self._given[stream]

    def _ended(self, name: str, arguments: Sequence[Any], given: int, value: Any) -> None:
        if name == "synchronize":
            stream = id(arguments[0])
            self._done[stream] = max(self._done[stream], given)
        elif name == "query" and value is True:
            stream, ticket = self._marks.get(id(arguments[0]), (0, 0))
            self._done[stream] = max(self._done[stream], ticket)
        elif name in _GIVES and value is not None:
            kept = _Kept(_GIVES[name], value, int(arguments[0]) if name == "allocate" else 0)
            if name == "adopt":
                kept.nbytes = int(arguments[1])
            if name == "load":
                kept.signatures = {signature.name: signature for signature in arguments[1]}
            if name == "record":
                self._marks[id(value)] = (id(arguments[0]), given)
            self._gone.pop(id(value), None)
            self._kept[id(value)] = kept
        elif name == "close":
            self.closed = True

    # --- what the core promises, call by call -------------------------------------------------------------------------

    def _before_allocate(self, nbytes: int) -> None:
        self._expect(nbytes > 0, f"allocate was asked for {nbytes} bytes")
        unit = max(4, self._limits.copy_alignment)
        self._expect(nbytes % unit == 0, f"allocate was asked for {nbytes} bytes, no multiple of {unit}")
        most = self._limits.max_allocation
        self._expect(nbytes <= most, f"allocate was asked for {nbytes} bytes; max_allocation is {most}")

    def _before_free(self, handle: Handle) -> None:
        kept = self._kept.get(id(handle))
        if kept is None:
            return
        going_on = [stream for stream, ticket in kept.uses.items() if self._done[stream] < ticket]
        self._expect(not going_on, f"free of a {kept.kind} was called although its work had not been waited for")

    def _before_destroy_stream(self, stream: Handle) -> None:
        ended = self._done[id(stream)] >= self._given[id(stream)]
        self._expect(ended, "destroy_stream was called for a stream that had not been synchronised")

    def _before_copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        self._expect(isinstance(src, memoryview) and src.c_contiguous, "copy_in was given no contiguous memoryview")
        self._range("copy_in", dst, dst_offset, src.nbytes)

    def _before_copy_out(self, stream: Handle | None, dst: memoryview, src: Handle, src_offset: int) -> None:
        good = isinstance(dst, memoryview) and dst.c_contiguous and not dst.readonly
        self._expect(good, "copy_out was given no writable contiguous memoryview")
        self._range("copy_out", src, src_offset, dst.nbytes)

    def _before_copy(
        self, stream: Handle | None, dst: Handle, dst_offset: int, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        self._range("copy", dst, dst_offset, nbytes)
        self._range("copy", src, src_offset, nbytes)
        apart = dst is not src or abs(dst_offset - src_offset) >= nbytes
        self._expect(apart, "copy was given ranges of one allocation that overlap")

    def _before_fill(self, stream: Handle | None, dst: Handle, dst_offset: int, nbytes: int, byte: int) -> None:
        self._range("fill", dst, dst_offset, nbytes)
        self._expect(0 <= byte <= 255, f"fill was given {byte}, which is no byte")

    def _range(self, what: str, handle: Handle, offset: int, nbytes: int) -> None:
        self._expect(nbytes > 0, f"{what} was given {nbytes} bytes")
        alignment = self._limits.copy_alignment
        aligned = offset % alignment == 0 and nbytes % alignment == 0
        self._expect(aligned, f"{what}: offset {offset} or {nbytes} bytes is no multiple of {alignment}")
        kept = self._kept.get(id(handle))
        if kept is not None:
            inside = offset >= 0 and offset + nbytes <= kept.nbytes
            self._expect(inside, f"{what}: bytes {offset}..{offset + nbytes} leave an allocation of {kept.nbytes}")

    def _before_launch(
        self,
        stream: Handle | None,
        program: Handle,
        entry: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        buffers: Sequence[Binding],
        scalars: bytes,
    ) -> None:
        most = self._limits.max_grid
        inside = all(1 <= size <= limit for size, limit in zip(grid, most, strict=True))
        self._expect(inside, f"launch was given grid {grid}; max_grid is {most}, and none is empty")
        kept = self._kept.get(id(program))
        if kept is not None:
            signature = kept.signatures.get(entry)
            if signature is None:
                self.breaches.append(f"launch of {entry}, which the program does not have")
            else:
                self._expect(block == signature.block, f"launch was given block {block}, not {signature.block}")
                self._expect(len(scalars) == signature.scalar_bytes, "launch was given scalars of another length")
                self._expect(len(buffers) == len(signature.buffers), "launch was given another number of buffers")
        for handle, base, extent in buffers:
            self._binding(handle, base, extent)
        if self._limits.exclusive_binding:
            alone = len({id(handle) for handle, _, _ in buffers}) == len(buffers)
            self._expect(alone, "launch was given one allocation twice, against exclusive_binding")

    def _binding(self, handle: Handle, base: int, extent: int) -> None:
        alignment = self._limits.binding_alignment
        aligned = base % alignment == 0 if alignment else base == 0
        self._expect(aligned, f"launch was given base {base}; binding_alignment is {alignment}")
        self._expect(0 < extent <= self._limits.max_binding, f"launch was given an extent of {extent} bytes")
        unit = max(4, self._limits.copy_alignment)
        self._expect(extent % unit == 0, f"launch was given an extent of {extent} bytes, no multiple of {unit}")
        kept = self._kept.get(id(handle))
        if kept is not None:
            inside = base >= 0 and base + extent <= kept.nbytes
            self._expect(inside, f"launch: bytes {base}..{base + extent} leave an allocation of {kept.nbytes}")


def _handles(name: str, arguments: Sequence[Any]) -> list[Handle]:
    """The memory and programs that a submission uses."""
    if name == "copy_in" or name == "fill":
        return [arguments[1]]
    if name == "copy_out":
        return [arguments[2]]
    if name == "copy":
        return [arguments[1], arguments[3]]
    if name == "launch":
        return [arguments[1], *(handle for handle, _, _ in arguments[5])]
    if name == "replay":
        return [arguments[1], *arguments[2]]
    if name == "copy_peer":
        return [arguments[1]]
    return []


@contextmanager
def witnessed(device: Device, fault: Fault | None = None) -> Iterator[Witness]:
    """Put a Witness between ``device`` and its driver inside the block."""
    driver, can = device.driver, device.can
    witness = Witness(driver, device, fault)
    device.driver = cast("Driver", witness)
    device.can = abilities_of(device.driver, device.info.capabilities)
    try:
        yield witness
    finally:
        device.driver, device.can = driver, can
