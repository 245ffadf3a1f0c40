"""An open device: allocation, copies, programs, launches and waiting, with all policy that adapters need not write."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, cast

from oarlock.abi import Executable, KernelSignature
from oarlock.errors import (
    BoundsError,
    ClosedError,
    DeviceError,
    DeviceLostError,
    DeviceTimeoutError,
    OarlockError,
    UnsupportedError,
)
from oarlock.hal import Adapter, Addressable, Binding, DeviceInfo, Driver, ElapsedTime, Fill, Handle, Streams
from oarlock.runtime import copies
from oarlock.runtime.cache import cached_compile
from oarlock.runtime.memory import Allocation, Buffer, split_offset
from oarlock.runtime.pool import MemoryPool
from oarlock.runtime.program import Program
from oarlock.runtime.retired import Retired
from oarlock.runtime.stream import Stream, check_stream, current_stream
from oarlock.runtime.watchdog import Gate

if TYPE_CHECKING:
    from oarlock.runtime.copies import HostData

__all__ = ["Counts", "Device", "Stats"]

NULL_BYTES = 256
"""Size of the buffer that stands for an empty operand."""


@dataclass(slots=True)
class Counts:
    """Running counts of one device."""

    programs: int = 0
    streams: int = 0
    events: int = 0
    plans: int = 0
    launches: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """What a device holds now (handles by kind, bytes), and what it has done since it was opened."""

    buffers: int
    programs: int
    streams: int
    events: int
    plans: int
    bytes_in_use: int
    bytes_idle: int
    bytes_peak: int
    launches: int
    bytes_in: int
    bytes_out: int


class _Using:
    """Holds the driver for one submission or query on a stream, and explains what goes wrong in it."""

    __slots__ = ("_gate", "_what")

    def __init__(self, gate: Gate, what: str) -> None:
        self._gate = gate
        self._what = what

    def __enter__(self) -> None:
        self._gate.enter(self._what)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(error, Exception):
                explained = self._gate.explain(self._what, error)
                if explained is not error:
                    raise explained from (explained.__cause__ or error)
            elif error is None:
                self._gate.check()
        finally:
            self._gate.leave()


class Device:
    """One open device, written ``name:index``. ``open_device`` makes it; there is one per name and process.

    Safe from several threads. Methods with a ``stream`` take the current stream of the context for None. Sizes and
    offsets are bytes.
    """

    def __init__(self, name: str, adapter_name: str, index: int, adapter: Adapter, info: DeviceInfo) -> None:
        self.name = name
        self.adapter_name = adapter_name
        self.index = index
        self.adapter = adapter
        self.info = info
        self.target = info.target
        self.gate = Gate(name)
        self.driver: Driver = self.gate.call("open", adapter.open, index)
        has = info.capabilities
        self.streams = cast("Streams", self.driver) if "streams" in has else None
        self.filler = cast("Fill", self.driver) if "fill" in has else None
        self.elapsed_time = cast("ElapsedTime", self.driver) if "elapsed_time" in has else None
        self.addressable = cast("Addressable", self.driver) if "address" in has else None
        self.default_stream = Stream(self, None)
        self.counts = Counts()
        self.pool = MemoryPool(self)
        self.edges = threading.RLock()
        self.dropped: deque[Allocation | Retired] = deque()
        self._retired: list[Retired] = []
        self._adopted: list[Allocation] = []
        self._orphan: OarlockError | None = None
        self._empty: list[Allocation] = []
        self._lanes: weakref.WeakSet[Stream] = weakref.WeakSet((self.default_stream,))

    # --- memory ---

    def allocate(self, nbytes: int, *, label: str = "", stream: Stream | None = None) -> Buffer:
        """A buffer of ``nbytes``; content undefined. ``label`` names it in out-of-memory errors.

        ``stream`` is the one that will use it first (any may). Raises OutOfMemoryError after idle memory was
        released and the driver asked again.
        """
        if nbytes < 0:
            raise BoundsError(f"{self.name}: cannot allocate {nbytes} bytes")
        lane = check_stream(self, stream)
        self.collect()
        if nbytes == 0:
            return Buffer(self, self.null(0), 0, label)
        with self.using("allocate"):
            allocation = self.pool.take(nbytes, lane, label)
        if allocation is None:
            self._settle_all()
            self.collect()
            with self.using("allocate"):
                self.pool.release()
                allocation = self.pool.take_last(nbytes, label)
        return Buffer(self, allocation, nbytes, label)

    def copy_in(self, buffer: Buffer, offset: int, source: HostData, stream: Stream | None = None) -> None:
        """Copy host bytes to ``buffer`` at ``offset``, in stream order; ``source`` may be reused on return.

        A source with strides is copied in row-major order.
        """
        copies.copy_in(self, buffer, offset, source, stream)

    def copy_out(self, destination: HostData, buffer: Buffer, offset: int, stream: Stream | None = None) -> None:
        """Copy bytes from ``offset`` of ``buffer`` to the host, in stream order; readable after synchronising."""
        copies.copy_out(self, destination, buffer, offset, stream)

    def copy(
        self, dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, nbytes: int, stream: Stream | None = None
    ) -> None:
        """Copy within the device, in stream order. The ranges may overlap."""
        copies.copy(self, dst, dst_offset, src, src_offset, nbytes, stream)

    def fill(self, buffer: Buffer, offset: int, nbytes: int, byte: int, stream: Stream | None = None) -> None:
        """Set ``nbytes`` bytes from ``offset`` to ``byte``, in stream order."""
        copies.fill(self, buffer, offset, nbytes, byte, stream)

    def split_offset(self, byte_offset: int, itemsize: int) -> tuple[int, int]:
        """(base of the binding in bytes, element offset for the scalar block) of an operand; see ``split_offset``."""
        return split_offset(byte_offset, itemsize, self.target.limits)

    def trim(self) -> int:
        """Give idle memory back to the driver; returns the bytes given back."""
        self._settle_all()
        self.collect()
        with self.using("free"):
            return self.pool.release()

    def set_memory_budget(self, nbytes: int | None) -> None:
        """Let live and idle memory take at most ``nbytes`` together (None: what the device has)."""
        with self.using("allocate"):
            self.pool.budget = nbytes

    # --- programs ---

    def compile(self, source: str, signatures: Sequence[KernelSignature]) -> Executable:
        """Compile kernels for this device, or take them from the cache. Raises CompileError with the log."""
        self.gate.check()
        try:
            return cached_compile(self, source, signatures)
        except Exception as error:
            raise self.gate.explain("compile", error) from error.__cause__

    def load(self, executable: Executable) -> Program:
        """Load compiled kernels."""
        self.collect()
        with self.using("load"):
            handle = self.driver.load(executable.payload, executable.signatures)
            self.counts.programs += 1
        return Program(self, handle, executable)

    def launch(
        self,
        program: Program,
        entry: str,
        grid: tuple[int, int, int],
        buffers: Sequence[tuple[Buffer, int]],
        scalars: bytes = b"",
        stream: Stream | None = None,
    ) -> None:
        """Give one launch of kernel ``entry`` to a stream: ``grid`` blocks of the block its signature states.

        ``buffers`` are (buffer, byte offset): the binding's base is the offset rounded down to
        ``binding_alignment`` (0 where there is none), and the rest must be in ``scalars`` as an element offset (see
        ``split_offset``). An empty grid does nothing. A failure that shows later comes from the next wait.
        """
        signature = program.signatures.get(entry)
        if signature is None:
            raise DeviceError(f"{self.name}: no kernel {entry}; the program has {', '.join(program.signatures)}")
        if not self._fits(signature, grid, len(buffers), len(scalars)):
            return
        lane = current_stream(self) if stream is None else check_stream(self, stream)
        gate = self.gate
        gate.enter(entry)
        try:
            lane.ticket = ticket = lane.ticket + 1
            bindings = self._bind(signature, buffers, lane, ticket)
            program.uses[lane] = ticket
            self.driver.launch(lane.handle, program.handle, entry, grid, signature.block, bindings, scalars)
            self.counts.launches += 1
        except Exception as error:
            raise gate.explain(f"launch of {entry}", error) from error.__cause__
        finally:
            gate.leave()
        if gate.refusal is not None:
            raise gate.refusal()

    # --- order ---

    @property
    def current_stream(self) -> Stream:
        """The stream that work goes to in this context."""
        return current_stream(self)

    def create_stream(self) -> Stream:
        """A new stream; raises UnsupportedError where the device has the default stream alone."""
        if self.streams is None:
            raise UnsupportedError(f"{self.name} has no streams to create; its work runs in order on the default one")
        self.collect()
        handle = self.gate.call("create_stream", self.streams.create_stream)
        self.counts.streams += 1
        lane = Stream(self, handle)
        self._lanes.add(lane)
        return lane

    def synchronize(self, stream: Stream | None = None) -> None:
        """Wait for ``stream``, or for all streams of the device for None; raises the first failure since the last wait.

        Raises DeviceTimeoutError past the watchdog's deadline, and DeviceLostError.
        """
        if stream is not None:
            check_stream(self, stream).synchronize()
            return
        self._settle_all()
        self.collect()
        failure, self._orphan = self._orphan, None
        for lane in self._live_lanes():
            failure = failure or lane.failure
            lane.failure = None
        if failure is not None:
            raise failure

    # --- life ---

    def stats(self) -> Stats:
        """Live handles by kind, bytes, and running counts. Dropped objects are given back first."""
        self.collect()
        counts, pool = self.counts, self.pool
        return Stats(
            buffers=len(pool.live) + len(self._adopted),
            programs=counts.programs,
            streams=counts.streams,
            events=counts.events,
            plans=counts.plans,
            bytes_in_use=pool.in_use,
            bytes_idle=pool.idle,
            bytes_peak=pool.peak,
            launches=counts.launches,
            bytes_in=counts.bytes_in,
            bytes_out=counts.bytes_out,
        )

    @property
    def usable(self) -> bool:
        """False once it is closed, lost, or seen from a forked child."""
        return self.gate.refusal is None

    def close(self) -> None:
        """Close it; live buffers, programs, streams and events die with it. Again does nothing.

        A device that hangs in another thread's call is left behind, not waited for.
        """
        gate = self.gate
        if gate.closed or gate.is_forked:
            return
        lost = gate.refusal is not None
        if not gate.try_enter(0.2 if lost else 10.0):
            gate.close()
            return
        try:
            if not gate.closed:
                gate.close()
                self._close_driver(lost)
        finally:
            gate.leave()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Device {self.name} {self.info.name}>"

    # --- for the runtime ---

    def using(self, what: str, lane: Stream | None = None) -> _Using:
        """``with device.using("copy_in", stream):`` holds the driver for one call."""
        if lane is not None and lane.closed:
            raise ClosedError(f"{self.name}: a closed stream is used ({what})")
        return _Using(self.gate, what)

    def check_owner(self, buffer: Buffer) -> None:
        """Raise unless ``buffer`` belongs to this device."""
        if buffer.device is not self:
            raise DeviceError(f"a buffer of {buffer.device.name} is used on {self.name}; copy it there first")

    def collect(self) -> None:
        """Give back to pool and driver what was dropped since the last call. Nothing happens on a dead device."""
        if not self.dropped and not self._retired and not self._adopted:
            return
        if self.gate.refusal is not None:
            self.dropped.clear()
            self._retired.clear()
            return
        with self.using("free"):
            while self.dropped:
                item = self.dropped.popleft()
                if isinstance(item, Retired):
                    self._retired.append(item)
                elif item.owner == "pool":
                    self.pool.put(item)
                elif item.owner == "foreign":
                    self._retired.append(Retired("memory", item.handle, item.uses()))
            self._retired = [item for item in self._retired if not self._end(item)]

    def null(self, position: int) -> Allocation:
        """The allocation that an empty operand binds. ``exclusive_binding`` needs one per position of a launch."""
        wanted = position if self.target.limits.exclusive_binding else 0
        while len(self._empty) <= wanted:
            with self.using("allocate", self.default_stream):
                allocation = Allocation(self.driver.allocate(NULL_BYTES), NULL_BYTES, "device")
                self.driver.copy_in(None, allocation.handle, 0, memoryview(bytes(NULL_BYTES)))
                allocation.use(self.default_stream)
                self.default_stream.ticket += 1
                self._empty.append(allocation)
        return self._empty[wanted]

    def poison(self, allocation: Allocation) -> None:
        """Overwrite freed memory. The driver is held."""
        copies.poison(self, allocation)

    def failed(self, failure: OarlockError) -> None:
        """A command failed: with failure scope "device" that loses the device."""
        if self.info.failure_scope == "device" and self.gate.refusal is None:
            self.gate.lose(DeviceLostError(f'{failure}; the device is lost: open_device("{self.name}") opens it again'))

    def _fits(self, signature: KernelSignature, grid: tuple[int, int, int], buffers: int, scalars: int) -> bool:
        """Check a launch against signature and limits; False for an empty grid."""
        limits = self.target.limits
        largest = limits.max_grid
        x, y, z = grid
        if x > largest[0] or y > largest[1] or z > largest[2] or x < 0 or y < 0 or z < 0:
            raise BoundsError(f"{self.name}: kernel {signature.name}: grid {tuple(grid)} outside 0 .. {largest}")
        block = signature.block
        if block != (1, 1, 1) and (
            any(size > most for size, most in zip(block, limits.max_block, strict=True))
            or block[0] * block[1] * block[2] > limits.max_threads
        ):
            raise BoundsError(
                f"{self.name}: kernel {signature.name}: block {block} passes {limits.max_block}, "
                f"{limits.max_threads} threads in all"
            )
        if scalars != signature.scalar_bytes:
            raise BoundsError(
                f"{self.name}: kernel {signature.name}: {scalars} scalar bytes given, it takes {signature.scalar_bytes}"
            )
        if buffers != len(signature.buffers) or buffers > limits.max_buffers:
            raise BoundsError(
                f"{self.name}: kernel {signature.name}: {buffers} buffers given, it has {len(signature.buffers)}, "
                f"the device allows {limits.max_buffers}"
            )
        return x > 0 and y > 0 and z > 0

    def _bind(
        self, signature: KernelSignature, buffers: Sequence[tuple[Buffer, int]], lane: Stream, ticket: int
    ) -> list[Binding]:
        """Bindings of a launch, with the use of each allocation noted. The driver is held."""
        limits = self.target.limits
        alignment = limits.binding_alignment
        bindings: list[Binding] = []
        for position, (buffer, offset) in enumerate(buffers):
            nbytes = buffer.nbytes
            if offset < 0 or offset > nbytes or buffer.device is not self:
                self.check_owner(buffer)
                buffer.check_range(offset, 0, f"binding {position} of kernel {signature.name}")
            allocation = buffer.allocation if nbytes else self.null(position)
            if allocation.stream is not lane:
                allocation.change(lane)
            allocation.ticket = ticket
            base = offset - offset % alignment if alignment else 0
            extent = allocation.capacity - base
            if extent > limits.max_binding:
                raise BoundsError(
                    f"{self.name}: kernel {signature.name}: binding {position} spans {extent} bytes, "
                    f"the device allows {limits.max_binding}; use smaller buffers"
                )
            bindings.append((allocation.handle, base, extent))
        if limits.exclusive_binding:
            self._check_exclusive(signature, buffers)
        return bindings

    def _check_exclusive(self, signature: KernelSignature, buffers: Sequence[tuple[Buffer, int]]) -> None:
        places: dict[int, int] = {}
        for position, (buffer, _) in enumerate(buffers):
            if buffer.nbytes and places.setdefault(id(buffer.allocation), position) != position:
                raise UnsupportedError(
                    f"{self.name}: kernel {signature.name}: bindings {places[id(buffer.allocation)]} and {position} are "
                    f"one allocation, which the device does not allow; copy one of them"
                )

    def _live_lanes(self) -> list[Stream]:
        with self.using("synchronize"):
            return sorted(self._lanes, key=lambda lane: lane.id)

    def _settle_all(self) -> None:
        for lane in self._live_lanes():
            lane.settle()

    def _end(self, item: Retired) -> bool:
        """Destroy a retired handle if its work has ended. The driver is held."""
        counts = self.counts
        if not all(lane.passed(ticket) for lane, ticket in item.uses.items()):
            return False
        if item.kind == "event" and self.streams is not None:
            self.streams.destroy_event(item.handle)
            counts.events -= item.counted
        elif item.kind == "stream" and self.streams is not None:
            if not self._ended(item.handle):
                return False
            self.streams.destroy_stream(item.handle)
            counts.streams -= 1
        else:
            self.driver.free(item.handle)
            counts.programs -= item.kind == "program"
            counts.plans -= item.kind == "plan"
        return True

    def _ended(self, stream: Handle) -> bool:
        """Whether a stream whose owner is gone has ended; its failure is kept for the next wait on the device."""
        try:
            self.driver.synchronize(stream, 0.0)
        except DeviceTimeoutError:
            return False
        except OarlockError as error:
            self._orphan = self._orphan or error
        return True

    def _close_driver(self, lost: bool) -> None:
        """Close the driver, which this thread holds; errors count only on a device that was in order."""
        self.dropped.clear()
        self._retired.clear()
        try:
            self.driver.close()
        except Exception as error:
            if not lost:
                raise self.gate.explain("close", error) from error
