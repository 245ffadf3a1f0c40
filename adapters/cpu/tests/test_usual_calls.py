"""The native way through a call, and Python's: the same results and counts, and which one is taken."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import oarlock as ol
from oarlock.config import config
from oarlock.errors import DeviceError, ShapeError
from oarlock.hal import host
from oarlock.program.plans import counters
from oarlock.program.sites import describe
from oarlock.runtime import Device, DeviceArray, from_numpy, to_numpy
from oarlock.runtime.profile import profiled

needs_native = pytest.mark.skipif(not host.native_available(), reason="the native module is not built")


def tensor(*values: float) -> ol.Tensor:
    return ol.asarray(np.array(values, np.float32), device="cpu")


def taken() -> dict[str, int]:
    from oarlock import _native

    return _native.taken()


def differences(before: dict[str, int]) -> dict[str, int]:
    return {name: count - before[name] for name, count in taken().items()}


def total(*values: Any) -> Any:
    result = values[0]
    for value in values[1:]:
        result = result + value
    return result


# --- the native way is taken ---


@needs_native
def test_recorded_calls_are_native(device: Device) -> None:
    a, b = tensor(1.0), tensor(2.0)
    held = []
    for _ in range(2):
        held[:] = [a + b]
        ol.synchronize("cpu")
    before = taken()
    for _ in range(10):
        held[:] = [a + b]
        ol.synchronize("cpu")
    assert differences(before) == {"record": 10, "flush": 10, "signature": 0, "run": 10, "settle": 10}
    assert held[0].numpy().tolist() == [3.0]


@needs_native
def test_jitted_calls_are_native(device: Device) -> None:
    arguments = [tensor(float(i)) for i in range(8)]
    called = ol.jit(total)
    called(*arguments)
    ol.synchronize("cpu")
    before = taken()
    for _ in range(10):
        result = called(*arguments)
        ol.synchronize("cpu")
    assert differences(before) == {"record": 0, "flush": 0, "signature": 10, "run": 10, "settle": 10}
    assert result.numpy().tolist() == [28.0]


@needs_native
@pytest.mark.parametrize("what", ["stream", "profile", "poison", "no pool", "budget", "driver is held", "static"])
def test_unusual_calls_are_left_to_python(what: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = tensor(1.0, 2.0), tensor(3.0, 5.0)
    called = ol.jit(lambda x, y, plus=0: x * y + plus)
    for _ in range(2):
        called(a, b)
    keywords = {}
    before = taken()["run"]
    if what == "stream":
        with device.default_stream:
            result = called(a, b)
    elif what == "profile":
        with profiled() as profile:
            result = called(a, b)
        assert len(profile.spans()) == 1
    elif what == "driver is held":
        entered, done = threading.Event(), threading.Event()

        def hold() -> None:
            device.gate.enter("a long call")
            entered.set()
            done.wait(0.1)
            device.gate.leave()

        holder = threading.Thread(target=hold)
        holder.start()
        entered.wait()
        result = called(a, b)
        holder.join()
    elif what == "static":
        keywords = {"plus": 1}
        called(a, b, **keywords)
        before, signatures = taken()["run"], taken()["signature"]
        result = called(a, b, **keywords)
        assert (taken()["run"], taken()["signature"]) == (before + 1, signatures)
        before += 1
    else:
        if what == "budget":
            device.set_memory_budget(1 << 30)
        else:
            monkeypatch.setattr(config, *{"poison": ("poison", True), "no pool": ("pool", False)}[what])
        result = called(a, b)
        device.set_memory_budget(None)
    assert taken()["run"] == before
    assert result.numpy().tolist() == [3.0 + keywords.get("plus", 0), 10.0 + keywords.get("plus", 0)]


@needs_native
def test_frames_of_a_call(device: Device) -> None:
    a, b = tensor(1.0), tensor(2.0)
    called = ol.jit(total)
    held: list[Any] = []

    def add() -> None:
        held[:] = [a * b - a]
        ol.synchronize("cpu")

    def jitted() -> None:
        held[:] = [called(a, b)]
        ol.synchronize("cpu")

    def frames(function: Callable[[], None]) -> list[str]:
        entered: list[str] = []

        def note(frame: Any, event: str, argument: Any) -> None:
            if event == "call":
                entered.append(frame.f_code.co_name)

        for _ in range(3):
            function()
        gc.collect()
        sys.setprofile(note)
        function()
        sys.setprofile(None)
        return entered[1:]

    assert frames(add) == ["synchronize"]
    assert frames(jitted) == ["__call__", "thread_state", "__call__", "run", "concrete", "synchronize"]


def test_calls_without_the_native_module() -> None:
    code = """
