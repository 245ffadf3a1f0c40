"""The gate: one thread at a time, deadlines, and what a lost device does to everybody."""

from __future__ import annotations

import threading
import time

import pytest

from oarlock.config import config
from oarlock.errors import DeviceLostError, DeviceTimeoutError
from oarlock.runtime import open_device
from oarlock.runtime.watchdog import Gate


def test_calls_of_many_threads_never_overlap_in_the_driver(make, fake):
    device = make(threads=True)
    driver = fake.LIVE[-1]
    program = fake.load(device, fake.signature("add", 2))
    enter = driver.enter

    def slowly(method: str) -> None:
        enter(method)
        driver.inside = threading.get_ident()
        time.sleep(0)
        driver.inside = None

    driver.enter = slowly
    errors = []

    def work() -> None:
        try:
            for _ in range(50):
                first, second = device.allocate(100), device.allocate(100)
                device.copy_in(first, 0, bytes(100))
                device.launch(program, "add", (1, 1, 1), [(first, 0), (second, 0)])
                out = bytearray(100)
                device.copy_out(out, second, 0)
                device.synchronize()
                assert out == b"\x01" * 100
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert driver.breaches == []


def test_waiting_thread_lets_others_submit(make, fake):
    device = make(threads=True)
    stream = device.create_stream()
    release = fake.LIVE[-1].hold()
    waiter = threading.Thread(target=device.default_stream.synchronize)
    waiter.start()
    time.sleep(0.02)
    start = time.monotonic()
    for _ in range(20):
        device.copy_in(device.allocate(4), 0, b"abcd", stream)
    stream.synchronize()
    assert time.monotonic() - start < 2
    assert waiter.is_alive()
    release.set()
    waiter.join(10)
    assert not waiter.is_alive()


def test_synchronize_past_the_deadline_loses_the_device(make, fake, monkeypatch):
    monkeypatch.setattr(config, "watchdog_s", 0.1)
    device = make(threads=True)
    release = fake.LIVE[-1].hold()
    device.copy_in(device.allocate(4), 0, b"abcd")
    with pytest.raises(DeviceTimeoutError, match=r"^fake:0: synchronize passed its deadline of 0\.1 s"):
        device.synchronize()
    with pytest.raises(DeviceLostError):
        device.allocate(4)
    release.set()
    again = open_device("fake:0")
    again.copy_in(again.allocate(4), 0, b"abcd")
    again.synchronize()


def test_watchdog_off_waits(make, fake, monkeypatch):
    monkeypatch.setattr(config, "watchdog_s", 0)
    device = make(threads=True)
    release = fake.LIVE[-1].hold()
    threading.Timer(0.2, release.set).start()
    device.synchronize()
    assert device.usable


def test_hanging_call_frees_the_other_threads_and_raises_when_it_returns(make, fake, monkeypatch):
    monkeypatch.setattr(config, "watchdog_s", 0.1)
    device = make()
    release = fake.LIVE[-1].block["copy_in"] = threading.Event()
    buffer = device.allocate(4)
    outcomes = []

    def hang() -> None:
        try:
            device.copy_in(buffer, 0, b"abcd")
        except Exception as error:
            outcomes.append(error)

    hung = threading.Thread(target=hang)
    hung.start()
    time.sleep(0.02)
    start = time.monotonic()
    with pytest.raises(DeviceTimeoutError, match="fake:0: copy_in passed its deadline"):
        device.allocate(4)
    assert time.monotonic() - start < 2
    again = open_device("fake:0")
    assert again is not device
    assert fake.LIVE[0].count("close") == 0, "the hung driver is left alone"
    release.set()
    hung.join(10)
    assert isinstance(outcomes[0], DeviceTimeoutError)


def test_hanging_compile_loses_the_device(make, fake, monkeypatch):
    monkeypatch.setattr(config, "watchdog_s", 0.1)
    device = make()
    monkeypatch.setattr(type(device.adapter), "compile", lambda *arguments: time.sleep(0.5) or b"late")
    with pytest.raises(DeviceTimeoutError, match="fake:0: compile passed"):
        device.compile("slow", [fake.signature("nothing")])


def test_lost_device_raises_everywhere_and_can_be_reopened(make, fake):
    device = make(threads=True)
    program = fake.load(device, fake.signature("nothing"))
    buffer, stream = device.allocate(4), device.create_stream()
    event = stream.record()
    fake.LIVE[-1].lost = True
    with pytest.raises(DeviceLostError, match="^fake:0: it fell off the bus"):
        device.copy_in(buffer, 0, b"abcd")
    fake.LIVE[-1].lost = False
    for use in (
        lambda: device.allocate(4),
        lambda: device.copy_out(bytearray(4), buffer, 0),
        lambda: device.launch(program, "nothing", (1, 1, 1), []),
        lambda: device.launch(program, "nothing", (0, 1, 1), []),
        lambda: device.compile("x", []),
        lambda: device.synchronize(),
        lambda: stream.record(),
        lambda: event.query(),
        lambda: device.trim(),
        lambda: device.create_stream(),
    ):
        with pytest.raises(DeviceLostError, match="fell off"):
            use()
    again = open_device("fake:0")
    again.copy_in(again.allocate(4), 0, b"abcd")
    buffer.free()
    assert device.stats().launches == 0


def test_lost_device_is_reset_before_it_is_opened_again(make, fake):
    device = make(capabilities=frozenset({"reset"}))
    driver = fake.LIVE[-1]
    driver.lost = True
    with pytest.raises(DeviceLostError):
        device.allocate(4)
    again = open_device("fake:0")
    again.copy_in(again.allocate(4), 0, b"abcd")
    assert driver.calls[-2:] == ["reset", "close"]


def test_gate_costs_little(make):
    gate = Gate("x:0")

    def nothing() -> None:
        return None

    best = min(_time(lambda: gate.call("nothing", nothing)) for _ in range(5))
    assert best < 20e-6, f"{best * 1e6:.2f} us a call"  # about 1 us; the machine may be busy


def _time(function) -> float:
    start = time.perf_counter()
    for _ in range(2000):
        function()
    return (time.perf_counter() - start) / 2000
