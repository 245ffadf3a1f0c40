"""An adapter for tests of the core: devices in host memory that notice every breach of the contract.

``configure(...)`` decides what the next opened device is like. A device with ``threads`` runs each stream on a thread,
so that ``driver.hold(stream)`` keeps everything behind it waiting until the returned event is set. Kernels are Python
functions in ``KERNELS``; the "source" that is compiled is just text.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from oarlock import dtypes
from oarlock.errors import CompileError, DeviceLostError, DeviceTimeoutError, LaunchError, OutOfMemoryError
from oarlock.hal import Adapter, BufferArgument, DeviceInfo, Driver, KernelSignature, ScalarField
from oarlock.plugin import hookimpl
from oarlock.target import Limits, Target

LIVE: list[FakeDriver] = []
"""Drivers in the order of opening."""
COMPILED: list[str] = []
"""Sources that were compiled, in order."""


def _add(arrays: list[np.ndarray], scalars: bytes) -> None:
    arrays[1][: len(arrays[0])] = arrays[0] + 1


def _fail(arrays: list[np.ndarray], scalars: bytes) -> None:
    raise LaunchError("kernel fail: injected")


KERNELS: dict[str, Any] = {"add": _add, "fail": _fail, "nothing": lambda arrays, scalars: None}


def signature(name: str, buffers: int = 0, fields: int = 0, block: tuple[int, int, int] = (1, 1, 1)) -> KernelSignature:
    """A kernel of uint8 buffers and int32 scalars."""
    arguments = tuple(BufferArgument(f"b{i}", dtypes.uint8, dtypes.uint8, "both") for i in range(buffers))
    scalars = tuple(ScalarField(f"s{i}", dtypes.int32, 4 * i) for i in range(fields))
    return KernelSignature(name, arguments, scalars, 4 * fields, block)


def load(device: Any, *signatures: KernelSignature) -> Any:
    """A loaded program with these kernels."""
    return device.load(device.compile(" ".join(item.name for item in signatures), signatures))


@dataclass
class Options:
    """What a device is like."""

    devices: int = 1
    threads: bool = False
    memory: int = 1 << 20
    limits: Limits = field(default_factory=Limits)
    compute: frozenset[str] = frozenset({"bool", "int32", "uint32", "int64", "float32", "float64", "uint8", "uint16"})
    storage: tuple[tuple[str, str], ...] = (("bool", "uint8"), ("float16", "uint16"), ("bfloat16", "uint16"))
    capabilities: frozenset[str] = frozenset()
    failure_scope: str = "stream"
    devices_error: Exception | None = None


OPTIONS = Options()


def configure(**changes: Any) -> None:
    """Set the options of devices opened from now on; what is not named has its default."""
    global OPTIONS
    OPTIONS = replace(Options(), **changes)
    if OPTIONS.threads:
        OPTIONS.capabilities |= {"streams"}


class Memory:
    """One allocation."""

    def __init__(self, nbytes: int) -> None:
        self.bytes = np.full(nbytes, 0xCD, np.uint8)


class FakeAdapter(Adapter):
    version = "7.1"

    def devices(self) -> list[DeviceInfo]:
        if OPTIONS.devices_error is not None:
            raise OPTIONS.devices_error
        target = Target("fake", compute=OPTIONS.compute, storage=OPTIONS.storage, limits=OPTIONS.limits)
        info = DeviceInfo(
            "Fake", "nobody", "fake 1", OPTIONS.memory, target, OPTIONS.capabilities, OPTIONS.failure_scope
        )
        return [info] * OPTIONS.devices

    def open(self, index: int) -> FakeDriver:
        driver = FakeDriver(OPTIONS)
        LIVE.append(driver)
        return driver

    def compile(self, target: Target, source: str, entries: Any) -> bytes:
        COMPILED.append(source)
        if "error" in source:
            raise CompileError("refused", "line 1: error", source)
        return source.encode()


class FakeStream:
    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.queue: queue.Queue[Any] = queue.Queue()
        self.idle = threading.Event()
        self.pending = 0
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None

    def submit(self, action: Any, threaded: bool) -> None:
        if not threaded:
            self.run(action)
            return
        with self.lock:
            self.pending += 1
        if self.thread is None:
            self.thread = threading.Thread(target=self.work, daemon=True)
            self.thread.start()
        self.queue.put(action)

    def work(self) -> None:
        while True:
            action = self.queue.get()
            if action is None:
                return
            self.run(action)
            with self.lock:
                self.pending -= 1

    def run(self, action: Any) -> None:
        try:
            action()
        except Exception as error:
            self.failure = self.failure or error


class FakeDriver(Driver):
    """Checks each call; ``breaches`` holds what the core did wrong, ``calls`` the methods it called."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.closed = False
        self.lost = False
        self.breaches: list[str] = []
        self.calls: list[str] = []
        self.live: set[Any] = set()
        self.used = 0
        self.streams: dict[Any, FakeStream] = {None: FakeStream()}
        self.ids = itertools.count(1)
        self.inside: int | None = None
        self.block: dict[str, threading.Event] = {}
        self.blocking = False
        self.bindings: list[Any] = []
        self.order: list[str] = []

    # --- what tests use ---

    def hold(self, stream: Any = None) -> threading.Event:
        """Keep ``stream`` (a driver's handle) from going on until the event is set."""
        release = threading.Event()
        self.streams[stream].submit(lambda: release.wait(30), True)
        return release

    def count(self, method: str) -> int:
        return self.calls.count(method)

    # --- checks ---

    def enter(self, method: str) -> None:
        me = threading.get_ident()
        if self.inside not in (None, me):
            self.breaches.append(f"{method}: two threads in the driver")
        self.inside = me
        self.calls.append(method)
        if self.closed:
            self.breaches.append(f"{method} after close")
        if self.lost:
            self.inside = None
            raise DeviceLostError("it fell off the bus")
        if method in self.block:
            self.block[method].wait(30)
        self.inside = None

    def need(self, condition: bool, text: str) -> None:
        if not condition:
            self.breaches.append(text)

    def check(self, memory: Any, offset: int, nbytes: int, what: str) -> None:
        alignment = self.options.limits.copy_alignment
        self.need(memory in self.live, f"{what}: dead handle")
        self.need(nbytes > 0, f"{what}: {nbytes} bytes")
        self.need(offset >= 0 and offset + nbytes <= len(memory.bytes), f"{what}: out of bounds")
        self.need(offset % alignment == 0 and nbytes % alignment == 0, f"{what}: not aligned: {offset}, {nbytes}")

    def submit(self, stream: Any, action: Any) -> None:
        self.need(stream in self.streams, "unknown stream")
        self.streams[stream].submit(action, self.options.threads)

    # --- the contract ---

    def close(self) -> None:
        self.enter("close")
        self.closed = True
        for stream in self.streams.values():
            stream.queue.put(None)

    def allocate(self, nbytes: int) -> Any:
        self.enter("allocate")
        self.need(nbytes > 0 and nbytes % self.options.limits.copy_alignment == 0, f"allocate {nbytes}")
        if self.used + nbytes > self.options.memory:
            raise OutOfMemoryError("no memory")
        self.used += nbytes
        memory = Memory(nbytes)
        self.live.add(memory)
        return memory

    def free(self, handle: Any) -> None:
        self.enter("free")
        self.need(handle in self.live, "free: dead handle")
        self.live.discard(handle)
        if isinstance(handle, Memory):
            self.used -= len(handle.bytes)

    def copy_in(self, stream: Any, dst: Any, dst_offset: int, src: memoryview) -> None:
        self.enter("copy_in")
        self.check(dst, dst_offset, len(src), "copy_in")
        while self.blocking and self.streams[stream].pending:
            time.sleep(0.001)
        data = np.frombuffer(bytes(src), np.uint8)
        self.submit(stream, lambda: dst.bytes.__setitem__(slice(dst_offset, dst_offset + len(data)), data))

    def copy_out(self, stream: Any, dst: memoryview, src: Any, src_offset: int) -> None:
        self.enter("copy_out")
        self.check(src, src_offset, len(dst), "copy_out")
        self.submit(
            stream, lambda: dst.__setitem__(slice(None), src.bytes[src_offset : src_offset + len(dst)].tobytes())
        )

    def copy(self, stream: Any, dst: Any, dst_offset: int, src: Any, src_offset: int, nbytes: int) -> None:
        self.enter("copy")
        self.check(dst, dst_offset, nbytes, "copy")
        self.check(src, src_offset, nbytes, "copy")
        self.need(dst is not src or abs(dst_offset - src_offset) >= nbytes, "copy: overlapping")

        def run() -> None:
            dst.bytes[dst_offset : dst_offset + nbytes] = src.bytes[src_offset : src_offset + nbytes]

        self.submit(stream, run)

    def synchronize(self, stream: Any, timeout_s: float) -> None:
        self.enter("synchronize")
        self.need(timeout_s < 1, "synchronize keeps the driver for long")
        lane = self.streams[stream]
        deadline = time.monotonic() + timeout_s
        while lane.pending:
            if time.monotonic() > deadline:
                raise DeviceTimeoutError("not done")
            time.sleep(0.0002)
        failure, lane.failure = lane.failure, None
        if failure is not None:
            raise failure

    def load(self, executable: bytes, signatures: Any) -> Any:
        self.enter("load")
        handle = (executable, next(self.ids))
        self.live.add(handle)
        return handle

    def launch(
        self, stream: Any, program: Any, entry: str, grid: Any, block: Any, buffers: Any, scalars: bytes
    ) -> None:
        self.enter("launch")
        limits = self.options.limits
        self.need(program in self.live, "launch: dead program")
        self.need(min(grid) > 0, f"launch: empty grid {grid}")
        self.bindings = list(buffers)
        arrays = []
        for memory, base, extent in buffers:
            self.need(memory in self.live, "launch: dead handle")
            self.need(base % (limits.binding_alignment or 2**62) == 0, f"launch: base {base}")
            self.need(0 < extent <= len(memory.bytes) - base, f"launch: extent {extent}")
            arrays.append(memory.bytes[base : base + extent])
        if limits.exclusive_binding:
            self.need(len({id(memory) for memory, _, _ in buffers}) == len(buffers), "launch: bound twice")
        kernel = KERNELS[entry]

        def run() -> None:
            self.order.append(entry)
            kernel(arrays, scalars)

        self.submit(stream, run)

    # --- streams ---

    def create_stream(self) -> Any:
        self.enter("create_stream")
        handle = next(self.ids)
        self.streams[handle] = FakeStream()
        return handle

    def destroy_stream(self, stream: Any) -> None:
        self.enter("destroy_stream")
        self.need(self.streams[stream].pending == 0, "destroy_stream: not synchronised")
        self.streams.pop(stream).queue.put(None)

    def record(self, stream: Any) -> Any:
        self.enter("record")
        event = threading.Event()
        self.live.add(event)
        self.submit(stream, event.set)
        return event

    def wait(self, stream: Any, event: Any) -> None:
        self.enter("wait")
        self.need(event in self.live, "wait: dead event")
        self.submit(stream, lambda: event.wait(30))

    def query(self, event: Any) -> bool:
        self.enter("query")
        self.need(event in self.live, "query: dead event")
        return bool(event.is_set())

    def destroy_event(self, event: Any) -> None:
        self.enter("destroy_event")
        self.need(event in self.live, "destroy_event: dead event")
        self.live.discard(event)

    # --- optional ---

    def fill(self, stream: Any, dst: Any, dst_offset: int, nbytes: int, byte: int) -> None:
        self.enter("fill")
        self.check(dst, dst_offset, nbytes, "fill")
        self.submit(stream, lambda: dst.bytes.__setitem__(slice(dst_offset, dst_offset + nbytes), byte))

    def call_host(self, stream: Any, function: Any) -> None:
        self.enter("call_host")
        self.submit(stream, function)

    def copy_peer(self, stream: Any, dst: Any, dst_offset: int, peer: Any, src: Any, src_offset: int, n: int) -> None:
        self.enter("copy_peer")
        self.check(dst, dst_offset, n, "copy_peer")
        peer.check(src, src_offset, n, "copy_peer")

        def run() -> None:
            dst.bytes[dst_offset : dst_offset + n] = src.bytes[src_offset : src_offset + n]

        self.submit(stream, run)

    def reset(self) -> None:
        self.calls.append("reset")
        self.lost = False

    def memory_info(self) -> tuple[int, int]:
        self.enter("memory_info")
        return self.options.memory - self.used, self.options.memory

    def prepare(self, steps: Any) -> Any:
        self.enter("prepare")
        handle = (tuple(steps), next(self.ids))
        self.live.add(handle)
        return handle

    def replay(self, stream: Any, plan: Any, bindings: Any, scalars: Any) -> None:
        self.enter("replay")
        self.need(plan in self.live, "replay: dead plan")
        for step in plan[0]:
            buffers = [(bindings[slot], base, extent) for slot, base, extent in step.buffers]
            self.launch(stream, step.program, step.entry, step.grid, step.block, buffers, step.scalars)

    def address(self, handle: Any) -> int:
        return int(handle.bytes.ctypes.data)

    def adopt(self, address: int, nbytes: int, owner: Any) -> Any:
        self.enter("adopt")
        memory = Memory(0)
        memory.bytes = np.frombuffer(owner, np.uint8)
        self.used += nbytes
        self.live.add(memory)
        return memory


@hookimpl
def oarlock_adapter() -> FakeAdapter:
    return FakeAdapter()
