"""Cases on what may be stale or mixed up: answers, programs, plans and events in whose place another one stands."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from oarlock.abi import KernelSignature
from oarlock.codegen.kernel import signature_of
from oarlock.codegen.pipeline import render
from oarlock.errors import CompileError
from oarlock.hal import CopyStep, LaunchStep
from oarlock_conformance import kernels
from oarlock_conformance.bench import Bench, expect, expect_equal, muted, raises, setting
from oarlock_conformance.registry import runtime_case

_HELD_S = 30.0


@runtime_case("memory.copy_out/fresh", "copy_out reads what the memory holds now, however often it was read before")
def fresh(bench: Bench) -> None:
    x, y = bench.filled(64, 1), bench.filled(64, 2)
    for number in range(1, 6):
        bench.increment(y, x, 64, number)
        expect_equal(bench.download(y, 64), np.full(64, 1 + number, np.int32), f"read {number} after a launch")
    bench.device.fill(y, 0, 256, 0)
    expect_equal(bench.download(y, 64), np.zeros(64, np.int32), "the same range after a fill")
    bench.device.copy(y, 0, x, 0, 256)
    expect_equal(bench.download(y, 64), np.ones(64, np.int32), "the same range after a copy")


@runtime_case(
    "memory.info/follows", "free falls by what is allocated and comes back when it is freed; total stays", "memory_info"
)
def info_follows(bench: Bench) -> None:
    device = bench.device
    size = min(256 << 20, device.info.memory // 16)
    seen = ""
    for _ in range(3):  # others may use the device at the same time
        device.trim()
        free, total = device.memory_info()
        held = bench.upload(np.ones(size, np.uint8))
        device.synchronize()
        less, same = device.memory_info()
        held.free()
        device.trim()
        again, _ = device.memory_info()
        if total == same and free - less >= size // 2 and again - less >= size // 2:
            return
        seen = (
            f"free was {free}, {less} with {size} bytes allocated, {again} afterwards; total was {total}, then {same}"
        )
    expect(False, seen)


def _sources(bench: Bench, factors: list[int]) -> list[tuple[str, KernelSignature]]:
    """Sources of the kernel ``scale``, each multiplying by another number."""
    target = bench.device.target
    functions = [kernels.scale(factor) for factor in factors]
    return [(render([function], target), signature_of(function, target)) for function in functions]


@runtime_case("program.compile/threads_apart", "sources that are compiled at once by several threads keep apart")
def threads_apart(bench: Bench) -> None:
    factors = list(range(2, 6))
    sources = _sources(bench, factors)
    with setting("cache", False), ThreadPoolExecutor(4) as pool:
        executables = list(pool.map(lambda each: bench.device.compile(each[0], [each[1]]), sources))
    data = bench.ints(9)
    for factor, executable in zip(factors, executables, strict=True):
        x, y = bench.upload(data), bench.filled(9)
        bench.launch(bench.device.load(executable), (9, 1, 1), [(x, 0), (y, 0)])
        expect_equal(bench.download(y, 9), data * np.int32(factor), f"the source that multiplies by {factor}")


@runtime_case("program.compile/error_after_good", "a bad source raises CompileError though a good one had its entries")
def error_after_good(bench: Bench) -> None:
    ((source, signature),) = _sources(bench, [11])
    bench.device.load(bench.device.compile(source, [signature]))
    bad = re.sub(r"\b11(?=\D)", "11 no_such_name ", source)
    expect(bad != source, "the source does not hold the constant that is to be spoilt")
    with muted(), setting("cache", False), raises(CompileError, "a bad source of a kernel that is loaded already"):
        bench.device.load(bench.device.compile(bad, [signature]))
    bench.works()


@runtime_case(
    "program.load/each", "every kernel of a program is itself: three of equal signatures give their own results"
)
def each(bench: Bench) -> None:
    functions = [kernels.scale(factor) for factor in (3, 5, 7)]
    for number, function in enumerate(functions):
        function.attributes["name"] = f"scale_{number}"
    program = bench.load(*functions)
    data = bench.ints(12)
    for number, factor in enumerate((3, 5, 7)):
        x, y = bench.upload(data), bench.filled(12)
        block = program.signatures[f"scale_{number}"].pack([0, 0])
        bench.device.launch(program, f"scale_{number}", (12, 1, 1), [(x, 0), (y, 0)], block)
        expect_equal(bench.download(y, 12), data * np.int32(factor), f"kernel {number} of three, times {factor}")


@runtime_case("program.load/many_live", "48 programs live at once, each still itself when all were loaded")
def many_live(bench: Bench) -> None:
    device = bench.device
    kinds = _sources(bench, [2, 3, 5, 7])
    executables = [device.compile(source, [signature]) for source, signature in kinds]
    programs = [device.load(executables[number % 4]) for number in range(48)]
    data = bench.ints(6)
    for number in (*range(48), *range(47, -1, -7)):
        x, y = bench.upload(data), bench.filled(6)
        bench.launch(programs[number], (6, 1, 1), [(x, 0), (y, 0)])
        factor = np.int32((2, 3, 5, 7)[number % 4])
        expect_equal(bench.download(y, 6), data * factor, f"program {number} of 48, times {factor}")


@runtime_case("plan.replay/offsets", "copies of a plan move their own ranges", "plans")
def plan_offsets(bench: Bench) -> None:
    plan = bench.device.prepare([CopyStep(1, 64, 0, 128, 96), CopyStep(1, 4, 0, 200, 20)])
    data, wanted = bench.ints(64), np.full(64, 9, np.int32)
    source, target = bench.upload(data), bench.filled(64, 9)
    plan.replay([source, target])
    wanted[16:40], wanted[1:6] = data[32:56], data[50:55]
    expect_equal(bench.download(target, 64), wanted, "a buffer that a plan copied two ranges to")


@runtime_case(
    "plan.replay/held_stream", "a replay on a held stream waits for it, and takes what is there then",
    "plans", "streams", "host_callbacks",
)  # fmt: skip
def plan_held(bench: Bench) -> None:
    device = bench.device
    program = bench.program(kernels.increment)
    signature = program.signatures["increment"]
    step = LaunchStep(
        program, "increment", (16, 1, 1), signature.block, ((0, 0, 64), (1, 0, 64)), signature.pack([0, 0, 5])
    )
    plan = device.prepare([step])
    stream, x, y, later = device.create_stream(), bench.filled(16, 1), bench.filled(16), bench.filled(16, 100)
    device.synchronize()
    gate = threading.Event()
    stream.call_host(lambda: _wait(gate))
    try:
        device.copy(x, 0, later, 0, 64, stream)
        plan.replay([x, y], stream=stream)
        device.default_stream.synchronize()
    finally:
        gate.set()
    expect_equal(bench.download(y, 16, stream=stream), np.full(16, 105, np.int32), "a plan behind a held copy")


@runtime_case(
    "event.record/kept_apart", "an event keeps its meaning while 300 others are recorded and complete",
    "streams", "host_callbacks",
)  # fmt: skip
def events_apart(bench: Bench) -> None:
    device = bench.device
    first, second, third = (device.create_stream() for _ in range(3))
    x, y = bench.filled(16, 1), bench.filled(16)
    fresh_value = bench.filled(16, 50)
    device.synchronize()
    gate = threading.Event()
    first.call_host(lambda: _wait(gate))
    try:
        device.copy(x, 0, fresh_value, 0, 64, first)
        event = first.record()
        others = [second.record() for _ in range(300)]
        others[-1].synchronize()
        third.wait(event)
        bench.increment(y, x, 16, 1, third)
        end = third.record()
        early = event.query() or end.query()
    finally:
        gate.set()
    end.synchronize()
    expect(not early, "an event of a held stream completed when others did")
    expect_equal(bench.download(y, 16, stream=third), np.full(16, 51, np.int32), "what waited for that event")


def _wait(gate: threading.Event) -> None:
    gate.wait(_HELD_S)
