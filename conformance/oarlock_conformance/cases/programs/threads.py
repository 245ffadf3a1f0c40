"""Cases of programs on eight threads: each its own, all the same one, and arrays that change hands."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

import oarlock as ol
from oarlock.runtime import to_numpy
from oarlock_conformance.case import Failure
from oarlock_conformance.cases.programs.register import Stage, chain, chained, expect_array, program_case

_THREADS = 8


def _together(stage: Stage, work: Callable[[int], None]) -> None:
    """Run ``work(number)`` on eight threads that start at once; raises the first failure."""
    gate = threading.Barrier(_THREADS)
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            gate.wait(30)
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(stage.options.deadline_s / 2)
        if thread.is_alive():
            raise Failure(f"a thread did not end within {stage.options.deadline_s / 2:g} s")
    if failures:
        raise failures[0]


@program_case("threads.programs/own", "eight threads compile and run programs of their own at once")
def own(stage: Stage) -> None:
    def work(number: int) -> None:
        for turn in range(3):
            x, y = stage.whole(5 + number, 20, seed=number), stage.whole(20, 4 + turn, seed=turn)
            for got, want in zip(stage.run(stage.plan([x, y], chain), x, y), chained(x, y), strict=True):
                expect_array(f"thread {number}, turn {turn}", got, want)

    _together(stage, work)


@program_case("threads.programs/shared", "eight threads run one program at once, each on its own data")
def shared(stage: Stage) -> None:
    plan = stage.plan([stage.whole(30, 41), stage.whole(41, 20)], chain)

    def work(number: int) -> None:
        for turn in range(10):
            x, y = stage.whole(30, 41, seed=100 * number + turn), stage.whole(41, 20, seed=turn)
            for got, want in zip(stage.run(plan, x, y), chained(x, y), strict=True):
                expect_array(f"thread {number}, run {turn}", got, want)

    _together(stage, work)


@program_case("threads.arrays/own", "eight threads record at once; each reads what it recorded")
def record(stage: Stage) -> None:
    def work(number: int) -> None:
        x = ol.asarray(stage.whole(9, 9, seed=number), device=stage.device)
        host = np.asarray(x)
        for turn in range(5):
            got = np.asarray(ol.sum(ol.matmul(x, x) + turn, axis=0))
            expect_array(f"thread {number}, turn {turn}", got, (host @ host + turn).sum(0))

    _together(stage, work)


@program_case("threads.arrays/handed_over", "what one thread recorded may be used and read by others, before it ran")
def handed_over(stage: Stage) -> None:
    x = ol.asarray(stage.whole(17, 17), device=stage.device)
    host = np.asarray(x)
    pending = [x * k + 1 for k in range(_THREADS)]

    def work(number: int) -> None:
        for k in range(_THREADS):
            got = np.asarray(pending[(number + k) % _THREADS] - number)
            expect_array(f"thread {number}", got, host * ((number + k) % _THREADS) + 1 - number)

    _together(stage, work)


@program_case("threads.memory/recycled", "memory that eight threads recycle never shows one thread's values to another")
def recycled(stage: Stage) -> None:
    x = stage.whole(64, 64)
    plan = stage.plan([x], lambda b, x: [b("add", b("matmul", b("sign", x), b("abs", x)), x)])

    def work(number: int) -> None:
        mine = np.full((64, 64), number + 1, np.float32)
        want = np.full((64, 64), 64 * (number + 1) + number + 1)
        for turn in range(15):
            expect_array(f"thread {number}, run {turn}", to_numpy(plan.run(stage.put(mine))[0]), want)

    _together(stage, work)