import sys
sys.modules["oarlock._native"] = None
import oarlock as ol
from oarlock.hal import host
from oarlock.program.fast import ready
x = ol.asarray([1.0, 2.0], dtype=ol.float32, device="cpu")
double = ol.jit(lambda x: x + x)
for _ in range(3):
    y = double(x) * x - 0.5
    ol.synchronize("cpu")
print(host.native_available(), ready.record, ol.device("cpu").parts, y.tolist())
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert told.stdout == "False None None [1.5, 7.5]\n", told.stderr


# --- the same results and counts ---


def recipes() -> dict[str, Callable[[Sequence[Any]], Any]]:
    """Small programs of three tensors of shape (3,)."""
    return {
        "add": lambda x: x[0] + x[1],
        "same operand twice": lambda x: x[0] * x[0],
        "scalar": lambda x: x[0] * 2.5 + x[1] * -0.25,
        "attributes": lambda x: ol.sum(ol.stack([x[0], x[1]], axis=1), axis=1),
        "several results": lambda x: ol.unstack(ol.stack(x)),
        "slice": lambda x: x[2][1:] - x[0][:2],
        "argument back": lambda x: x[1],
        "constant": lambda x: x[0] + ol.asarray([1.0, 2.0, 3.0], dtype=ol.float32, device="cpu"),
        "empty": lambda x: x[0][3:] + x[1][3:],
        "another dtype": lambda x: ol.astype(x[0], ol.int32) % 2,
        "chain": lambda x: ol.exp(x[0] - x[1]) / (x[2] + 4.0),
    }


def outcome(value: Any) -> list[Any]:
    values = value if isinstance(value, (tuple, list)) else [value]
    return [(str(v.dtype), v.shape, v.numpy().tolist()) for v in values]


def scenario(device: Device, seed: int) -> list[Any]:
    """Recorded and jitted programs in random order, results kept and dropped; everything that can be told apart."""
    rng = random.Random(seed)
    programs = recipes()
    jitted = {name: ol.jit(lambda *x, function=function: function(x)) for name, function in programs.items()}
    values = [tensor(*[rng.uniform(-2, 2) for _ in range(3)]) for _ in range(6)]
    kept: list[Any] = []
    told: list[Any] = []
    for _ in range(120):
        name = rng.choice(sorted(programs))
        given = rng.choices(values, k=3)
        result = jitted[name](*given) if rng.random() < 0.5 else programs[name](given)
        if rng.random() < 0.5:
            kept.append(result)
        if rng.random() < 0.3:
            ol.synchronize("cpu")
            told.append([outcome(value) for value in kept[-3:]])
        if rng.random() < 0.2:
            kept.clear()
        if isinstance(result, ol.Tensor) and result.shape == (3,) and result.dtype == ol.float32:
            values[rng.randrange(len(values))] = result * 0.5
    told += [outcome(value) for value in values]
    del kept, values, result, given
    ol.synchronize("cpu")
    return told


