"""A service for adapters whose kernels run on the host: aligned memory, walking a grid with all cores, plans.

Kernels have the C ABI of ``oarlock.abi``. The native module does the work where it is installed; without it the same
calls run through ctypes and a pool of Python threads (ctypes lets go of the interpreter lock during a call).
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oarlock.config import Config, config
from oarlock.errors import BoundsError, OutOfMemoryError
from oarlock.hal.program import CopyStep

try:
    from oarlock import _native
except ImportError:
    _native = None  # type: ignore[assignment]

__all__ = [
    "Grid", "HostLaunch", "HostMemory", "HostPlan", "already_done", "host_memory_bytes", "native_available",
    "pieces", "replay_plan", "run_grid", "thread_count",
]  # fmt: skip

Grid = tuple[int, int, int]

_SMALL_ALIGNMENT = 64
_HUGE_PAGE = 2 << 20
_HUGE_FROM = 1 << 20
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def native_available() -> bool:
    """Whether the native executor is installed and in use."""
    return _native is not None


def thread_count() -> int:
    """Threads that a launch uses: ``config.threads``, or one per core that this process may run on."""
    return config.threads if config.threads > 0 else _usable_cores()


@functools.cache
def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def host_memory_bytes() -> tuple[int, int]:
    """(free, total) bytes of main memory; the total is what a container may use, where there is such a limit."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = os.sysconf("SC_PHYS_PAGES") * page
    free = os.sysconf("SC_AVPHYS_PAGES") * page
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except OSError:
        return free, total
    if limit.isdigit():
        total = min(total, int(limit))
        free = min(free, max(0, int(limit) - used))
    return free, total


class HostMemory:
    """``nbytes`` of host memory at ``address``, seen through the writable ``view``.

    From 1 MiB on, memory starts at a 2 MiB boundary and asks for huge pages, which doubles what memory-bound kernels
    reach; below that it starts at a 64-byte boundary. It is freed when the last view of it dies.
    """

    __slots__ = ("_owner", "address", "nbytes", "view")

    def __init__(self, address: int, view: memoryview, owner: object) -> None:
        self.address = address
        self.nbytes = view.nbytes
        self.view = view
        self._owner: object = owner

    @classmethod
    def allocate(cls, nbytes: int) -> HostMemory:
        """Memory with undefined content; raises OutOfMemoryError when the system refuses."""
        try:
            return cls._huge(nbytes) if nbytes >= _HUGE_FROM else cls._small(nbytes)
        except (MemoryError, OSError, OverflowError) as error:
            raise OutOfMemoryError(f"the host refused {nbytes} bytes: {error}") from error

    @classmethod
    def adopt(cls, address: int, nbytes: int, owner: object) -> HostMemory:
        """Foreign memory; ``owner`` is kept as long as this object."""
        block = (ctypes.c_ubyte * nbytes).from_address(address)
        return cls(address, memoryview(block).cast("B"), owner)

    def release(self) -> None:
        """Let go of the memory: it is freed now, or when the last other view of it dies."""
        self.address = 0
        self.view = memoryview(b"")
        self._owner = None

    @classmethod
    def _small(cls, nbytes: int) -> HostMemory:
        block = np.empty(nbytes + _SMALL_ALIGNMENT, np.uint8)
        skip = -block.ctypes.data % _SMALL_ALIGNMENT
        return cls(block.ctypes.data + skip, block.data[skip : skip + nbytes], block)

    @classmethod
    def _huge(cls, nbytes: int) -> HostMemory:
        block = _anonymous(nbytes + _HUGE_PAGE)
        start = ctypes.addressof(ctypes.c_ubyte.from_buffer(block))
        skip = -start % _HUGE_PAGE
        if hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                block.madvise(mmap.MADV_HUGEPAGE)
            except OSError:
                pass  # a kernel without huge pages: the memory is as good, only slower
        return cls(start + skip, memoryview(block)[skip : skip + nbytes], block)


def _anonymous(nbytes: int) -> mmap.mmap:
    if hasattr(mmap, "MAP_PRIVATE"):  # shared memory, the default, gets no huge pages on most systems
        return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, nbytes)


