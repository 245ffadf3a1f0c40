"""Cases on recorded arrays: loops are one program, values are values, failures name their line, eager agrees."""

from __future__ import annotations

from typing import Any

import numpy as np

import oarlock as ol
from oarlock import dtypes
from oarlock.errors import OarlockError, UnsupportedError
from oarlock.program.plans import counters
from oarlock_conformance.bench import raises
from oarlock_conformance.case import Failure
from oarlock_conformance.cases.programs.register import Stage, expect_array, program_case


def _chain(x: Any, y: Any) -> Any:
    """Element-wise work, a product and reductions, all exact on small whole numbers."""
    z = ol.matmul(ol.maximum(x, y) - 1, ol.matrix_transpose(y))
    return ol.sum(ol.where(z > 3, z, -z), axis=1) + ol.max(z, axis=1) * 2


def _chained(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    z = (np.maximum(x, y) - 1) @ y.T
    return np.where(z > 3, z, -z).sum(1) + z.max(1) * 2


@program_case("arrays.record/values", "recorded work gives what NumPy gives, read in any order, on any shape")
def values(stage: Stage) -> None:
    pairs = [(stage.whole(n, n + 3, seed=n), stage.whole(n, n + 3, seed=n + 50)) for n in (1, 2, 7, 33, 64)]
    made = [_chain(*(ol.asarray(x, device=stage.device) for x in pair)) for pair in pairs]
    for result, pair in reversed(list(zip(made, pairs, strict=True))):
        expect_array(f"a chain on {pair[0].shape}", np.asarray(result), _chained(*pair))


@program_case("arrays.record/eager", "operators run one at a time give the bits that the recorded program gives")
def eager(stage: Stage) -> None:
    host = stage.random(33, 65)
    x = ol.asarray(host, device=stage.device)

    def work(x: Any) -> Any:
        return ol.tanh(x * 0.5 + 1) * ol.exp(-x) - ol.max(ol.abs(x), axis=1, keepdims=True)

    recorded = np.asarray(work(x))
    with ol.eager_mode():
        single = np.asarray(work(x))
    if recorded.tobytes() != single.tobytes():
        wrong = int((recorded != single).sum())
        raise Failure(f"{wrong} of {recorded.size} elements differ between recorded and eager work")


@program_case("arrays.record/loop", "a loop becomes few programs, made once: the second time nothing new is compiled")
def loop(stage: Stage) -> dict[str, Any]:
    host = stage.whole(4, 32)

    def turn_all() -> Any:
        x = ol.asarray(host, device=stage.device)
        for k in range(100):
            x = ol.minimum(ol.flip(x, axis=1) + k % 3, 40)
        return np.asarray(x)

    want = host
    for k in range(100):
        want = np.minimum(want[:, ::-1] + k % 3, 40)
    expect_array("100 turns of a loop", turn_all(), want)
    built = counters.built
    expect_array("the same loop again", turn_all(), want)
    if counters.built != built:
        raise Failure(f"the loop's second run built {counters.built - built} programs, expected none")
    return {"programs": built}


@program_case("arrays.record/scalars", "Python numbers and starts of slices are no part of a program")
def scalars(stage: Stage) -> None:
    x = ol.asarray(stage.whole(40, 8), device=stage.device)
    host = np.asarray(x)
    counts = []
    for k in range(12):
        got = np.asarray(x[k : k + 5] * float(k) - k)
        expect_array(f"x[{k}:{k + 5}] * {k} - {k}", got, host[k : k + 5] * np.float32(k) - k)
        counts.append(counters.built)
    if counts[-1] - counts[2] > 1:
        raise Failure(f"12 turns that differ in numbers alone built {counts[-1] - counts[0] + 1} programs")


@program_case("arrays.record/long", "a tape of more than 4,096 operators is cut into programs, and loses nothing")
def long_tape(stage: Stage) -> None:
    x = ol.asarray(np.zeros(3, np.float32), device=stage.device)
    kept = []
    for k in range(4300):
        x = x + 1
        if k % 1000 == 0:
            kept.append((k + 1, x))
    expect_array("4,300 additions", np.asarray(x), np.full(3, 4300))
    for count, value in kept:
        expect_array(f"the value after {count} additions", np.asarray(value), np.full(3, count))


@program_case("arrays.record/dropped", "results that nobody holds are not stored")
def dropped(stage: Stage) -> None:
    x = ol.asarray(stage.whole(5, 5), device=stage.device)
    before = counters.outputs
    y = x + 1
    for _ in range(10):
        y = y * 1 + 1
    np.asarray(y)
    if counters.outputs - before != 1:
        raise Failure(f"{counters.outputs - before} results were stored, although one of them was held")


@program_case("arrays.values/versions", "arrays are values: assignment makes a version, and nothing aliases anything")
def versions(stage: Stage) -> None:
    host = stage.whole(6, 7)
    x = ol.asarray(host, device=stage.device)
    view, before = x[1:3], x + 0
    x[2, ::2] = 9
    x[4:] = view
    want = host.copy()
    want[2, ::2] = 9
    want[4:] = host[1:3]
    expect_array("x after x[2, ::2] = 9 and x[4:] = x[1:3]", np.asarray(x), want)
    expect_array("a view taken before", np.asarray(view), host[1:3])
    expect_array("a copy made before", np.asarray(before), host)
    host[:] = -5
    expect_array("x after the host array it was made of was overwritten", np.asarray(x), want)
    out = np.array(x)
    out[:] = 3
    expect_array("x after a host copy of it was overwritten", np.asarray(x), want)


@program_case(
    "arrays.values/dtypes", "arrays of every dtype that the device stores go there and come back, and convert"
)
def every_dtype(stage: Stage) -> None:
    for dtype in dtypes.ALL:
        if not stage.device.target.stores(dtype):
            continue
        host = (np.arange(37) % 5).astype(dtype.numpy)
        x = ol.asarray(host, device=stage.device)
        if x.dtype != dtype:
            raise Failure(f"an array of {dtype} became {x.dtype}")
        expect_array(f"{dtype} there and back", np.asarray(x).astype(np.float64), host.astype(np.float64))
        wide = np.asarray(ol.astype(x, ol.float32))
        expect_array(f"{dtype} to float32", wide, host.astype(np.float32))


@program_case(
    "arrays.values/unsupported",
    "an array of a dtype that the device does not store is refused, naming the device, the dtype and the nearest one",
    "lacks_a_dtype",
)
def unsupported(stage: Stage) -> None:
    x = ol.asarray(np.arange(4, dtype=np.float32), device=stage.device)
    for dtype in dtypes.ALL:
        if stage.device.target.stores(dtype):
            continue
        same = any(d.kind == dtype.kind and stage.device.target.stores(d) for d in dtypes.ALL)
        words = (stage.device.name, dtype.name, *(["earest"] if same else []))
        with raises(UnsupportedError, f"zeros of {dtype}", *words):
            ol.zeros((3,), dtype=dtype, device=stage.device)
        with raises(UnsupportedError, f"float32 converted to {dtype}", *words):
            np.asarray(ol.astype(x, dtype))
    expect_array("a float32 array afterwards", np.asarray(x), np.arange(4))


@program_case(
    "arrays.failure/line", "work that fails leaves its error in its own results, with the line that recorded them"
)
def failure_line(stage: Stage) -> None:
    x = ol.asarray(stage.whole(300, 300), device=stage.device)
    ol.synchronize(stage.device)
    stage.device.trim()
    stage.device.set_memory_budget(stage.device.stats().bytes_in_use + 1024)
    first = x + 1
    second = first * 2
    try:
        np.asarray(second)
    except OarlockError:
        pass
    else:
        raise Failure("an array of 360,000 bytes was made in a budget of 1,024 bytes")
    for name, value, line in (("first", first, "first = x + 1"), ("second", second, "second = first * 2")):
        try:
            np.asarray(value)
        except OarlockError as error:
            notes = " ".join(getattr(error, "__notes__", ()))
            if line not in notes:
                raise Failure(f"the error of {name!r} names {notes or 'no line'}, expected {line!r}") from error
        else:
            raise Failure(f"{name!r} has a value although its program failed")
    stage.device.set_memory_budget(None)
    expect_array("x afterwards", np.asarray(x + 1), np.asarray(x) + 1)


@program_case("arrays.default/device", "arrays lie on the default device of their context, else on the one named")
def default(stage: Stage) -> None:
    with ol.default_device(stage.name):
        made = ol.ones((3, 2)) + ol.asarray([1.0, 2.0])
    if made.device.name != stage.device.name:
        raise Failure(f"an array of the default device lies on {made.device.name}, expected {stage.device.name}")
    expect_array("ones + [1, 2]", np.asarray(made), np.ones((3, 2)) + [1.0, 2.0])
    stage.works()
