"""Cases on copies between host and device and within a device: offsets, odd sizes, strides, overlap, order."""

from __future__ import annotations

import numpy as np

from oarlock import dtypes
from oarlock.errors import BoundsError, UnsupportedError
from oarlock.runtime import DeviceArray, copy_across, from_numpy, open_device, to_numpy, transfer
from oarlock_conformance.bench import Bench, expect, expect_equal, raises
from oarlock_conformance.registry import runtime_case

SIZE = 4099
RANGES = (
    (0, SIZE), (0, 1), (1, 1), (2, 2), (3, 1), (4, 12), (5, 7), (63, 65), (64, 64), (255, 258), (256, 512), (1000, 3),
    (SIZE - 1, 1), (SIZE - 4, 4), (1, SIZE - 1), (7, 0),
)  # fmt: skip
"""(offset, bytes) of copies."""


@runtime_case("memory.copy_in/offset", "copy_in writes the source to dst at dst_offset, in bytes, and nothing else")
def copy_in_offset(bench: Bench) -> None:
    for offset, nbytes in RANGES:
        data, part = bench.bytes(SIZE), bench.bytes(nbytes)
        buffer = bench.upload(data)
        bench.device.copy_in(buffer, offset, part)
        data[offset : offset + nbytes] = part
        expect_equal(bench.download(buffer, SIZE, np.uint8), data, f"copy_in(dst_offset={offset}, {nbytes} bytes)")


@runtime_case("memory.copy_out/offset", "copy_out reads len(dst) bytes of src from src_offset, in bytes")
def copy_out_offset(bench: Bench) -> None:
    data = bench.bytes(SIZE)
    buffer = bench.upload(data)
    for offset, nbytes in RANGES:
        found = bench.download(buffer, nbytes, np.uint8, offset)
        expect_equal(found, data[offset : offset + nbytes], f"copy_out(src_offset={offset}, {nbytes} bytes)")


@runtime_case("memory.copy_out/neighbours", "copy_out writes the destination's bytes and no others of the host")
def copy_out_neighbours(bench: Bench) -> None:
    data = bench.bytes(SIZE)
    buffer = bench.upload(data)
    for offset, nbytes in RANGES:
        host = np.full(SIZE + 64, 0x5C, np.uint8)
        bench.device.copy_out(host[32 : 32 + nbytes], buffer, offset)
        bench.device.synchronize()
        wanted = np.full(SIZE + 64, 0x5C, np.uint8)
        wanted[32 : 32 + nbytes] = data[offset : offset + nbytes]
        expect_equal(host, wanted, f"host memory around a copy_out of {nbytes} bytes")


@runtime_case("memory.copy/offset", "copy moves nbytes from src_offset of src to dst_offset of dst, within the device")
def copy_offset(bench: Bench) -> None:
    for dst_offset, nbytes in RANGES:
        src_offset = int(bench.random.integers(0, SIZE - nbytes + 1))
        source, target = bench.bytes(SIZE), bench.bytes(SIZE)
        src, dst = bench.upload(source), bench.upload(target)
        bench.device.copy(dst, dst_offset, src, src_offset, nbytes)
        target[dst_offset : dst_offset + nbytes] = source[src_offset : src_offset + nbytes]
        what = f"copy(dst_offset={dst_offset}, src_offset={src_offset}, {nbytes} bytes)"
        expect_equal(bench.download(dst, SIZE, np.uint8), target, what)
        expect_equal(bench.download(src, SIZE, np.uint8), source, f"source of {what}")


@runtime_case("memory.copy/overlap", "ranges of one buffer may overlap: the result is as if they did not")
def copy_overlap(bench: Bench) -> None:
    for dst_offset, src_offset, nbytes in (
        (0, 4, 1024),
        (4, 0, 1024),
        (1, 0, 999),
        (0, 3, 2000),
        (100, 100, 50),
        (64, 128, 4),
    ):
        data = bench.bytes(SIZE)
        buffer = bench.upload(data)
        bench.device.copy(buffer, dst_offset, buffer, src_offset, nbytes)
        data[dst_offset : dst_offset + nbytes] = data[src_offset : src_offset + nbytes].copy()
        what = f"copy(dst_offset={dst_offset}, src_offset={src_offset}, {nbytes} bytes) in one buffer"
        expect_equal(bench.download(buffer, SIZE, np.uint8), data, what)