@needs_native
@pytest.mark.parametrize("seed", range(3))
def test_both_ways_do_the_same(seed: int, device: Device, monkeypatch: pytest.MonkeyPatch, take_python: Any) -> None:
    def observed() -> tuple[list[Any], list[int]]:
        gc.collect()
        ol.synchronize("cpu")
        stats, lane = device.stats(), device.default_lane
        before = [lane.ticket, counters.flushed, counters.outputs, stats.launches, stats.bytes_in, stats.bytes_out]
        told = scenario(device, seed)
        gc.collect()
        ol.synchronize("cpu")
        after = device.stats()
        now = [lane.ticket, counters.flushed, counters.outputs, after.launches, after.bytes_in, after.bytes_out]
        counted = [new - old for new, old in zip(now, before, strict=True)]
        return told, [*counted, after.buffers - stats.buffers, after.bytes_in_use - stats.bytes_in_use]

    scenario(device, seed)  # kernels, plans and constants are there afterwards
    with monkeypatch.context() as patch:
        take_python(patch)
        expected = observed()
    before = taken()
    assert observed() == expected
    used = differences(before)
    assert min(used["record"], used["flush"], used["run"], used["signature"], used["settle"]) > 10


class Reflecting:
    """Something that a tensor knows nothing of, which has operators of its own."""

    def __radd__(self, other: object) -> str:
        return "reflected"

    def __rsub__(self, other: object) -> str:
        return "reflected"

    def __rmul__(self, other: object) -> str:
        return "reflected"


def test_operators_of_all_operands(way: str, device: Device) -> None:
    x, y, whole = tensor(1.0, 2.0), tensor(3.0, 5.0), ol.asarray(np.array([2, 7], np.int32), device="cpu")
    row = ol.asarray(np.array([[1.0, 2.0]], np.float32), device="cpu")
    others = [x, y, whole, row, 2, 0.5, True, np.array([4.0, 6.0], np.float32), np.float32(3.0), x + y]
    for operator in (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b):
        for other in others:
            plain = np.asarray(other.numpy() if isinstance(other, ol.Tensor) else other)
            for _ in range(2):
                for found, expected in (
                    (operator(x, other), operator(x.numpy(), plain)),
                    (operator(other, x), operator(plain, x.numpy())),
                ):
                    assert found.dtype == ol.float32
                    assert np.array_equal(found.numpy(), np.asarray(expected, np.float32))
        assert operator(x, Reflecting()) == "reflected"
        for left, right in ((x, object()), (object(), x), (x, None), (x, "1")):
            with pytest.raises(TypeError):
                operator(left, right)
        for _ in range(2):
            with pytest.raises(ShapeError, match="do not broadcast: 2 meets 3"):
                operator(x, tensor(1.0, 2.0, 3.0))
    z = x
    z += y
    assert z is x and x.numpy().tolist() == [4.0, 7.0]


def test_operators_of_a_kind_of_tensor(way: str, device: Device) -> None:
    class Named(ol.Tensor):
        __slots__ = ()

    plain, named = tensor(1.0, 2.0), object.__new__(Named)
    for slot in ("_data", "_failure", "_kind", "_number", "_place", "_tape"):
        setattr(named, slot, getattr(plain, slot))
    for _ in range(2):
        assert (named + 1).numpy().tolist() == (1 + named).numpy().tolist() == [2.0, 3.0]
        assert (named - plain).numpy().tolist() == (plain - named).numpy().tolist() == [0.0, 0.0]


def test_line_that_recorded(way: str, device: Device) -> None:
    x, y = tensor(1.0, 2.0), tensor(3.0, 5.0)
    for _ in range(3):
        pending = x + y - x
        sites = [describe(site) for site in pending._tape.sites if site is not None]
        assert len(sites) == 2
        assert all("pending = x + y - x" in site and "test_usual_calls" in site for site in sites)
        pending.numpy()


def test_tape_that_somebody_holds_is_not_used_again(way: str, device: Device) -> None:
    x, y = tensor(1.0), tensor(2.0)
    for _ in range(3):
        first = x + y
        tape = first._tape
        ol.synchronize("cpu")
        second = x - y
        assert second._tape is not tape and tape.closed and not tape.entries
        assert tape.flush() is None and second._data is None
        assert (first.numpy().tolist(), second.numpy().tolist()) == ([3.0], [-1.0])


