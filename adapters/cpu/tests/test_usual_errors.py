"""The native way through a call, and Python's: the same errors, in one thread or several, and nothing left of them."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
import pytest

import oarlock as ol
from oarlock.config import config
from oarlock.errors import (
    ClosedError,
    DeviceError,
    DeviceTimeoutError,
    ForkedProcessError,
    LaunchError,
    OutOfMemoryError,
    ShapeError,
)
from oarlock.runtime import Device, DeviceArray, from_numpy, to_numpy


def tensor(*values: float) -> ol.Tensor:
    return ol.asarray(np.array(values, np.float32), device="cpu")


def total(*values: Any) -> Any:
    result = values[0]
    for value in values[1:]:
        result = result + value
    return result


def test_operands_that_do_not_fit(way: str, device: Device) -> None:
    called = ol.jit(lambda x, y: x + y)
    x, y = tensor(1.0, 2.0), tensor(10.0, 20.0)
    called(x, y)
    run = next(iter(called._programs.values())).run
    good = y._data
    cases: list[tuple[list[Any], type[Exception], str]] = [
        ([good], ShapeError, "takes 2 arguments, got 1"),
        ([good, tensor(1.0)._data], ShapeError, r"argument 1 is .*; got float32 \(1,\)"),
        ([good, from_numpy(np.zeros(2, np.int32), device)], ShapeError, "argument 1 .* got int32"),
        ([3.0, good], TypeError, "argument 0 .* give an array"),
        ([good, None], TypeError, "argument 1 .* give an array"),
        ([good, DeviceArray(Other(), good.buffer, 0, ol.float32, (2,))], DeviceError, "on other:0"),  # type: ignore[arg-type]
    ]
    for operands, kind, text in cases:
        ticket = device.default_lane.ticket
        with pytest.raises(kind, match=text):
            run(operands)
        assert device.default_lane.ticket == ticket
    assert to_numpy(run([good, good])[0]).tolist() == [20.0, 40.0]


class Other:
    """A device that is not the one."""

    name = "other:0"


def test_freed_operand(way: str, device: Device) -> None:
    called = ol.jit(lambda x, y: x + y)
    x, y = tensor(1.0, 2.0), tensor(10.0, 20.0)
    called(x, y)
    gone = tensor(3.0, 4.0)
    gone._data.buffer.free()
    with pytest.raises(ClosedError, match=r"cpu:0.*used after free\(\)"):
        called(x, gone)
    assert device.gate._depth == 0
    assert called(x, y).numpy().tolist() == [11.0, 22.0]


def test_no_memory_for_the_results(way: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    called = ol.jit(lambda x: (x + 1.0, ol.sum(ol.exp(x) - x)))
    x = ol.asarray(np.zeros(300_007, np.float32), device="cpu")
    called(x)
    device.trim()
    before = device.stats()

    def refuse(nbytes: int) -> None:
        raise OutOfMemoryError("the host is full")

    with monkeypatch.context() as patch:
        patch.setattr(device.driver, "allocate", refuse, raising=False)
        with pytest.raises(OutOfMemoryError, match="cpu:0: out of memory: asked 1.1 MiB"):
            called(x)
    assert device.stats().bytes_in_use == before.bytes_in_use and device.gate._depth == 0
    assert called(x)[1].item() == 300_007.0


@pytest.mark.parametrize("recorded", [True, False])
def test_failure_of_the_driver(way: str, recorded: bool, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = tensor(1.0, 2.0), tensor(10.0, 20.0)
    function = (lambda x, y: x - y) if recorded else ol.jit(lambda x, y: x - y)
    for _ in range(2):
        function(x, y).numpy()

    def fail(*arguments: Any) -> None:
        raise LaunchError("it burns")

    with monkeypatch.context() as patch:
        patch.setattr(device.driver, "replay", fail, raising=False)
        if recorded:
            result = function(x, y)
            with pytest.raises(LaunchError, match="cpu:0: it burns"):
                ol.synchronize("cpu")
            with pytest.raises(LaunchError, match="cpu:0: it burns") as caught:
                result.numpy()
            assert "recorded at" in caught.value.__notes__[0] and "x - y" in caught.value.__notes__[0]
        else:
            with pytest.raises(LaunchError, match="cpu:0: it burns"):
                function(x, y)
        patch.setattr(device.driver, "replay", lambda *arguments: 1 / 0, raising=False)
        with pytest.raises(DeviceError, match="cpu:0: replay failed: ZeroDivisionError"):
            function(x, y).numpy()
    assert device.gate._depth == 0 and device.gate._started == 0.0
    assert function(x, y).numpy().tolist() == [-9.0, -18.0]


def test_interruption_leaves_the_work_to_be_done(way: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = tensor(1.0), tensor(10.0)
    for _ in range(2):
        (x * y).numpy()

    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    result = x * y
    with monkeypatch.context() as patch:
        patch.setattr(device.driver, "replay", interrupt, raising=False)
        with pytest.raises(KeyboardInterrupt):
            ol.synchronize("cpu")
    assert device.gate._depth == 0
    assert result.numpy().tolist() == [10.0]


def test_failure_that_shows_while_waiting(way: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Exception | None] = [DeviceTimeoutError("not yet"), LaunchError("kernel k failed"), None]

    def wait(stream: Any, timeout_s: float) -> None:
        answer = answers.pop(0) if answers else None
        if answer is not None:
            raise answer

    with monkeypatch.context() as patch:
        patch.setattr(device.driver, "synchronize", wait, raising=False)
        with pytest.raises(LaunchError, match="kernel k failed"):
            ol.synchronize("cpu")
        ol.synchronize("cpu")
    assert device.gate._depth == 0 and device.usable


def test_deadline_of_a_run(way: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = tensor(1.0), tensor(10.0)
    called = ol.jit(lambda x, y: x * y)
    called(x, y)

    def late(*arguments: Any) -> None:
        device.gate.expire(time.monotonic() + 2 * config.watchdog_s)

    monkeypatch.setattr(device.driver, "replay", late, raising=False)
    with pytest.raises(DeviceTimeoutError, match="cpu:0: replay passed its deadline"):
        called(x, y)
    with pytest.raises(DeviceTimeoutError):
        called(x, y)
    assert ol.device("cpu") is not device
    device.close()


def test_closed_device(way: str, device: Device) -> None:
    x, y = tensor(1.0), tensor(10.0)
    called = ol.jit(lambda x, y: x * y)
    called(x, y)
    (x + y).numpy()
    pending = x + y
    device.close()
    with pytest.raises(ClosedError, match="cpu:0 is closed"):
        called(x, y)
    with pytest.raises(ClosedError, match="cpu:0 is closed"):
        pending.numpy()
    with pytest.raises(ClosedError, match="cpu:0 is closed"):
        device.synchronize()
    ol.synchronize("cpu")
    assert (tensor(1.0) + tensor(2.0)).numpy().tolist() == [3.0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forked_child(way: str, device: Device) -> None:
    x, y = tensor(1.0), tensor(10.0)
    called = ol.jit(lambda x, y: x * y)
    called(x, y)
    (x + y).numpy()
    child = os.fork()
    if child == 0:
        refused = 0
        for use in (lambda: called(x, y), lambda: (x + y).numpy(), lambda: ol.synchronize("cpu"), device.synchronize):
            try:
                use()
            except ForkedProcessError:
                refused += 1
        os._exit(0 if refused == 4 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert called(x, y).numpy().tolist() == [10.0]


# --- several threads ---


def test_threads_at_once(way: str, device: Device) -> None:
    shared = [tensor(float(i), 2.0 * i) for i in range(4)]
    called = ol.jit(total)
    called(*shared)
    (shared[0] + shared[1]).numpy()
    wrong: list[Any] = []

    def work(number: int) -> None:
        try:
            mine = tensor(float(number), 0.0)
            for i in range(150):
                recorded = mine + shared[i % 4]
                jitted = called(*shared, mine) if i % 2 else called(*shared)
                if i % 3 == 0:
                    ol.synchronize("cpu")
                expected = [number + i % 4, 2.0 * (i % 4)]
                if recorded.numpy().tolist() != expected or jitted.numpy().tolist()[1] != 12.0:
                    wrong.append((number, i, recorded.numpy(), jitted.numpy()))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert device.gate._depth == 0


def test_results_used_by_another_thread(way: str, device: Device) -> None:
    a, b = tensor(1.0), tensor(2.0)
    for round_ in range(30):
        pending = [a * float(round_) + b for _ in range(20)]
        seen: list[float] = []
        reader = threading.Thread(target=lambda: seen.extend(x.item() for x in pending))  # noqa: B023
        reader.start()
        more = [a + b for _ in range(20)]
        reader.join()
        assert seen == [round_ + 2.0] * 20
        assert [x.item() for x in more] == [3.0] * 20