@runtime_case("memory.copy_in/reusable", "copy_in returns when the source may be reused")
def reusable(bench: Bench) -> None:
    device = bench.device
    for number in range(20 * bench.rounds_factor):
        source = np.full(1 << 16, number, np.int32)
        buffer = device.allocate(source.nbytes)
        device.copy_in(buffer, 0, source)
        source[:] = -1
        wanted = np.full(1 << 16, number, np.int32)
        expect_equal(bench.download(buffer, 1 << 16), wanted, "a copy whose source changed after copy_in returned")


@runtime_case("memory.copy_in/host_memory", "a source may be read-only, and source and destination lie at any address")
def host_memory(bench: Bench) -> None:
    device = bench.device
    whole = bench.bytes(1000)
    for skip in (0, 1, 3, 5, 8, 13):
        buffer = device.allocate(512)
        source = whole[skip : skip + 512].tobytes() if skip % 2 else whole[skip : skip + 512]
        device.copy_in(buffer, 0, memoryview(bytes(skip) + bytes(source))[skip:])
        target = np.zeros(600, np.uint8)
        device.copy_out(target[skip + 1 : skip + 513], buffer, 0)
        device.synchronize()
        wanted = np.zeros(600, np.uint8)
        wanted[skip + 1 : skip + 513] = whole[skip : skip + 512]
        expect_equal(target, wanted, f"host memory at address + {skip}")


@runtime_case("memory.copy_in/strided", "a source with strides is copied in row-major order")
def strided(bench: Bench) -> None:
    grid = np.arange(9, dtype=np.int32).reshape(3, 3)
    cube = bench.ints(210).reshape(5, 6, 7)
    views = (
        grid[:, :2],
        grid.T,
        grid[::-1],
        cube[1:4, ::2, 3:],
        cube.transpose(2, 0, 1),
        cube[:, :, ::-3],
        cube[:, None, 2],
    )
    for view in views:
        buffer = bench.device.allocate(view.nbytes)
        bench.device.copy_in(buffer, 0, view)
        expect_equal(bench.download(buffer, view.size), view.reshape(-1), f"a source of strides {view.strides}")


@runtime_case("memory.copy/bounds", "a range that leaves a buffer raises BoundsError and changes nothing")
def bounds(bench: Bench) -> None:
    device = bench.device
    data = bench.bytes(64)
    buffer, other = bench.upload(data), bench.upload(bench.bytes(64))
    for offset, nbytes in ((0, 65), (64, 1), (-1, 4), (60, 5), (1 << 40, 1)):
        with raises(BoundsError, f"copy_in at {offset} of {nbytes} bytes", device.name):
            device.copy_in(buffer, offset, bytes(nbytes))
        with raises(BoundsError, f"copy_out at {offset} of {nbytes} bytes", device.name):
            device.copy_out(bytearray(nbytes), buffer, offset)
        with raises(BoundsError, f"copy to {offset} of {nbytes} bytes", device.name):
            device.copy(buffer, offset, other, 0, nbytes)
        with raises(BoundsError, f"fill at {offset} of {nbytes} bytes", device.name):
            device.fill(buffer, offset, nbytes, 0)
    expect_equal(bench.download(buffer, 64, np.uint8), data, "a buffer after refused copies")


@runtime_case("memory.copy_out/host_memory", "a destination that is read-only or has gaps is refused")
def bad_destination(bench: Bench) -> None:
    buffer = bench.upload(bench.bytes(64))
    with raises(BoundsError, "copy_out to bytes"):
        bench.device.copy_out(bytes(16), buffer, 0)
    with raises(BoundsError, "copy_out to a strided array"):
        bench.device.copy_out(np.zeros(64, np.uint8)[::2], buffer, 0)


@runtime_case("memory.copy/large", "copies of many MiB are whole: in, within, and out")
def large(bench: Bench) -> None:
    nbytes = (8 << 20) + 3
    data = bench.bytes(nbytes)
    source, target = bench.upload(data), bench.device.allocate(nbytes)
    bench.device.copy(target, 0, source, 0, nbytes)
    expect_equal(bench.download(target, nbytes, np.uint8), data, "8 MiB + 3 bytes copied in, within and out")


@runtime_case(
    "memory.copy/order", "copies of one stream happen in order: 400 random ones against a model in host memory"
)
def order(bench: Bench) -> None:
    device = bench.device
    models = [bench.bytes(777) for _ in range(3)]
    buffers = [bench.upload(model) for model in models]
    for _ in range(400):
        kind = int(bench.random.integers(3))
        i, j = (int(k) for k in bench.random.integers(3, size=2))
        nbytes = int(bench.random.integers(1, 200))
        at, start = (int(k) for k in bench.random.integers(0, 777 - nbytes, size=2))
        if kind == 0:
            part = bench.bytes(nbytes)
            device.copy_in(buffers[i], at, part)
            models[i][at : at + nbytes] = part
        elif kind == 1:
            device.copy(buffers[i], at, buffers[j], start, nbytes)
            models[i][at : at + nbytes] = models[j][start : start + nbytes].copy()
        else:
            found = bench.download(buffers[i], nbytes, np.uint8, at)
            expect_equal(found, models[i][at : at + nbytes], "a read among random copies")
    for buffer, model in zip(buffers, models, strict=True):
        expect_equal(bench.download(buffer, 777, np.uint8), model, "a buffer after 400 random copies")