def test_device_that_was_opened_again(way: str) -> None:
    for _ in range(2):
        for name in ("cpu", "cpu:0"):
            x = tensor(1.0, 2.0)
            result = x + x
            ol.synchronize(name)
            assert result.numpy().tolist() == [2.0, 4.0]
            closed = ol.device("cpu")
            closed.close()  # type: ignore[attr-defined]
            ol.synchronize(name)
            assert ol.device(name) is not closed
            with pytest.raises(DeviceError, match="made before cpu:0 was closed"):
                x + tensor(1.0, 2.0)


def test_memory_dropped_while_an_error_passes(way: str, device: Device) -> None:
    x = tensor(1.0, 2.0)

    def fail() -> None:
        made = x + x
        made.numpy()
        raise KeyError("mine")

    for _ in range(3):
        ol.synchronize("cpu")
        before = device.stats().bytes_in_use
        try:
            fail()
        except KeyError as error:
            assert error.args == ("mine",)
        gc.collect()
        ol.synchronize("cpu")
        assert device.stats().bytes_in_use == before


def test_numbers_are_new_in_each_run(way: str, device: Device) -> None:
    x = tensor(1.0, 2.0)
    assert [(x * float(i)).numpy().tolist() for i in range(6)] == [[float(i), 2.0 * i] for i in range(6)]


def test_operand_with_an_offset(way: str, device: Device) -> None:
    called = ol.jit(lambda x, y: x + y)
    x, y = tensor(1.0, 2.0), tensor(10.0, 20.0)
    called(x, y)
    run = next(iter(called._programs.values())).run
    whole = from_numpy(np.arange(8, dtype=np.float32), device)
    part = DeviceArray(device, whole.buffer, 12, ol.float32, (2,))
    for _ in range(3):
        (result,) = run([part, y._data])
        assert to_numpy(result).tolist() == [13.0, 24.0]
        (result,) = run([part, part])
        assert to_numpy(result).tolist() == [6.0, 8.0]


def test_results_reuse_memory_that_was_dropped(way: str, device: Device) -> None:
    called = ol.jit(total)
    x, y = tensor(*range(500)), tensor(*range(500))
    for _ in range(3):
        result = called(x, y)
    ol.synchronize("cpu")
    before = device.stats()
    addresses = set()
    for _ in range(50):
        result = called(x, result)
        addresses.add(result._data.buffer.address)
        ol.synchronize("cpu")
    after = device.stats()
    assert len(addresses) <= 3
    assert (after.bytes_in_use, after.buffers) == (before.bytes_in_use, before.buffers)
    assert after.bytes_idle <= before.bytes_idle + 2 * 2048
    assert result.numpy()[1] == 52.0


def test_idle_memory_is_given_back_past_a_share(way: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    x = ol.asarray(np.ones(1 << 16, np.float32), device="cpu")
    called = ol.jit(lambda x: x + x)
    held = [called(x) for _ in range(8)]
    device.trim()
    monkeypatch.setattr(device, "parts", device.parts and device.parts._replace(most_idle=1 << 19))
    program = next(iter(called._programs.values())).run.__self__  # type: ignore[attr-defined]
    recipe = program._recipe
    monkeypatch.setattr(program, "_recipe", recipe and recipe._replace(parts=device.parts))
    monkeypatch.setattr(type(device.pool), "most_idle", property(lambda pool: 1 << 19))
    held.clear()
    ol.synchronize("cpu")
    assert 0 < device.stats().bytes_idle <= 1 << 19
    assert called(x).numpy()[0] == 2.0


def test_nothing_piles_up(way: str, device: Device) -> None:
    a, b = tensor(1.0), tensor(2.0)
    called = ol.jit(total)

    def work() -> None:
        for _ in range(100):
            held = [a + b, called(a, b), a * 2.0]
            ol.synchronize("cpu")
            del held

    work()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(5):
        work()
    gc.collect()
    assert len(gc.get_objects()) <= before + 20
