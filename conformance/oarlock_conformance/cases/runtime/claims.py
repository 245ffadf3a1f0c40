"""Claims probed, limits and dtypes: what a Target declares works up to its edge, and past it is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import BoundsError, CompileError, OutOfMemoryError, UnsupportedError
from oarlock.runtime import DeviceArray, Program, empty, from_numpy, to_numpy
from oarlock_conformance import kernels
from oarlock_conformance.bench import Bench, expect, expect_equal, raises, setting
from oarlock_conformance.registry import runtime_case

MIB = 1 << 20
_FLOATS = ("float16", "bfloat16", "float32", "float64")


@runtime_case("claims.limits/max_grid", "max_grid: a grid may be as large in each dimension; its last block runs once")
def max_grid(bench: Bench) -> None:
    device = bench.device
    most = 1 << 20 if bench.options.quick else 1 << 27  # blocks that a host can walk through in a reasonable time
    for axis, limit in enumerate(device.target.limits.max_grid):
        grid = [1, 1, 1]
        grid[axis] = min(limit, most)
        out = bench.filled(2)
        last = [size - 1 for size in grid]
        bench.launch(bench.program(kernels.last_block), (grid[0], grid[1], grid[2]), [(out, 0)], last)
        expect_equal(bench.download(out, 2), np.array([1, 0], np.int32), f"the last block of grid {tuple(grid)}")


@runtime_case("claims.limits/max_block", "max_block and max_threads: blocks may have as many threads", "threads")
def max_block(bench: Bench) -> None:
    limits = bench.device.target.limits
    x, y, z = (min(size, limits.max_threads) for size in limits.max_block)
    cube = min(4, y, z)
    blocks = {(x, 1, 1), (1, y, 1), (1, 1, z), (min(x, limits.max_threads // cube**2), cube, cube)}
    program = bench.load(*(kernels.thread_ids(block) for block in sorted(blocks)))
    for (entry, _), block in zip(program.signatures.items(), sorted(blocks), strict=True):
        count = block[0] * block[1] * block[2]
        out = bench.filled(count + 8)
        bench.launch(program, (1, 1, 1), [(out, 0)], entry=entry)
        wanted = np.zeros(count + 8, np.int32)
        wanted[:count] = 1000 + np.arange(count)
        expect_equal(bench.download(out, count + 8), wanted, f"the threads of a block of {block}")
    good = bench.program(kernels.increment).executable
    signature = replace(good.signatures[0], block=(x, 2 * limits.max_threads // x, 1))
    with raises(BoundsError, f"loading a kernel of {2 * limits.max_threads} threads", "block"):
        bench.device.load(replace(good, signatures=(signature,)))


@runtime_case("claims.limits/local_memory", "local_memory: a block may use all of it, and no more")
def local_memory(bench: Bench) -> None:
    limits = bench.device.target.limits
    threads = min(64, limits.max_threads, limits.max_block[0])
    size = limits.local_memory // 4
    if size:
        data = bench.ints(size)
        x, y = bench.upload(data), bench.filled(size)
        bench.launch(bench.program(kernels.local_ring, size, threads), (1, 1, 1), [(x, 0), (y, 0)])
        expect_equal(bench.download(y, size), data[::-1], f"{4 * size} bytes of local memory")
    with raises(UnsupportedError, f"a kernel of {limits.local_memory + 4} bytes of local memory", "local memory"):
        bench.load(kernels.local_ring(limits.local_memory // 4 + 1, threads))
    bench.works()


@runtime_case("claims.limits/vector_width", "vector_width: loads, sums and stores of as many float32 lanes are right")
def vector_width(bench: Bench) -> None:
    widest = bench.device.target.limits.vector_width
    widths = sorted({n for n in (2, 4, 8, 16) if n < widest} | {widest})
    program = bench.load(*(kernels.vectors(lanes) for lanes in widths))
    for lanes, entry in zip(widths, program.signatures, strict=True):
        data = bench.ints(lanes * 7).astype(np.float32)
        x, y = bench.upload(data), bench.filled(lanes * 7)
        bench.launch(program, (7, 1, 1), [(x, 0), (y, 0)], entry=entry)
        wanted = data + np.float32(0.5)
        expect_equal(bench.download(y, lanes * 7, np.float32), wanted, f"vectors of {lanes} float32")
    bench.works()


@runtime_case("claims.limits/max_buffers", "max_buffers: a kernel may have as many, and no more")
def max_buffers(bench: Bench) -> None:
    most = bench.device.target.limits.max_buffers
    inputs = min(most, 128) - 1
    data = [bench.ints(5) for _ in range(inputs)]
    out = bench.filled(5)
    bench.launch(
        bench.program(kernels.weighted_sum, inputs), (5, 1, 1), [*((bench.upload(d), 0) for d in data), (out, 0)]
    )
    weights = np.arange(1, inputs + 1, dtype=np.int32)[:, None]
    wanted = (np.stack(data) * weights).sum(axis=0, dtype=np.int32)
    expect_equal(bench.download(out, 5), wanted, f"a kernel of {inputs + 1} buffers")
    good = bench.program(kernels.increment).executable
    signature = replace(good.signatures[0], buffers=good.signatures[0].buffers[:1] * (most + 1))
    with raises(BoundsError, f"a kernel of {most + 1} buffers", str(most)):
        bench.device.load(replace(good, signatures=(signature,)))


@runtime_case("claims.limits/max_scalar_bytes", "max_scalar_bytes: a scalar block may be as large, and no larger")
def max_scalar_bytes(bench: Bench) -> None:
    most = bench.device.target.limits.max_scalar_bytes
    count = min(most, 4096) // 4 - 1
    values = [int(v) for v in bench.random.integers(-1000, 1000, count)]
    out = bench.filled(1)
    program = bench.load(kernels.sum_of_scalars(count))
    (signature,) = program.signatures.values()
    bench.launch(program, (1, 1, 1), [(out, 0)], values)
    wanted = np.array([sum((k + 1) * v for k, v in enumerate(values))], np.int32)
    expect_equal(bench.download(out, 1), wanted, f"a scalar block of {signature.scalar_bytes} bytes")
    large = replace(signature, scalar_bytes=most + 4)
    with raises(BoundsError, f"a kernel of {most + 4} scalar bytes", "scalar"):
        bench.device.load(replace(program.executable, signatures=(large,)))


@runtime_case("claims.limits/max_allocation", "max_allocation: one allocation may be as large, and no larger")
def max_allocation(bench: Bench) -> None:
    device = bench.device
    limit = device.target.limits.max_allocation
    nbytes = min(limit, device.info.memory // 4, 256 * MIB if bench.options.quick else 1 << 33)
    first, last = bench.bytes(4096), bench.bytes(4096)
    with setting("poison", False):  # which would touch it all
        buffer = device.allocate(nbytes)
        device.copy_in(buffer, 0, first)
        device.copy_in(buffer, nbytes - 4096, last)
        expect_equal(bench.download(buffer, 4096, np.uint8), first, f"the first bytes of {nbytes // MIB} MiB")
        found = bench.download(buffer, 4096, np.uint8, nbytes - 4096)
        expect_equal(found, last, f"the last bytes of {nbytes // MIB} MiB")
        buffer.free()
        device.trim()
    with raises(OutOfMemoryError, f"allocate({limit + 1})", device.name):
        device.allocate(limit + 1)


@runtime_case("claims.memory/total", "memory: a good part of DeviceInfo.memory can be had, in several allocations")
def total(bench: Bench) -> None:
    device = bench.device
    piece = min(64 * MIB, device.target.limits.max_allocation, device.info.memory // 16)
    pieces = 4 if bench.options.quick else min(12, device.info.memory // piece * 3 // 4)
    with setting("poison", False):  # which would touch it all
        kept = [device.allocate(piece) for _ in range(pieces)]
        for number, buffer in enumerate(kept):
            device.copy_in(buffer, piece - 16, bytes([number]) * 16)
        for number, buffer in enumerate(kept):
            found = bench.download(buffer, 16, np.uint8, piece - 16)
            expect_equal(found, np.full(16, number, np.uint8), f"the end of allocation {number} of {piece // MIB} MiB")
        kept.clear()
        device.trim()


@runtime_case("claims.limits/max_binding", "max_binding: a binding may span as much, and no more")
def max_binding(bench: Bench) -> None:
    device = bench.device
    limits = device.target.limits
    nbytes = min(limits.max_binding, limits.max_allocation, device.info.memory // 4, 128 * MIB) // 4 * 4
    data = bench.ints(16)
    with setting("poison", False):
        x, y = device.allocate(nbytes), bench.filled(16)
        device.copy_in(x, nbytes - 64, data)
        bench.increment(y, x, 16, 1, x_at=nbytes - 64)
        expect_equal(bench.download(y, 16), data + np.int32(1), f"the last elements of a binding of {nbytes} bytes")
        if limits.max_binding < min(limits.max_allocation, device.info.memory // 4):
            x = device.allocate(limits.max_binding + max(4, limits.binding_alignment or 4))
            with raises(BoundsError, f"a binding of more than {limits.max_binding} bytes", "binding"):
                bench.increment(y, x, 1, 1)
        x.free()
        device.trim()


@runtime_case("claims.limits/binding_alignment", "binding_alignment: a base may be any multiple of it")
def binding_alignment(bench: Bench) -> None:
    device = bench.device
    step = device.target.limits.binding_alignment or 4
    data = bench.ints(max(1024, 6 * step // 4 + 64))
    x = bench.upload(data)
    for multiple in (1, 2, 3, 5):
        at = multiple * step - multiple * step % 4
        y = bench.filled(32)
        bench.increment(y, x, 32, 2, x_at=at)
        base, elements = device.split_offset(at, 4)
        expect(base + 4 * elements == at, f"split_offset({at}) gives base {base} and {elements} elements")
        expect_equal(bench.download(y, 32), data[at // 4 : at // 4 + 32] + np.int32(2), f"a binding at byte {at}")


@runtime_case("claims.limits/copy_alignment", "copy_alignment: offsets and sizes of copies may be any multiple of it")
def copy_alignment(bench: Bench) -> None:
    device = bench.device
    step = device.target.limits.copy_alignment
    data = bench.bytes(64 * step)
    buffer = bench.upload(data)
    with device.using("copy_in"):
        for first, count in ((1, 1), (3, 2), (7, 25)):  # straight to the driver: the core would widen the odd ones
            part = bench.bytes(step * count)
            device.driver.copy_in(None, buffer.allocation.handle, first * step, part.data)
            data[first * step : (first + count) * step] = part
    expect_equal(bench.download(buffer, data.size, np.uint8), data, f"copies at multiples of {step}")
    with device.using("copy"):
        device.driver.copy(None, buffer.allocation.handle, 40 * step, buffer.allocation.handle, step, 11 * step)
    data[40 * step : 51 * step] = data[step : 12 * step].copy()
    expect_equal(bench.download(buffer, data.size, np.uint8), data, f"a copy at multiples of {step}")


@runtime_case("claims.dtypes/compute", "compute: every dtype it names is computed, and wraps or rounds as its own")
def compute(bench: Bench) -> None:
    kinds = [dtypes.by_name(name) for name in sorted(bench.device.target.compute)]
    program = bench.load(*(kernels.arithmetic(dtype) for dtype in kinds))
    for dtype, entry in zip(kinds, program.signatures, strict=True):
        x, y = _values(bench, dtype), _values(bench, dtype)[::-1].copy()
        with np.errstate(all="ignore"):
            wanted = (x & y) | x if dtype.kind == "bool" else (x * y + x).astype(dtype.numpy)
        expect_equal(_run(bench, program, entry, dtype, x, y), wanted, f"x * y + x of {dtype}")


@runtime_case("claims.dtypes/storage", "storage: every value of a dtype survives in the physical dtype that holds it")
def storage(bench: Bench) -> None:
    for name, _ in bench.device.target.storage:
        dtype = dtypes.by_name(name)
        if dtype.itemsize <= 2:
            raw = np.arange(256 if dtype.itemsize == 1 else 65536, dtype=np.uint32)
            data = (raw < 2) if dtype.kind == "bool" else raw.astype(f"u{dtype.itemsize}").view(dtype.numpy)
        else:
            data = bench.bytes(4096 * dtype.itemsize).view(dtype.numpy)
        if dtype.is_float:
            with np.errstate(invalid="ignore"):
                data = data[~np.isnan(data)]
        expect_equal(to_numpy(from_numpy(data, bench.device)), data, f"{data.size} values of {dtype}")


@runtime_case("claims.dtypes/undeclared", "a dtype that is not declared is refused, by arrays and by kernels")
def undeclared(bench: Bench) -> None:
    device = bench.device
    for dtype in dtypes.ALL:
        if not device.target.stores(dtype):
            with raises(UnsupportedError, f"an array of {dtype}", device.name, dtype.name):
                empty(device, dtype, (4,))
            with raises(UnsupportedError, f"a kernel of {dtype}", dtype.name):
                bench.load(kernels.arithmetic(dtype))
    bench.works()


def _values(bench: Bench, dtype: DType) -> npt.NDArray[Any]:
    """Values whose products and sums are exact in a float ``dtype``, and wrap in an integer one."""
    if dtype.kind == "bool":
        return bench.bytes(64) > 127
    if dtype.is_integer:
        return bench.bytes(64 * dtype.itemsize).view(dtype.numpy)
    return bench.random.integers(-7, 8, 64).astype(dtype.numpy)


def _run(
    bench: Bench, program: Program, entry: str, dtype: DType, x: npt.NDArray[Any], y: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """A kernel of two operands and one result, on arrays of ``dtype``."""
    device = bench.device
    arrays = [from_numpy(x, device), from_numpy(y, device), empty(device, dtype, x.shape)]
    bench.launch(program, (x.size, 1, 1), [(a.buffer, 0) for a in arrays], entry=entry)
    return to_numpy(DeviceArray(device, arrays[2].buffer, 0, dtype, x.shape))


def _register_subnormals(name: str) -> None:
    @runtime_case(
        f"claims.flush_to_zero/{name}",
        f"subnormal {name} are kept, in operands and results; where flush_to_zero names it, 0 may stand for one",
        f"computes {name}",
    )
    def check(bench: Bench) -> None:
        dtype = dtypes.by_name(name)
        tiny = np.finfo(dtype.numpy).tiny if name != "bfloat16" else np.asarray(2.0**-126, dtype.numpy)
        steps = (2.0 ** -np.arange(-3, 6)).astype(dtype.numpy)
        x = np.concatenate([np.full(9, tiny), -np.full(9, tiny), tiny * steps[::-1], np.full(4, tiny / 4)])
        y = np.concatenate([steps, steps, steps, np.array([8, 1, 0.5, 4])]).astype(dtype.numpy)
        x = x.astype(dtype.numpy)
        found = _run(bench, bench.load(kernels.scaled(dtype)), "", dtype, x, y)
        wanted = (x * y).astype(dtype.numpy)
        if name in bench.device.target.flush_to_zero:
            small = ((np.abs(x) < tiny) | (np.abs(wanted) < tiny)) & (wanted != 0)
            flushed = small & (found == 0)
            expect(
                bool(flushed.any()), f"flush_to_zero names {dtype}, and the device keeps its subnormals: do not name it"
            )
            wanted = np.where(flushed, found, wanted)
        expect_equal(found, wanted, f"products of {dtype} at the edge of the subnormal ones")


for _name in _FLOATS:
    _register_subnormals(_name)


@runtime_case("claims.abilities/words", "abilities: each is a known word, and what it promises is there")
def abilities(bench: Bench) -> None:
    target = bench.device.target
    known = ("local_memory", "atomics", "fma", "subgroup_N", "matrix_float16", "matrix_bfloat16", "matrix_tf32")
    unknown = sorted(word for word in target.abilities if re.sub(r"^subgroup_\d+$", "subgroup_N", word) not in known)
    expect(not unknown, f"the target declares the abilities {unknown}, which nothing asks for; there are {known}")
    if "local_memory" in target.abilities:
        expect(target.limits.local_memory > 0, "ability local_memory is declared, and limits.local_memory is 0")
    if "fma" in target.abilities:
        x = (1 + np.arange(1, 65) * np.float32(2.0**-12)).astype(np.float32)
        exact = x.astype(np.float64) * x.astype(np.float64)
        z = -(x * x)
        device = bench.device
        arrays = [from_numpy(each, device) for each in (x, x, z)]
        bench.launch(bench.program(kernels.fused), (64, 1, 1), [(a.buffer, 0) for a in arrays])
        wanted = (exact + z.astype(np.float64)).astype(np.float32)
        expect_equal(to_numpy(arrays[2]), wanted, "fma(x, x, -x*x): what one rounding leaves")


@runtime_case("claims.language/renders", "language: there is a renderer for it, and the device compiles what it writes")
def language(bench: Bench) -> None:
    bench.load(kernels.scale(1_000_003))
    bench.works()
    with setting("cache", False), raises(CompileError, "a program of no kernels at all"):
        _compile_nothing(bench)


def _compile_nothing(bench: Bench) -> None:
    device = bench.device
    signature = bench.program(kernels.increment).executable.signatures[0]
    device.load(device.compile("", [replace(signature, name="absent")]))
