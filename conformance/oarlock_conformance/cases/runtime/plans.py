"""Cases on whole plans: given once, replayed by one call, on other memory and with other scalars."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np

from oarlock.errors import BoundsError
from oarlock.hal import CopyStep, LaunchStep
from oarlock.runtime import Buffer, PreparedPlan
from oarlock_conformance import kernels
from oarlock_conformance.bench import Bench, expect, expect_equal, raises
from oarlock_conformance.registry import runtime_case


def _launch(bench: Bench, source: int, target: int, count: int, by: int) -> LaunchStep:
    program = bench.program(kernels.increment)
    signature = program.signatures["increment"]
    bindings = ((source, 0, 4 * count), (target, 0, 4 * count))
    return LaunchStep(program, "increment", (count, 1, 1), signature.block, bindings, signature.pack([0, 0, by]))


def _plan(bench: Bench, count: int = 64) -> PreparedPlan:
    """Slot 1 = slot 0 + 1; slot 2 = slot 1 + 10; the first half of slot 2 from slot 0."""
    steps = [_launch(bench, 0, 1, count, 1), _launch(bench, 1, 2, count, 10)]
    return bench.device.prepare([*steps, CopyStep(2, 0, 0, 0, 2 * count)])


def _wanted(data: np.ndarray, by: int = 11) -> np.ndarray:
    wanted = data + np.int32(by)
    wanted[: len(data) // 2] = data[: len(data) // 2]
    return wanted


@runtime_case("plan.replay/steps", "replay runs the launches and copies of a plan in order", "plans")
def steps(bench: Bench) -> None:
    plan = _plan(bench)
    data = bench.ints(64)
    buffers = [bench.upload(data), bench.filled(64), bench.filled(64)]
    for _ in range(3):
        plan.replay(buffers)
        expect_equal(bench.download(buffers[2], 64), _wanted(data), "a replayed plan")


@runtime_case("plan.replay/strands", "a strand runs in order, and where numbers fall all have ended", "plans")
def strands(bench: Bench) -> None:
    count = 64
    steps = [
        replace(_launch(bench, source, target, count, by), strand=strand)
        for source, target, by, strand in (
            (0, 1, 1, 1), (1, 2, 10, 1), (0, 3, 100, 2), (3, 4, 1000, 2),  # two strands
            (2, 0, 1, 1), (4, 1, 1, 2),  # two more, on memory that those have used
            (0, 3, 1, 0),  # one alone
        )
    ]  # fmt: skip
    plan = bench.device.prepare(steps)
    for _ in range(8):
        data = bench.ints(count)
        buffers = [bench.upload(data), *(bench.filled(count) for _ in range(4))]
        plan.replay(buffers)
        for slot, by in enumerate((12, 1101, 11, 13, 1100)):
            expect_equal(
                bench.download(buffers[slot], count), data + np.int32(by), f"slot {slot} after a plan of strands"
            )


@runtime_case("plan.replay/rebinds", "a plan may be replayed on other memory", "plans")
def rebinds(bench: Bench) -> None:
    plan = _plan(bench)
    sets = []
    for _ in range(5):
        data = bench.ints(64)
        buffers = [bench.upload(data), bench.filled(64), bench.filled(64)]
        plan.replay(buffers)
        sets.append((data, buffers))
    for data, buffers in sets:
        expect_equal(bench.download(buffers[2], 64), _wanted(data), "a plan replayed on other memory")


@runtime_case("plan.replay/scalars", "scalars given to replay count for that run alone", "plans")
def scalars(bench: Bench) -> None:
    plan = _plan(bench)
    signature = bench.program(kernels.increment).signatures["increment"]
    data = bench.ints(64)
    buffers = [bench.upload(data), bench.filled(64), bench.filled(64)]
    for by in (100, -3, 10):
        plan.replay(buffers, [(1, *signature.field(2, by))])
        expect_equal(bench.download(buffers[2], 64), _wanted(data, 1 + by), f"a plan replayed with {by}")
        plan.replay(buffers)
        expect_equal(bench.download(buffers[2], 64), _wanted(data), "the next replay without scalars")


@runtime_case("plan.replay/order", "replays are in stream order with everything else", "plans")
def order(bench: Bench) -> None:
    plan = _plan(bench, 32)
    buffers: list[Buffer] = [bench.filled(32), bench.filled(32), bench.filled(32)]
    for number in range(40):
        bench.device.copy_in(buffers[0], 0, np.full(32, number, np.int32))
        plan.replay(buffers)
        bench.increment(buffers[1], buffers[2], 32, 1000)
    wanted = np.full(32, 1039, np.int32)
    wanted[16:] += 11
    expect_equal(bench.download(buffers[1], 32), wanted, "40 rounds of copy, replay, launch")


@runtime_case("plan.prepare/many", "many plans live at once, and dropped ones leave nothing behind", "plans")
def many(bench: Bench) -> None:
    before = bench.device.stats().plans
    plans = [bench.device.prepare([_launch(bench, 0, 1, 8, number)]) for number in range(60)]
    x = bench.filled(8, 1)
    for number in (59, 0, 30):
        y = bench.filled(8)
        plans[number].replay([x, y])
        expect_equal(bench.download(y, 8), np.full(8, number + 1, np.int32), f"plan {number} of 60")
    plans.clear()
    gc.collect()
    bench.device.synchronize()
    expect(bench.device.stats().plans <= before, "plans are alive after they were dropped")


@runtime_case("plan.prepare/keeps_programs", "a plan keeps the programs of its steps loaded while it lives", "plans")
def keeps_programs(bench: Bench) -> None:
    device = bench.device
    program = bench.load(kernels.scale(17))
    signature = program.signatures["scale"]
    step = LaunchStep(program, "scale", (16, 1, 1), signature.block, ((0, 0, 64), (1, 0, 64)), signature.pack([0, 0]))
    plan = device.prepare([step])
    del program, step
    gc.collect()
    device.synchronize()
    device.trim()
    data = bench.ints(16)
    x, y = bench.upload(data), bench.filled(16)
    for _ in range(3):  # again before the run before it has ended
        plan.replay([x, y])
    expect_equal(bench.download(y, 16), data * np.int32(17), "a plan whose program was dropped")


@runtime_case("plan.replay/checked", "a replay on too few buffers is refused", "plans")
def checked(bench: Bench) -> None:
    plan = _plan(bench)
    with raises(BoundsError, "a replay on one buffer", bench.device.name):
        plan.replay([bench.filled(64)])
    bench.works()
