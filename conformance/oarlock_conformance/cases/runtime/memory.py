"""Cases on device memory: allocation at every size, out of memory and what follows, giving back, reuse in order."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys

import numpy as np

from oarlock.errors import BoundsError, ClosedError, OutOfMemoryError
from oarlock.runtime import Buffer
from oarlock_conformance.bench import Bench, expect, expect_equal, raises, setting
from oarlock_conformance.case import Failure
from oarlock_conformance.registry import runtime_case

SIZES = (1, 2, 3, 4, 5, 7, 8, 15, 16, 63, 64, 65, 255, 256, 257, 1000, 1023, 4095, 4096, 4097, 65537, (1 << 20) + 3)
MIB = 1 << 20


def resident() -> int:
    """Bytes of the most memory that this process has held at once."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@runtime_case("memory.allocate/sizes", "allocate gives nbytes of memory, for every size")
def sizes(bench: Bench) -> None:
    for nbytes in SIZES:
        data = bench.bytes(nbytes)
        buffer = bench.upload(data)
        expect(buffer.nbytes == nbytes, f"allocate({nbytes}) has {buffer.nbytes} bytes")
        expect_equal(bench.download(buffer, nbytes, np.uint8), data, f"{nbytes} bytes written and read back")


@runtime_case(
    "memory.allocate/random_sizes", "live allocations keep apart: 500 of random sizes hold what was written to each"
)
def random_sizes(bench: Bench) -> None:
    kept = []
    for nbytes in bench.random.integers(1, 4098, 500):
        data = bench.bytes(int(nbytes))
        kept.append((bench.upload(data), data))
        if len(kept) % 3 == 0:
            kept.pop(int(bench.random.integers(len(kept))))
    for number, (buffer, data) in enumerate(kept):
        expect_equal(bench.download(buffer, len(data), np.uint8), data, f"buffer {number} of {len(kept)} live ones")


@runtime_case("memory.allocate/zero", "an allocation of 0 bytes works, and so do copies and fills of 0 bytes")
def zero(bench: Bench) -> None:
    device = bench.device
    buffer, other = device.allocate(0), bench.upload(bench.bytes(16))
    device.copy_in(buffer, 0, b"")
    device.copy_out(bytearray(0), buffer, 0)
    device.copy(other, 16, buffer, 0, 0)
    device.fill(buffer, 0, 0, 1)
    device.synchronize()
    with raises(BoundsError, "copying a byte into an empty buffer"):
        device.copy_in(buffer, 0, b"x")
    with raises(BoundsError, "a negative size"):
        device.allocate(-1)


@runtime_case(
    "memory.allocate/alignment",
    "memory is aligned for any dtype and for binding_alignment: 1,000 random sizes",
    "address",
)
def alignment(bench: Bench) -> None:
    device = bench.device
    unit = max(8, device.target.limits.binding_alignment or 1)
    kept: list[Buffer] = []
    for nbytes in bench.random.integers(1, 4098, 1000):
        buffer = device.allocate(int(nbytes))
        expect(buffer.address % unit == 0, f"{nbytes} bytes lie at {buffer.address:#x}, no multiple of {unit}")
        kept.append(buffer)
        del kept[:-50]


@runtime_case("memory.allocate/too_big", "what does not fit raises OutOfMemoryError, and the device stays usable")
def too_big(bench: Bench) -> None:
    device = bench.device
    for nbytes in (device.info.memory * 2, device.target.limits.max_allocation + 1, 1 << 60):
        with raises(OutOfMemoryError, f"allocate({nbytes})", device.name):
            device.allocate(nbytes)
    bench.works()


@runtime_case(
    "memory.allocate/exhausted",
    "when memory runs out OutOfMemoryError tells the request, what is in use, and the limit",
)
def exhausted(bench: Bench) -> None:
    device = bench.device
    device.trim()
    used = device.stats().bytes_in_use
    device.set_memory_budget(used + 8 * MIB)
    try:
        kept = [device.allocate(MIB, label="filler") for _ in range(7)]
        with raises(OutOfMemoryError, "8 MiB more than there is", "asked 8.0 MiB", "in use", "limit"):
            device.allocate(8 * MIB)
        kept.clear()
        again = bench.upload(bench.bytes(6 * MIB))
        del again
        bench.works()
    finally:
        device.set_memory_budget(None)


