"""An open device: allocation, copies, programs, launches and waiting, with all policy that adapters need not write."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from oarlock.abi import Executable, KernelSignature
from oarlock.errors import BoundsError, ClosedError, DeviceError, DeviceLostError, OarlockError, UnsupportedError
from oarlock.hal import Adapter, CopyStep, DeviceInfo, Driver, LaunchStep
from oarlock.runtime import copies, fast, launches
from oarlock.runtime.abilities import abilities_of
from oarlock.runtime.cache import cached_compile
from oarlock.runtime.checks import check_driver, check_handle, check_kind, check_nothing
from oarlock.runtime.lane import Lane
from oarlock.runtime.lifetimes import Dropped
from oarlock.runtime.memory import Allocation, Buffer, split_offset
from oarlock.runtime.pool import MemoryPool
from oarlock.runtime.program import PreparedPlan, Program, prepare
from oarlock.runtime.retired import Retired
from oarlock.runtime.stream import Stream, check_stream, current_stream
from oarlock.runtime.watchdog import Gate

if TYPE_CHECKING:
    from oarlock.runtime.copies import HostData

__all__ = ["Counts", "Device", "Stats"]

NULL_BYTES = 256
"""Size of the buffer that stands for an empty operand."""
_CLOSE_S = 10.0
_CLOSE_LOST_S = 0.2


@dataclass(slots=True)
class Counts:
    """Running counts of one device."""

    adopted: int = 0
    programs: int = 0
    streams: int = 0
    events: int = 0
    plans: int = 0
    launches: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """What a device holds now (live handles by kind, bytes), and what it has done since it was opened."""

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
    """Holds the driver for one call, and explains what goes wrong in it. Keeps no state, so calls may share it."""

    __slots__ = ("_gate", "_what")

    def __init__(self, gate: Gate, what: str) -> None:
        self._gate = gate
        self._what = what

    def __enter__(self) -> None:
        self._gate.enter(self._what)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gate = self._gate
        if error is None and gate.refusal is None:
            gate.leave()
            return
        try:
            if isinstance(error, Exception):
                explained = self._gate.explain(self._what, error)
                if explained is not error:
                    raise explained from error
            elif error is None:
                self._gate.check()
        finally:
            self._gate.leave()


class Device:
    """One open device, written ``name:index``. ``open_device`` makes it; there is one per name and process.

    Safe from several threads. Methods with a ``stream`` take the current stream of the context for None. Sizes and
    offsets are bytes. Every method raises ClosedError after ``close``, DeviceLostError once the device is lost, and
    ForkedProcessError in a forked child.
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
        self.gate.call("open", check_driver, index, self.driver)
        try:
            self.can = self.gate.call("open", abilities_of, self.driver, info.capabilities)
        except DeviceError:
            self.gate.call("close", self.driver.close)
            raise
        self.unit = max(4, info.target.limits.copy_alignment)
        """Allocations are a multiple of this."""
        self.default_lane = Lane(self, None)
        self.default_stream = Stream(self, self.default_lane)
        self.lanes: dict[int, Lane] = {self.default_lane.id: self.default_lane}
        """The lanes whose streams exist, by id."""
        self.counts = Counts()
        self.pool = MemoryPool(self)
        self.dropped = Dropped(self)
        self.edges = threading.RLock()
        """Held while bytes around an unaligned copy are read and written back."""
        self.origins: dict[str, str] = {}
        """What a kernel computes and where it was asked for, by its name: whoever loads kernels says so, for errors."""
        self.held: dict[str, object] = {}
        """What the layers above keep for as long as the device is open: its kernels, its plans."""
        self.host_calls = 0
        """Host callbacks that have not returned."""
        self.parts = fast.parts_of(self)
        """What native functions work on; None where there are none."""
        self._empty: list[Allocation] = []
        self._using: dict[str, _Using] = {}

    # --- memory -------------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int, *, label: str = "", stream: Stream | None = None) -> Buffer:
        """A buffer of ``nbytes``; content undefined. ``label`` names it in out-of-memory errors.

        ``stream`` is the one that will use it first (any may). Raises OutOfMemoryError after idle memory was
        released and the driver asked again.
        """
        if nbytes < 0:
            raise BoundsError(f"{self.name}: cannot allocate {nbytes} bytes")
        return self.allocate_on(check_stream(self, stream), nbytes, label)

    def adopt(self, address: int, nbytes: int, owner: object, *, label: str = "") -> Buffer:
        """A buffer on foreign memory at ``address``; ``owner`` is kept alive with it. Capability ``address``."""
        if self.can.address is None:
            raise UnsupportedError(f"{self.name} cannot use foreign memory; copy it in")
        self.collect()
        if nbytes == 0:
            return Buffer(self, None, 0, label)
        handle = check_handle("adopt", self.gate.call("adopt", self.can.address.adopt, address, nbytes, owner))
        self.counts.adopted += 1
        return Buffer(self, Allocation(handle, nbytes, "foreign"), nbytes, label)

    def allocate_pinned(self, nbytes: int) -> memoryview:
        """Writable page-locked host memory. Capability ``pinned``."""
        if self.can.pinned is None:
            raise UnsupportedError(f"{self.name} has no page-locked host memory; use ordinary memory")
        if nbytes <= 0:
            raise BoundsError(f"{self.name}: cannot allocate {nbytes} bytes of page-locked memory")
        with self.using("allocate_pinned"):
            view = self.can.pinned.allocate_pinned(nbytes)
            check_kind("allocate_pinned", view, memoryview, "a writable memoryview")
            return view

    def copy_in(self, buffer: Buffer, offset: int, source: HostData, stream: Stream | None = None) -> None:
        """Copy host bytes to ``buffer`` at ``offset``, in stream order; ``source`` may be reused on return.

        A source with strides is copied in row-major order.
        """
        copies.copy_in(self, buffer, offset, source, stream)

    def copy_out(self, destination: HostData, buffer: Buffer, offset: int, stream: Stream | None = None) -> None:
        """Copy bytes from ``offset`` of ``buffer`` to the host, in stream order; readable after synchronising.

        ``destination`` is writable and contiguous; its size says how much is copied.
        """
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

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes: as the driver says, else as far as this process knows. Idle memory counts as free."""
        pool = self.pool
        if self.can.memory_info is None:
            return max(0, pool.limit - pool.in_use), pool.limit
        with self.using("memory_info"):
            given = self.can.memory_info.memory_info()
            check_kind("memory_info", given, tuple, "(free, total), two numbers of bytes")
            free, total = given
        return min(free + pool.idle, total), total

    def trim(self) -> int:
        """Wait for all work and give idle memory back to the driver; returns the bytes given back."""
        self._settle_all()
        self.collect()
        with self.using("free"):
            return self.pool.release()

    def set_memory_budget(self, nbytes: int | None) -> None:
        """Let live and idle memory take at most ``nbytes`` together (None: what the device has)."""
        with self.using("allocate"):
            self.pool.budget = nbytes

    # --- programs -----------------------------------------------------------------------------------------------------

    def compile(self, source: str, signatures: Sequence[KernelSignature]) -> Executable:
        """Compile kernels for this device, or take them from the cache. Raises CompileError with the log."""
        with self.gate.watched("compile"):
            return cached_compile(self, source, signatures)

    def load(self, executable: Executable) -> Program:
        """Load compiled kernels.

        Raises CompileError with the log where the driver refuses them, BoundsError for a kernel that passes a limit.
        """
        self.collect()
        for signature in executable.signatures:
            launches.check_signature(self, signature)
        with self.using("load"):
            handle = check_handle("load", self.driver.load(executable.payload, executable.signatures))
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
        if signature is None or program.device is not self:
            raise self._no_kernel(program, entry)
        if not launches.check_launch(self, signature, grid, len(buffers), len(scalars)):
            self.gate.check()
            return
        lane = check_stream(self, stream)
        gate = self.gate
        gate.enter(entry)
        try:
            lane.ticket = ticket = lane.ticket + 1
            bindings = launches.bind(self, signature, buffers, lane, ticket)
            program.use(lane, ticket)
            given: object = self.driver.launch(
                lane.handle, program.handle, entry, grid, signature.block, bindings, scalars
            )
            if given is not None:
                check_nothing("launch", given)
            self.counts.launches += 1
        except Exception as error:
            explained = gate.explain(f"launch of {entry}", error)
            raise explained from (error if explained is not error else error.__cause__)
        finally:
            gate.leave()
        if gate.refusal is not None:
            raise gate.refusal()

    def prepare(self, steps: Sequence[LaunchStep | CopyStep]) -> PreparedPlan:
        """Give the driver a whole plan to replay; ``program`` of its launches is a Program. Capability ``plans``.

        Grids must not be empty, and bases and extents as ``launch`` would make them.
        """
        self.collect()
        return prepare(self, steps)

    # --- order --------------------------------------------------------------------------------------------------------

    @property
    def current_stream(self) -> Stream:
        """The stream that work goes to in this context."""
        return current_stream(self)

    def create_stream(self) -> Stream:
        """A new stream; raises UnsupportedError where the device has the default stream alone."""
        if self.can.streams is None:
            raise UnsupportedError(f"{self.name} has no streams to create; its work runs in order on the default one")
        self.collect()
        with self.using("create_stream"):
            lane = Lane(self, check_handle("create_stream", self.can.streams.create_stream()))
            self.counts.streams += 1
            self.lanes[lane.id] = lane
        return Stream(self, lane)

    def synchronize(self, stream: Stream | None = None) -> None:
        """Wait for ``stream``, or all streams of the device for None; raises the first failure since the last wait.

        Raises DeviceTimeoutError past the watchdog's deadline, and DeviceLostError.
        """
        if stream is not None:
            check_stream(self, stream).synchronize()
            return
        if self.parts is not None and fast.settle(self.parts):
            return
        lanes = [self.default_lane]
        try:
            lanes = self._settle_all()
            self.collect()
        finally:
            failure, self.dropped.orphan = self.dropped.orphan, None
            for lane in lanes:
                failure, lane.failure = failure or lane.failure, None
            if failure is not None:
                raise failure

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """False once it is closed, lost, or seen from a forked child."""
        return self.gate.refusal is None

    def stats(self) -> Stats:
        """Live handles by kind, bytes, and running counts. Dropped objects are given back first."""
        self.collect()
        counts, pool = self.counts, self.pool
        return Stats(
            buffers=len(pool.live) + counts.adopted,
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

    def close(self) -> None:
        """Close it; live buffers, programs, streams and events die with it. Again does nothing.

        A device that hangs in another thread's call is left behind, not waited for.
        """
        gate = self.gate
        if gate.closed or gate.is_forked:
            return
        lost = gate.refusal is not None
        if not gate.try_enter(_CLOSE_LOST_S if lost else _CLOSE_S):
            gate.close()
            return
        try:
            if not gate.closed:
                gate.close()
                self.dropped.clear()
                self.held.clear()
                self._close_driver(lost)
        finally:
            gate.leave()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Device {self.name} {self.info.name}>"

    # --- for the runtime ----------------------------------------------------------------------------------------------

    def using(self, what: str, lane: Lane | None = None) -> _Using:
        """``with device.using("copy_in"):`` holds the driver for one call (on ``lane``, which must not be closed)."""
        if lane is not None and lane.closed:
            raise ClosedError(f"{self.name}: a closed stream is used ({what})")
        return self._using.get(what) or self._using.setdefault(what, _Using(self.gate, what))

    def allocate_on(self, lane: Lane, nbytes: int, label: str) -> Buffer:
        """See ``allocate``."""
        if nbytes == 0:
            self.gate.check()
            return Buffer(self, None, 0, label)
        with self.using("allocate"):
            self.dropped.collect_held()
            allocation = self.pool.take(nbytes, lane, label)
        if allocation is None:
            self._settle_all()
            self.collect()
            with self.using("allocate"):
                self.pool.release()
                allocation = self.pool.take_last(nbytes, label)
        return Buffer(self, allocation, nbytes, label)

    def allocate_all(self, lane: Lane, wanted: Sequence[tuple[int, str]]) -> list[Buffer]:
        """A buffer for each (bytes, label), as ``allocate_on`` gives them, by holding the driver once."""
        gate = self.gate
        buffers: list[Buffer] = []
        gate.enter("allocate")
        try:
            self.dropped.collect_held()
            take = self.pool.take
            for nbytes, label in wanted:
                allocation = take(nbytes, lane, label) if nbytes else None
                if allocation is None and nbytes:
                    break
                buffers.append(Buffer(self, allocation, nbytes, label))
        except Exception as error:
            explained = gate.explain("allocate", error)
            raise explained from (error if explained is not error else error.__cause__)
        finally:
            gate.leave()
        if gate.refusal is not None:
            raise gate.refusal()
        if len(buffers) == len(wanted):
            return buffers
        buffers.clear()
        return [self.allocate_on(lane, nbytes, label) for nbytes, label in wanted]

    def check_owner(self, buffer: Buffer) -> None:
        """Raise unless ``buffer`` belongs to this device, and the device can be used."""
        self.gate.check()
        if buffer.device is not self:
            raise DeviceError(f"a buffer of {buffer.device.name} is used on {self.name}; copy it there first")

    def collect(self) -> None:
        """Give back to pool and driver what was dropped since the last call. Nothing happens on a dead device."""
        self.dropped.collect()

    def null(self, position: int) -> Allocation:
        """The allocation that an empty operand binds, all zero. ``exclusive_binding`` needs one per position."""
        wanted = position if self.target.limits.exclusive_binding else 0
        while len(self._empty) <= wanted:
            capacity = -(-NULL_BYTES // self.unit) * self.unit
            with self.using("allocate"):
                allocation = Allocation(check_handle("allocate", self.driver.allocate(capacity)), capacity, "device")
                self._empty.append(allocation)
                allocation.use(self.default_lane)
                self.default_lane.ticket += 1
                try:
                    self.driver.copy_in(None, allocation.handle, 0, memoryview(bytes(capacity)))
                except BaseException:
                    self.dropped.items.append(Retired("memory", self._empty.pop().handle, allocation.uses()))
                    self.counts.adopted += 1  # which giving it back takes off again
                    raise
        return self._empty[wanted]

    def failed(self, failure: OarlockError) -> None:
        """A command failed: with failure scope "device" that loses the device."""
        if self.info.failure_scope == "device" and self.gate.refusal is None:
            self.gate.lose(DeviceLostError(f'{failure}; the device is lost: open_device("{self.name}") opens it again'))

    def _no_kernel(self, program: Program, entry: str) -> DeviceError:
        if program.device is not self:
            return DeviceError(f"a program of {program.device.name} is launched on {self.name}; load it there")
        return DeviceError(f"{self.name}: no kernel {entry}; the program has {', '.join(program.signatures)}")

    def _settle_all(self) -> list[Lane]:
        """Wait for every stream; returns them, with their failures still kept."""
        lanes = list(self.lanes.values())
        for lane in lanes:
            lane.settle()
        return lanes

    def _close_driver(self, lost: bool) -> None:
        """Close the driver, which this thread holds; errors count only on a device that was in order."""
        try:
            try:
                if lost and self.can.reset is not None:
                    self.can.reset.reset()
            finally:
                self.driver.close()
        except Exception as error:
            if not lost:
                raise self.gate.explain("close", error) from error
