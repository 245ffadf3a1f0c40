"""Cases on compiled programs: run again and again, on other memory, of many sizes, many at once, refused operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from oarlock import dtypes
from oarlock.errors import DTypeError, OarlockError, ShapeError
from oarlock.ir import ScalarType, TensorType, Type, Value
from oarlock.ops import ArrayBuilder
from oarlock.runtime import DeviceArray, from_numpy, to_numpy
from oarlock.runtime.kernels import kernels_of
from oarlock_conformance.bench import raises
from oarlock_conformance.case import Failure
from oarlock_conformance.cases.programs.register import Stage, chain, chained, expect_array, program_case

_ROUNDS = 30


@program_case("compiled.replay/data", "a program is compiled once and run on any data, each run giving its own results")
def other_data(stage: Stage) -> None:
    plan = None
    for seed in range(_ROUNDS):
        x, y = stage.whole(9, 31, seed=seed), stage.whole(31, 12, seed=seed + 100)
        plan = plan or stage.plan([x, y], chain)
        for number, (got, want) in enumerate(zip(stage.run(plan, x, y), chained(x, y), strict=True)):
            expect_array(f"run {seed + 1}, result {number}", got, want)


@program_case("compiled.replay/kept", "results of a run stay as they are when the program runs again")
def results_stay(stage: Stage) -> None:
    x, y = stage.whole(9, 31), stage.whole(31, 12)
    plan = stage.plan([x, y], chain)
    runs = []
    for seed in range(_ROUNDS):
        x = stage.whole(9, 31, seed=seed)
        runs.append((chained(x, y), plan.run(stage.put(x, y))))
    for number, (want, found) in enumerate(runs):
        for place, result in enumerate(found):
            expect_array(
                f"result {place} of run {number + 1}, read after {_ROUNDS} runs", to_numpy(result), want[place]
            )


@program_case("compiled.replay/offsets", "operands may lie anywhere in a buffer, elsewhere in each run")
def offsets(stage: Stage) -> None:
    x, y = stage.whole(5, 8), stage.whole(8, 6)
    plan = stage.plan([x, y], chain)
    for start in (0, 1, 3, 16, 64, 77):
        held = np.full(start + x.size + y.size + 9, 1e9, np.float32)
        held[start : start + x.size] = x.reshape(-1)
        held[start + x.size + 1 : start + x.size + 1 + y.size] = y.reshape(-1)
        buffer = from_numpy(held, stage.device).buffer
        places = (start * 4, (start + x.size + 1) * 4)
        given = [
            DeviceArray(stage.device, buffer, place, dtypes.float32, array.shape)
            for place, array in zip(places, (x, y), strict=True)
        ]
        for got, want in zip(plan.run(given), chained(x, y), strict=True):
            expect_array(f"operands at element {start}", to_numpy(got), want)


@program_case("compiled.replay/scalars", "run-time scalars belong to the run, not to the program")
def scalars(stage: Stage) -> None:
    x = stage.whole(4, 65)
    types: list[Type] = [TensorType(dtypes.float32, x.shape), ScalarType(dtypes.float32), ScalarType(dtypes.int32)]

    def body(b: ArrayBuilder, x: Value, scale: Value, shift: Value) -> list[Value]:
        factor = b("from_scalar", scale)
        moved = b("add", b("multiply", x, factor), b.convert(b("from_scalar", shift), dtypes.float32))
        return [moved, b("reduce_sum", moved, axes=(1,))]

    plan = stage.plan(types, body)
    for scale, shift in ((1.0, 0), (-2.0, 7), (0.5, -3), (0.0, 1), (1.0, 0)):
        moved, total = stage.run(plan, x, scale, shift)
        expect_array(f"x * {scale} + {shift}", moved, x * np.float32(scale) + np.float32(shift))
        expect_array(f"its row sums, {scale}, {shift}", total, (x * scale + shift).sum(1).astype(np.float32))


@program_case("compiled.chain/unwaited", "results are operands of the next program at once, without waiting in between")
def unwaited(stage: Stage) -> None:
    x = stage.whole(3, 70)
    plan = stage.plan([x], lambda b, x: [b("add", b("reverse", x, axes=(1,)), b.full(1, x))])
    (value,) = stage.put(x)
    want = x
    for _ in range(60):
        (value,) = plan.run([value])
        want = want[:, ::-1] + 1
    expect_array("60 programs one after the other", to_numpy(value), want)


@program_case(
    "compiled.alias/operand", "one operand may be given twice, and a result may be an operand in another shape"
)
def aliases(stage: Stage) -> None:
    x = stage.whole(6, 6)
    plan = stage.plan([x, x], lambda b, x, y: [*chain(b, x, y), b("reshape", x, shape=(36,)), x])
    (value,) = stage.put(x)
    found = [to_numpy(r) for r in plan.run([value, value])]
    for number, (got, want) in enumerate(zip(found, [*chained(x, x), x.reshape(-1), x], strict=True)):
        expect_array(f"result {number} of a program of x and x", got, want)
    expect_array("x afterwards", to_numpy(value), x)


@program_case("compiled.sizes/range", "one program over a range of sizes: values are right, and sizes share kernels")
def sizes(stage: Stage) -> dict[str, Any]:
    def body(b: ArrayBuilder, x: Value, y: Value) -> list[Value]:
        z = b("add", b("multiply", x, y), b.full(3, x))
        return [z, b("reduce_sum", z, axes=(1,)), b("reduce_max", z, axes=(0,))]

    lengths = (2, 3, 5, 8, 17, 64, 65, 100, 127, 255, 300, 513)
    before = kernels_of(stage.device).compiled
    counts = []
    for length in lengths:
        x, y = stage.whole(length + 3, length, seed=length), stage.whole(length + 3, length, seed=length + 1)
        found = stage.run(stage.plan([x, y], body), x, y)
        z = x * y + 3
        for number, (got, want) in enumerate(zip(found, (z, z.sum(1), z.max(0)), strict=True)):
            expect_array(f"size {length}, result {number}", got, want)
        counts.append(kernels_of(stage.device).compiled - before)
    made = counts[-1]
    if made > 2 * max(3, counts[0]):
        raise Failure(f"{len(lengths)} sizes of one program needed {made} kernels, the first of them {counts[0]}")
    return {"sizes": len(lengths), "kernels": made}


@program_case("compiled.many/interleaved", "many programs are alive at once, and run in any order")
def many(stage: Stage) -> None:
    x = stage.whole(5, 40)
    count = 48
    plans = [
        stage.plan([x], lambda b, x, k=k: [b("add", b("multiply", x, b.full(k % 7 - 3, x)), b.full(k, x))])
        for k in range(count)
    ]
    (value,) = stage.put(x)
    found = {}
    for turn in range(2 * count):
        number = turn * 29 % count
        found[number] = plans[number].run([value])[0]
    for number, result in found.items():
        expect_array(f"program {number} of {count}", to_numpy(result), x * np.float32(number % 7 - 3) + number)


@program_case("compiled.many/large", "a program of hundreds of operators with many results is the sum of its operators")
def large(stage: Stage) -> None:
    x = stage.whole(4, 33)
    count = 20 if stage.options.quick else 60

    def body(b: ArrayBuilder, x: Value) -> list[Value]:
        results = []
        value = x
        for k in range(count):
            value = b("minimum", b("add", b("reverse", value, axes=(k % 2,)), b.full(1, value)), b.full(50, value))
            results += [value, b("reduce_sum", value, axes=(k % 2,))]
        return results

    want = x
    found = stage.run(stage.plan([x], body), x)
    for k in range(count):
        want = np.minimum(np.flip(want, k % 2) + 1, 50)
        expect_array(f"value {k}", found[2 * k], want)
        expect_array(f"sum {k}", found[2 * k + 1], want.sum(k % 2))


@program_case(
    "compiled.refused/operands", "operands that do not fit are refused by name of what was wrong, and nothing runs"
)
def refused(stage: Stage) -> None:
    x, y = stage.whole(4, 6), stage.whole(6, 3)
    plan = stage.plan([x, y], chain)
    good = stage.put(x, y)
    launches = stage.device.stats().launches
    wrong: tuple[tuple[str, type[OarlockError], list[Any], tuple[str, ...]], ...] = (
        ("too few operands", ShapeError, good[:1], ("2", "1")),
        ("another shape", ShapeError, [good[0], *stage.put(stage.whole(6, 4))], ("6, 4",)),
        ("another dtype", ShapeError, [*stage.put(x.astype(np.int32)), good[1]], ("int32",)),
        ("a number in place of an array", DTypeError, [good[0], 3.0], ("array",)),
    )
    for what, kind, operands, words in wrong:
        with raises(kind, what, *words):
            plan.run(operands)
    if stage.device.stats().launches != launches:
        raise Failure("a program that was refused launched kernels")
    for got, want in zip(plan.run(good), chained(x, y), strict=True):
        expect_array("the program afterwards", to_numpy(got), want)


@program_case(
    "compiled.streams/own", "programs on several streams run on their own data; events order what is shared", "streams"
)
def streams(stage: Stage) -> None:
    x, y = stage.whole(40, 60), stage.whole(60, 50)
    plan = stage.plan([x, y], chain)
    last = stage.plan([chained(x, y)[0]], lambda b, z: [b("reduce_max", z, axes=(0,)), b("negative", z)])
    lanes = [stage.device.create_stream() for _ in range(3)]
    try:
        for turn in range(8):
            made = []
            for number, lane in enumerate(lanes):
                with lane:
                    a = stage.whole(40, 60, seed=10 * turn + number)
                    made.append((chained(a, y)[0], plan.run(stage.put(a, y))[0], lane.record()))
            with lanes[turn % 3]:
                for want, value, event in made:
                    lanes[turn % 3].wait(event)
                    found = [to_numpy(r, lanes[turn % 3]) for r in last.run([value])]
                    expect_array("the largest of another stream's result", found[0], want.max(0))
                    expect_array("the negative of another stream's result", found[1], -want)
            del made
    finally:
        for lane in lanes:
            lane.close()