def pieces(grid: Grid, wanted: int) -> Iterator[tuple[Grid, Grid]]:
    """Cut ``grid`` into about ``wanted`` boxes (begin, end), the slowest dimension first."""
    gx, gy, gz = grid
    nz = min(gz, wanted)
    ny = min(gy, -(-wanted // nz))
    nx = min(gx, -(-wanted // (nz * ny)))
    for z in range(nz):
        for y in range(ny):
            for x in range(nx):
                begin = (gx * x // nx, gy * y // ny, gz * z // nz)
                end = (gx * (x + 1) // nx, gy * (y + 1) // ny, gz * (z + 1) // nz)
                yield begin, end


def run_grid(address: int, grid: Grid, buffers: Sequence[int], scalars: bytes) -> None:
    """Run the kernel at ``address`` on all blocks of ``grid``, over all threads; returns when it has finished.

    ``buffers`` are addresses in the order of the signature, ``scalars`` the scalar block.
    """
    threads = thread_count()
    if _native is not None:
        _native.run(address, grid, buffers, scalars, threads)
    else:
        _run_python(address, grid, buffers, scalars, threads)


@dataclass(frozen=True, slots=True)
class HostLaunch:
    """One launch of a plan: a kernel's address, its grid, (slot, base in bytes) per buffer, and its scalar block.

    ``strand``: as in ``LaunchStep``.
    """

    address: int
    grid: Grid
    buffers: tuple[tuple[int, int], ...]
    scalars: bytes
    strand: int = 0


class HostPlan:
    """Launches and copies between slots, prepared once and replayed by one call."""

    __slots__ = ("_compiled", "_slots", "_steps")

    def __init__(self, steps: Sequence[HostLaunch | CopyStep]) -> None:
        self._steps = tuple(steps)
        slots = [
            slot
            for step in steps
            for slot in ((step.dst, step.src) if isinstance(step, CopyStep) else (slot for slot, _ in step.buffers))
        ]
        self._slots = max(slots, default=-1) + 1
        self._compiled: _native.Plan | None = _compile(self._steps) if _native is not None else None

    def release(self) -> None:
        """Drop the steps."""
        self._steps = ()
        self._slots = 0
        self._compiled = None

    def replay(self, bindings: Sequence[int | HostMemory], scalars: Sequence[tuple[int, int, bytes]] = ()) -> None:
        """Run all steps on ``bindings``, one a slot: addresses, or the memory itself. Strands of launches run at the
        same time where the native module is there and that saves time; all else is in order.

        Each (step, offset, bytes) of ``scalars`` replaces bytes of that step's scalar block for this run alone.
        Raises BoundsError for a missing binding or a replacement outside a launch's block.
        """
        replay_plan(None, self, bindings, scalars)

    def run_steps(self, bindings: Sequence[int | HostMemory], scalars: Sequence[tuple[int, int, bytes]]) -> None:
        """``replay``, step by step in Python."""
        self._check(bindings, scalars)
        places = [binding if isinstance(binding, int) else binding.address for binding in bindings]
        replaced: dict[int, bytearray] = {}
        for index, offset, data in scalars:
            step = self._steps[index]
            assert isinstance(step, HostLaunch)  # _check has seen to it
            replaced.setdefault(index, bytearray(step.scalars))[offset : offset + len(data)] = data
        for index, step in enumerate(self._steps):
            if isinstance(step, CopyStep):
                ctypes.memmove(places[step.dst] + step.dst_offset, places[step.src] + step.src_offset, step.nbytes)
            else:
                addresses = [places[slot] + base for slot, base in step.buffers]
                block = bytes(replaced[index]) if index in replaced else step.scalars
                run_grid(step.address, step.grid, addresses, block)

    def _check(self, bindings: Sequence[object], scalars: Sequence[tuple[int, int, bytes]]) -> None:
        if len(bindings) < self._slots:
            raise BoundsError(f"the plan has {self._slots} slots; replay was given {len(bindings)} bindings")
        for index, offset, data in scalars:
            step = self._steps[index] if 0 <= index < len(self._steps) else None
            if not isinstance(step, HostLaunch):
                raise BoundsError(f"step {index} is no launch of this plan of {len(self._steps)} steps")
            if offset < 0 or offset + len(data) > len(step.scalars):
                end = offset + len(data)
                raise BoundsError(f"step {index}: its {len(step.scalars)} scalar bytes do not hold {offset}..{end}")


def _compile(steps: Sequence[HostLaunch | CopyStep]) -> _native.Plan:
    plan = _native.Plan()
    for step in steps:
        if isinstance(step, CopyStep):
            plan.add_copy(step.dst, step.dst_offset, step.src, step.src_offset, step.nbytes)
        else:
            plan.add_launch(step.address, step.grid, step.buffers, step.scalars, step.strand)
    return plan


def replay_plan(
    stream: object, plan: HostPlan, bindings: Sequence[int | HostMemory], scalars: Sequence[tuple[int, int, bytes]], /
) -> None:
    """``replay`` of a driver whose plans are HostPlans and whose handles are HostMemory: ``plan.replay`` alone."""
    plan.run_steps(bindings, scalars)


def already_done(stream: object, timeout_s: float, /) -> None:
    """``synchronize`` of a driver whose commands have finished when their calls return."""


if _native is not None:  # the same, without a frame of Python
    _native.know_host(
        {"Config": Config, "HostMemory": HostMemory, "HostPlan": HostPlan, "config": config, "cores": _usable_cores}
    )
    replay_plan, already_done = _native.replay_plan, _native.already_done


@dataclass(slots=True)
class _Threads:
    """The pool of Python threads; a forked child starts its own."""

    pool: ThreadPoolExecutor | None = None
    size: int = 0

    def get(self, size: int) -> ThreadPoolExecutor:
        if self.pool is None or self.size < size:
            self.pool, self.size = ThreadPoolExecutor(size, "oarlock-host"), size
        return self.pool

    def forget(self) -> None:
        self.pool = None


_threads = _Threads()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.forget)


def _run_python(address: int, grid: Grid, buffers: Sequence[int], scalars: bytes, threads: int) -> None:
    kernel = _KERNEL(address)
    pointers = struct.pack(f"{len(buffers)}P", *buffers)

    def run(box: tuple[Grid, Grid]) -> None:
        kernel(pointers, scalars, struct.pack("3I", *box[0]), struct.pack("3I", *box[1]))

    *others, last = pieces(grid, threads)
    pending = [_threads.get(threads).submit(run, box) for box in others]
    run(last)
    for result in pending:
        result.result()