@runtime_case("memory.copy_out/after_kernel", "a copy out sees what the kernels before it in the stream wrote")
def after_kernel(bench: Bench) -> None:
    for number in range(20 * bench.rounds_factor):
        out, busy = bench.filled(2), bench.filled(2)
        bench.spin(busy, 5, seconds=0.002)
        bench.spin(out, number + 10, seconds=0.002)
        expect_equal(bench.download(out, 1, np.uint32, 4), np.array([number + 10], np.uint32), "a kernel's result")


@runtime_case("memory.arrays/dtypes", "arrays of every stored dtype come back with the same bits")
def array_dtypes(bench: Bench) -> None:
    device = bench.device
    for dtype in dtypes.ALL:
        if not device.target.stores(dtype):
            with raises(UnsupportedError, f"an array of {dtype}", device.name, dtype.name):
                from_numpy(np.zeros(3, dtype.numpy), device)
            continue
        for count in (0, 1, 3, 64, 65, 1023):
            raw = bench.bytes(count * dtype.itemsize)
            data = (raw & 1).astype(np.bool_) if dtype.kind == "bool" else raw.view(dtype.numpy)
            if dtype.is_float and device.target.storage_of(dtype).bits != dtype.bits:
                with np.errstate(invalid="ignore"):  # signalling ones
                    data = np.where(np.isnan(data), np.zeros_like(data), data)  # payloads of NaN may change
            expect_equal(to_numpy(from_numpy(data, device)), data, f"{count} values of {dtype}")


@runtime_case("memory.arrays/hosts", "any strides, byte order and rank of a host array are understood")
def array_hosts(bench: Bench) -> None:
    cube = bench.ints(60).reshape(3, 4, 5)
    for view in (cube[:, ::2], cube.T, cube[::-1, :, 1], cube[1, 2, 3], cube.astype(">i4"), cube[:0]):
        found = to_numpy(from_numpy(np.asarray(view), bench.device))
        expect_equal(found, np.ascontiguousarray(view).astype(np.int32), f"a host array of strides {view.strides}")


@runtime_case("memory.arrays/odd_offsets", "elements of narrow dtypes at odd offsets are read and written alone")
def odd_offsets(bench: Bench) -> None:
    device = bench.device
    for dtype in (dtypes.bool_, dtypes.uint8, dtypes.int16, dtypes.float16):
        if not device.target.stores(dtype):
            continue
        values = np.array([1, 0, 1, 1, 0, 0, 1], np.int8).astype(dtype.numpy)
        x, y = from_numpy(values, device), from_numpy(values[::-1].copy(), device)
        item = x.storage.itemsize
        device.copy(x.buffer, item, y.buffer, 2 * item, item)
        wanted = values.copy()
        wanted[1] = values[::-1][2]
        expect_equal(to_numpy(x), wanted, f"{dtype}: x[1:2] = y[2:3] on the device")
        part = DeviceArray(device, x.buffer, 3 * item, dtype, (2,))
        expect_equal(to_numpy(part), wanted[3:5], f"{dtype}: x[3:5]")


@runtime_case("memory.copy/devices", "data moves to the other devices of the adapter and back unchanged", "two_devices")
def other_devices(bench: Bench) -> None:
    device = bench.device
    data = bench.ints(1001)
    for index in range(len(device.adapter.devices())):
        other = open_device(f"{device.adapter_name}:{index}")
        there = transfer(from_numpy(data, device), other)
        expect_equal(to_numpy(there), data, f"an array sent to {other.name}")
        expect_equal(to_numpy(transfer(there, device)), data, f"an array fetched from {other.name}")
        target = device.allocate(64)
        device.fill(target, 0, 64, 0)
        copy_across(target, 4, there.buffer, 8, 20)
        wanted = np.zeros(16, np.int32)
        wanted[1:6] = data[2:7]
        expect_equal(bench.download(target, 16), wanted, f"20 bytes from {other.name}")
        if other is not device:
            expect(other.usable, f"{other.name} is not usable after the copies")
            there = None  # type: ignore[assignment]
            other.close()