@runtime_case(
    "memory.allocate/driver_exhausted",
    "a driver that runs out raises OutOfMemoryError, goes on, and has all of it again when it is freed",
    "can_be_filled",
)
def driver_exhausted(bench: Bench) -> None:
    device = bench.device
    device.trim()
    piece = min(device.target.limits.max_allocation, device.info.memory // 8) // 256 * 256
    counts = []
    for _ in range(2):
        handles = []
        try:
            for _ in range(device.info.memory // piece + 1):
                handles.append(device.gate.call("allocate", device.driver.allocate, piece))
            expect(False, f"{len(handles)} allocations of {piece} bytes, more than there is, were given")
        except OutOfMemoryError:
            counts.append(len(handles))
        finally:
            for handle in handles:
                device.gate.call("free", device.driver.free, handle)
    expect(counts[0] == counts[1], f"{counts[0]} pieces of {piece} bytes the first time, {counts[1]} the second")
    bench.works()


@runtime_case("memory.allocate/evicts", "idle memory of one size is given back when another size needs it")
def evicts(bench: Bench) -> None:
    device = bench.device
    device.trim()
    used = device.stats().bytes_in_use
    device.set_memory_budget(used + 10 * MIB)
    try:
        kept = [device.allocate(MIB) for _ in range(9)]
        kept.clear()
        data = bench.bytes(5 * MIB)
        expect_equal(bench.download(bench.upload(data), data.size, np.uint8), data, "5 MiB after 9 MiB were freed")
    finally:
        device.set_memory_budget(None)


@runtime_case(
    "memory.allocate/bounded", "1,000 rounds of allocate, copy in and drop keep device and host memory bounded"
)
def bounded(bench: Bench) -> None:
    device = bench.device
    data = bench.bytes(MIB)
    bench.upload(data)
    device.synchronize()
    before, most = device.stats(), resident()
    for _ in range(1000):
        bench.upload(data)
    device.synchronize()
    gc.collect()
    after = device.stats()
    held = after.bytes_in_use + after.bytes_idle - before.bytes_in_use - before.bytes_idle
    expect(held <= 64 * MIB, f"after 1,000 rounds of 1 MiB the device holds {held // MIB} MiB more")
    grown = resident() - most
    expect(grown <= 256 * MIB, f"the process grew by {grown // MIB} MiB over 1,000 rounds of 1 MiB")


@runtime_case("memory.free/gives_back", "free gives memory back to the device")
def gives_back(bench: Bench) -> None:
    with setting("poison", False):  # which would touch it all
        _gives_back(bench)


def _gives_back(bench: Bench) -> None:
    device = bench.device
    piece = min(256 * MIB, device.target.limits.max_allocation, device.info.memory // 4)
    rounds = min(400, 2 * device.info.memory // piece)
    for number in range(int(rounds)):
        try:
            device.allocate(piece).free()
            device.trim()
        except OutOfMemoryError as error:
            text = f"allocation {number + 1} of {piece // MIB} MiB fails although the {number} before it were freed"
            raise Failure(f"{text}: {error}") from error
    data = bench.bytes(MIB)
    most = resident()
    for _ in range(400):
        buffer = bench.upload(data)
        device.synchronize()
        buffer.free()
        device.trim()
    grown = resident() - most
    expect(grown <= 128 * MIB, f"400 rounds of 1 MiB, each freed, left the process {grown // MIB} MiB larger")


@runtime_case("memory.free/twice", "freeing a buffer twice is harmless; using it afterwards raises ClosedError")
def twice(bench: Bench) -> None:
    buffer = bench.upload(bench.bytes(100))
    buffer.free()
    buffer.free()
    with raises(ClosedError, "a copy from a freed buffer"):
        bench.download(buffer, 1, np.uint8)
    bench.works()


@runtime_case(
    "memory.free/in_flight", "memory that is dropped while work uses it is reused only in the order of that work"
)
def in_flight(bench: Bench) -> None:
    device = bench.device
    count = 4096
    for number in range(10 * bench.rounds_factor):
        busy, source, target = bench.filled(2), bench.filled(count, number), bench.filled(count)
        bench.spin(busy, 3, seconds=0.005)
        bench.increment(target, source, count)
        del source
        device.copy_in(device.allocate(count * 4), 0, np.full(count, -1, np.int32))
        expect_equal(bench.download(target, count), np.full(count, number + 1, np.int32), "reader of dropped memory")


@runtime_case("memory.trim/idle", "trim gives all idle memory back to the driver")
def trim(bench: Bench) -> None:
    device = bench.device
    bench.upload(bench.bytes(3 * MIB))
    gc.collect()
    device.synchronize()
    device.trim()
    expect(device.stats().bytes_idle == 0, f"{device.stats().bytes_idle} bytes are idle after trim()")
    bench.works()


@runtime_case(
    "memory.info/plausible", "memory_info gives (free, total) bytes, and free is at most total", "memory_info"
)
def info(bench: Bench) -> None:
    free, total = bench.device.memory_info()
    expect(0 <= free <= total, f"memory_info gives {free} free of {total}")
    expect(total > 0, f"memory_info gives a total of {total}")


@runtime_case("memory.fill/ranges", "fill sets bytes of any range, in stream order, and no other")
def fill(bench: Bench) -> None:
    device = bench.device
    for offset, nbytes in ((0, 64), (1, 1), (3, 13), (4, 4), (17, 0), (60, 4), (0, 4096), (4093, 3), (256, 1024)):
        data = bench.bytes(4096)
        buffer = bench.upload(data)
        device.fill(buffer, offset, nbytes, 0xA5)
        data[offset : offset + nbytes] = 0xA5
        expect_equal(bench.download(buffer, 4096, np.uint8), data, f"fill(offset={offset}, nbytes={nbytes})")


@runtime_case(
    "memory.address/host", "with host_memory the host may use the address of an allocation", "address", "host_memory"
)
def address(bench: Bench) -> None:
    data = bench.bytes(1000)
    buffer = bench.upload(data)
    bench.device.synchronize()
    seen = np.frombuffer(memoryview((ctypes.c_uint8 * 1000).from_address(buffer.address)), np.uint8)
    expect_equal(seen, data, "bytes at the address of an allocation")


@runtime_case(
    "memory.adopt/shared",
    "adopt gives a handle on foreign memory; its owner is kept until free",
    "address",
    "host_memory",
)
def adopt(bench: Bench) -> None:
    device = bench.device
    source, target = bench.ints(64), np.zeros(64, np.int32)
    x = device.adopt(source.ctypes.data, source.nbytes, source)
    y = device.adopt(target.ctypes.data, target.nbytes, target)
    bench.increment(y, x, 64, 9)
    device.synchronize()
    expect_equal(target, source + np.int32(9), "foreign memory that a kernel wrote")
    references = sys.getrefcount(source)
    del x
    gc.collect()
    device.synchronize()
    device.stats()
    expect(sys.getrefcount(source) < references, "the owner of foreign memory is kept after free")


@runtime_case("memory.pinned/copies", "page-locked host memory is writable, and copies to and from it work", "pinned")
def pinned(bench: Bench) -> None:
    device = bench.device
    data = bench.bytes(5000)
    source, target = device.allocate_pinned(5000), device.allocate_pinned(5000)
    source[:] = data.data
    buffer = device.allocate(5000)
    device.copy_in(buffer, 0, source)
    device.copy_out(target, buffer, 0)
    device.synchronize()
    expect_equal(np.frombuffer(target, np.uint8), data, "a copy through page-locked memory")
