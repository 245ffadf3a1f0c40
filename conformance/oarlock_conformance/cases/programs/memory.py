"""Cases of programs that run out of memory: in the middle, and ready to go on afterwards."""

from __future__ import annotations

import gc

import numpy as np

import oarlock as ol
from oarlock.errors import OutOfMemoryError
from oarlock.ir import Value
from oarlock.ops import ArrayBuilder
from oarlock.runtime import to_numpy
from oarlock_conformance.bench import raises
from oarlock_conformance.case import Failure
from oarlock_conformance.cases.programs.register import Stage, expect_array, program_case

_SIDE = 256
_BYTES = _SIDE * _SIDE * 4


def _wide(b: ArrayBuilder, x: Value) -> list[Value]:
    """Three products that are needed at once: temporaries of three times the operand."""
    first = b("matmul", x, x)
    second = b("matmul", first, x)
    third = b("matmul", second, b("sign", first))
    return [b("reduce_max", b("add", b("add", first, second), third), axes=(1,))]


def _wanted(x: np.ndarray) -> np.ndarray:
    first = x.astype(np.float64) @ x
    second = first @ x
    return (first + second + second @ np.sign(first)).max(1).astype(np.float32)


def _operand(stage: Stage) -> np.ndarray:
    return np.clip(stage.whole(_SIDE, _SIDE), -1, 1) * (stage.random(_SIDE, _SIDE, seed=3) > 1.2)


@program_case(
    "memory.program/too_little",
    "a program that does not fit raises OutOfMemoryError with figures; it runs once there is room, and nothing is lost",
)
def too_little(stage: Stage) -> None:
    device = stage.device
    x = _operand(stage).astype(np.float32)
    plan = stage.plan([x], _wide)
    (value,) = stage.put(x)
    device.trim()
    device.set_memory_budget(device.stats().bytes_in_use + _BYTES // 2)
    for _ in range(3):
        with raises(OutOfMemoryError, "a program with temporaries past the budget", device.name, "asked", "in use"):
            plan.run([value])
    device.set_memory_budget(None)
    expect_array("the operand afterwards", to_numpy(value), x)
    expect_array("the program, once there was room", to_numpy(plan.run([value])[0]), _wanted(x))


@program_case(
    "memory.program/results_pile_up",
    "results that are kept exhaust the memory in the middle of a loop; those made before stay right, and dropping them "
    "makes room",
)
def pile_up(stage: Stage) -> None:
    device = stage.device
    x = stage.whole(_SIDE, _SIDE)
    plan = stage.plan([x], lambda b, x: [b("add", x, b.full(1, x))])
    (value,) = stage.put(x)
    to_numpy(plan.run([value])[0])
    gc.collect()
    device.trim()
    device.set_memory_budget(device.stats().bytes_in_use + 6 * _BYTES)
    kept = [value]
    try:
        for _ in range(40):
            kept.append(plan.run([kept[-1]])[0])
    except OutOfMemoryError:
        pass
    else:
        raise Failure(f"{len(kept) - 1} results of {_BYTES:,} bytes were made in a budget of {6 * _BYTES:,} bytes")
    for number in (0, 1, len(kept) - 1):
        expect_array(f"result {number} after memory ran out", to_numpy(kept[number]), x + number)
    last = kept[-1]
    count = len(kept)
    kept.clear()
    gc.collect()
    expect_array("the next result, once others were dropped", to_numpy(plan.run([last])[0]), x + count)


@program_case(
    "memory.program/returned",
    "when a program has run, what it took is given back: memory in use is operands and results alone",
)
def returned(stage: Stage) -> None:
    device = stage.device
    x = _operand(stage).astype(np.float32)
    plan = stage.plan([x], _wide)
    (value,) = stage.put(x)
    to_numpy(plan.run([value])[0])
    gc.collect()
    device.synchronize()
    device.collect()
    before = device.stats()
    for _ in range(20):
        to_numpy(plan.run([value])[0])
    gc.collect()
    device.synchronize()
    device.collect()
    after = device.stats()
    if after.bytes_in_use > before.bytes_in_use or after.buffers > before.buffers:
        raise Failure(
            f"after 20 runs {after.bytes_in_use:,} bytes in {after.buffers} buffers are in use, before them "
            f"{before.bytes_in_use:,} in {before.buffers}"
        )


@program_case(
    "memory.arrays/exhausted",
    "recorded work that does not fit fails its own results, which name the line that recorded them; other arrays and "
    "later work are as before",
)
def arrays(stage: Stage) -> None:
    device = stage.device
    small = ol.asarray(np.arange(6, dtype=np.float32), device=device)
    x = ol.asarray(_operand(stage).astype(np.float32), device=device)
    ol.synchronize(device)
    device.trim()
    device.set_memory_budget(device.stats().bytes_in_use + _BYTES // 2)
    wide = ol.matmul(x, x) + ol.matmul(x, ol.sign(x))
    narrow = ol.max(wide, axis=1)
    for _ in range(2):
        try:
            np.asarray(narrow)
        except OutOfMemoryError as error:
            notes = " ".join(getattr(error, "__notes__", ()))
            if "recorded at" not in notes or "memory.py" not in notes:
                raise Failure(f"the error does not say which line recorded the result: {notes or 'no note'}") from error
        else:
            raise Failure("an array that does not fit into the budget was computed")
    device.set_memory_budget(None)
    expect_array("an array that was there before", np.asarray(small), np.arange(6))
    host = np.asarray(x)
    expect_array("the operand", np.asarray(ol.max(ol.matmul(x, x), axis=1)), (host.astype(np.float64) @ host).max(1))
