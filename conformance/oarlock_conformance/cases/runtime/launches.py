"""Cases on launches: every block runs once, with the buffers, offsets and scalars that were given, in order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oarlock import dtypes
from oarlock.errors import BoundsError, DeviceError, UnsupportedError
from oarlock.runtime import Buffer
from oarlock_conformance import kernels
from oarlock_conformance.bench import Bench, expect_equal, raises
from oarlock_conformance.registry import runtime_case

_ROWS = (1, 2, 3, 7, 31, 63, 64, 65, 127, 255, 256, 257, 1000, 1023, 1025, 4099)
_BOXES = (
    (1, 1, 1), (2, 1, 1), (1, 3, 1), (1, 1, 5), (2, 3, 4), (7, 5, 3), (1, 64, 2), (3, 1, 17), (65, 3, 2), (1, 1, 65),
    (13, 11, 1), (1, 255, 1),
)  # fmt: skip


def _stamped(bench: Bench, grid: tuple[int, int, int]) -> None:
    """Every block of ``grid`` adds its mark once, between guards that stay."""
    count = grid[0] * grid[1] * grid[2]
    guard = 64
    start = np.concatenate([np.full(guard, -7), np.zeros(count), np.full(guard, -7)]).astype(np.int32)
    out = bench.upload(start)
    bench.stamp(out, grid, 1000, 4 * guard)
    wanted = start.copy()
    wanted[guard : guard + count] = 1000 + np.arange(count)
    expect_equal(bench.download(out, count + 2 * guard), wanted, f"marks of the blocks of grid {grid}, guards around")


@runtime_case("launch.grid/row", "launch runs each of grid blocks once: rows of many lengths")
def rows(bench: Bench) -> None:
    for count in _ROWS:
        _stamped(bench, (count, 1, 1))


@runtime_case("launch.grid/box", "launch runs each of grid blocks once: grids of two and three dimensions")
def boxes(bench: Bench) -> None:
    for grid in _BOXES:
        _stamped(bench, grid)


@runtime_case("launch.grid/large", "a grid may reach max_grid: 65,535 blocks, and more where they are allowed")
def large(bench: Bench) -> None:
    most = bench.device.target.limits.max_grid
    for count in (65535, 65537, 300_001):
        if count <= most[0]:
            _stamped(bench, (count, 1, 1))
    for axis in (1, 2):
        grid = [1, 1, 1]
        grid[axis] = min(65535, most[axis])
        _stamped(bench, (grid[0], grid[1], grid[2]))


@runtime_case("launch.grid/empty", "an empty grid does nothing")
def empty(bench: Bench) -> None:
    out = bench.filled(8, 3)
    for grid in ((0, 1, 1), (1, 0, 1), (4, 4, 0), (0, 0, 0)):
        bench.stamp(out, grid)
    expect_equal(bench.download(out, 8), np.full(8, 3, np.int32), "a buffer after empty launches")


@runtime_case("launch.grid/limit", "a grid past max_grid raises BoundsError that names the kernel")
def beyond(bench: Bench) -> None:
    out = bench.filled(8)
    most = bench.device.target.limits.max_grid
    for grid in ((most[0] + 1, 1, 1), (1, most[1] + 1, 1), (1, 1, most[2] + 1), (-1, 1, 1)):
        with raises(BoundsError, f"grid {grid}", "stamp"):
            bench.stamp(out, grid)
    bench.works()


@runtime_case("launch.buffers/offsets", "each buffer has its own offset: base of the binding plus element offset")
def offsets(bench: Bench) -> None:
    count = 61
    for x_at in (0, 4, 64, 96, 100, 128, 256, 260, 1020, 4096):
        for y_at in (0, 4, 252, 512, 772):
            data = bench.ints(2048)
            start = bench.ints(1024)
            x, y = bench.upload(data), bench.upload(start)
            bench.increment(y, x, count, 3, y_at=y_at, x_at=x_at)
            start[y_at // 4 : y_at // 4 + count] = data[x_at // 4 : x_at // 4 + count] + np.int32(3)
            expect_equal(bench.download(y, 1024), start, f"y at byte {y_at}, x at byte {x_at}")


@runtime_case("launch.buffers/far_offset", "an offset far into a buffer is met exactly")
def far_offset(bench: Bench) -> None:
    data = bench.ints(100_000)
    x, y = bench.upload(data), bench.filled(64)
    for x_at in (321_984, 399_996 - 63 * 4, 262_144):
        bench.increment(y, x, 64, 0, x_at=x_at)
        expect_equal(bench.download(y, 64), data[x_at // 4 : x_at // 4 + 64], f"x at byte {x_at}")


@runtime_case("launch.buffers/many", "a kernel may have max_buffers buffers, each bound in its place")
def many(bench: Bench) -> None:
    most = min(bench.device.target.limits.max_buffers, 64) - 1
    for inputs in sorted({1, 2, 3, min(7, most), most}):
        data = [bench.ints(37) for _ in range(inputs)]
        out = bench.filled(37)
        buffers = [(bench.upload(each), 0) for each in data]
        bench.launch(bench.program(kernels.weighted_sum, inputs), (37, 1, 1), [*buffers, (out, 0)])
        weights = np.arange(1, inputs + 1, dtype=np.int32)[:, None]
        wanted = (np.stack(data) * weights).sum(axis=0, dtype=np.int32)
        expect_equal(bench.download(out, 37), wanted, f"weighted sum of {inputs} buffers")


@runtime_case("launch.buffers/too_many", "a kernel of more than max_buffers buffers is refused when it is loaded")
def too_many(bench: Bench) -> None:
    most = bench.device.target.limits.max_buffers
    good = bench.program(kernels.increment).executable
    signature = replace(good.signatures[0], buffers=good.signatures[0].buffers[:1] * (most + 1))
    with raises(BoundsError, f"loading a kernel of {most + 1} buffers", "buffers"):
        bench.device.load(replace(good, signatures=(signature,)))
    bench.works()


@runtime_case(
    "launch.buffers/twice", "one buffer may be bound twice; with exclusive_binding that raises UnsupportedError"
)
def twice(bench: Bench) -> None:
    data = bench.ints(256)
    buffer = bench.upload(data)
    if bench.device.target.limits.exclusive_binding:
        with raises(UnsupportedError, "one allocation bound twice"):
            bench.increment(buffer, buffer, 64, 1, y_at=512)
        bench.works()
        return
    bench.increment(buffer, buffer, 64, 1, y_at=512)
    data[128:192] = data[:64] + np.int32(1)
    expect_equal(bench.download(buffer, 256), data, "two ranges of one buffer, read and written")


@runtime_case("launch.buffers/empty", "an empty operand binds memory that a kernel may be given and does not use")
def empty_operand(bench: Bench) -> None:
    out = bench.filled(5)
    none = bench.device.allocate(0)
    bench.launch(bench.program(kernels.increment), (0, 1, 1), [(none, 0), (out, 0)], [1])
    bench.launch(bench.program(kernels.sum_of), (1, 1, 1), [(none, 0), (out, 0)], [0])
    wanted = np.array([-1, 0, 0, 0, 0], np.int32)
    expect_equal(bench.download(out, 5), wanted, "a kernel that is given an empty operand and does not read it")


@runtime_case("launch.scalars/types", "scalars of each dtype arrive as they were given")
def scalars(bench: Bench) -> None:
    target = bench.device.target
    names = ("int32", "uint32", "float32", "int64", "uint64", "float64")
    kinds = [dtypes.by_name(name) for name in names if name in target.compute]
    values = {
        "int32": (-(2**31), -1, 0, 2**31 - 1), "uint32": (0, 1, 2**31, 2**32 - 1),
        "float32": (0.5, -1.25, 3.4028234663852886e38, 1.5e-30), "int64": (-(2**63), -1, 2**32, 2**63 - 1),
        "uint64": (0, 2**32, 2**63, 2**64 - 1), "float64": (0.1, -2.5, 1.7976931348623157e308, 1e-300),
    }  # fmt: skip
    for chosen in (kinds[:3], kinds[3:], kinds):
        if not chosen or len(chosen) > target.limits.max_buffers:
            continue
        program = bench.program(kernels.copy_scalars, tuple(chosen))
        for round_ in range(4):
            outs: list[Buffer] = [bench.filled(2) for _ in chosen]
            given = [values[kind.name][round_] for kind in chosen]
            bench.launch(program, (1, 1, 1), [(out, 0) for out in outs], given)
            for kind, out, value in zip(chosen, outs, given, strict=True):
                found = bench.download(out, 1, kind.numpy)
                expect_equal(found, np.array([value]).astype(kind.numpy), f"scalar {value} of {kind}")


@runtime_case("launch.scalars/kept", "scalars are taken when launch is called: each of 100 launches sees its own")
def scalars_kept(bench: Bench) -> None:
    out = bench.device.allocate(400)
    program = bench.program(kernels.broadcast_scalar)
    for number in range(100):
        bench.launch(program, (1, 1, 1), [(out, 4 * number)], [number / 4])
    expect_equal(bench.download(out, 100, np.float32), np.arange(100, dtype=np.float32) / 4, "a scalar a launch")


@runtime_case(
    "launch.arguments/checked", "a launch that does not fit its signature raises an error that names the kernel"
)
def checked(bench: Bench) -> None:
    device, program = bench.device, bench.program(kernels.stamp)
    out = bench.filled(4)
    block = program.signatures["stamp"].pack([0, 1, 1, 1])
    with raises(DeviceError, "an unknown entry", "stamp"):
        device.launch(program, "stump", (1, 1, 1), [(out, 0)], block)
    for buffers, given in (
        ([], block),
        ([(out, 0), (out, 0)], block),
        ([(out, 0)], b""),
        ([(out, 0)], block + b"\0" * 8),
    ):
        with raises(BoundsError, f"{len(buffers)} buffers and {len(given)} scalar bytes", "stamp"):
            device.launch(program, "stamp", (1, 1, 1), buffers, given)
    with raises(BoundsError, "an offset outside its buffer", "stamp"):
        device.launch(program, "stamp", (1, 1, 1), [(out, 17)], block)
    bench.works()


@runtime_case("launch.order/chain", "launches of one stream run in order: a chain of 300 that depend on each other")
def chain(bench: Bench) -> None:
    for count in (1, 64, 1000):
        x, y = bench.filled(count, 5), bench.filled(count)
        for _ in range(150):
            bench.increment(y, x, count, 1)
            bench.increment(x, y, count, 2)
        expect_equal(bench.download(x, count), np.full(count, 455, np.int32), f"300 launches over {count} blocks")


@runtime_case("launch.order/mixed", "launches, copies and fills of one stream happen in the order they were given")
def mixed(bench: Bench) -> None:
    device = bench.device
    x, y = bench.filled(64), bench.filled(64)
    wanted = np.zeros(64, np.int32)
    for number in range(60):
        device.copy_in(x, 0, np.full(64, number, np.int32))
        bench.increment(y, x, 64, 7)
        device.copy(x, 0, y, 128, 64)
        if number % 3 == 0:
            device.fill(x, 0, 4, 0)
        bench.increment(y, x, 64, 1)
        wanted = np.full(64, number + 1, np.int32)
        wanted[:16] = number + 8
        if number % 3 == 0:
            wanted[0] = 1
    expect_equal(bench.download(y, 64), wanted, "60 rounds of copies, launches and fills")


@runtime_case("launch.order/many", "3,000 launches without waiting in between all run")
def many_launches(bench: Bench) -> None:
    out = bench.filled(16)
    for _ in range(3000):
        bench.stamp(out, (16, 1, 1))
    expect_equal(bench.download(out, 16), 3000 * (1 + np.arange(16, dtype=np.int32)), "3,000 launches")


@runtime_case(
    "launch.block/threads",
    "a block has the threads its signature states, with local memory and barriers",
    "threads",
)
def threads(bench: Bench) -> None:
    limits = bench.device.target.limits
    for count in sorted({2, 32, min(64, limits.max_block[0]), min(256, limits.max_block[0], limits.max_threads)}):
        if count > limits.max_threads or count * 4 > limits.local_memory:
            continue
        data = bench.ints(count * 5)
        x, y = bench.upload(data), bench.filled(count * 5)
        bench.launch(bench.program(kernels.reverse_in_block, count), (5, 1, 1), [(x, 0), (y, 0)])
        wanted = data.reshape(5, count)[:, ::-1].reshape(-1)
        expect_equal(bench.download(y, count * 5), wanted, f"blocks of {count} threads")


@runtime_case("launch.block/limit", "a block past max_block or max_threads is refused when it is loaded")
def block_limit(bench: Bench) -> None:
    limits = bench.device.target.limits
    good = bench.program(kernels.increment).executable
    for block in (
        (limits.max_block[0] + 1, 1, 1),
        (1, limits.max_block[1] + 1, 1),
        (1, 1, limits.max_block[2] + 1),
        (0, 1, 1),
    ):
        signature = replace(good.signatures[0], block=block)
        with raises(BoundsError, f"loading a kernel of blocks {block}", "block"):
            bench.device.load(replace(good, signatures=(signature,)))
    bench.works()
