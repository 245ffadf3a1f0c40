"""A sweep that fails the n-th call of every method in turn: a typed error, nothing leaked, the device usable after."""

from __future__ import annotations

import contextlib
import functools
import gc
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from oarlock.errors import (
    CompileError,
    DeviceError,
    DeviceLostError,
    DeviceNotFoundError,
    LaunchError,
    OarlockError,
    OutOfMemoryError,
)
from oarlock.hal import Adapter, CopyStep, DeviceInfo, Driver, LaunchStep
from oarlock.registry.loading import replaced
from oarlock.runtime import Buffer, Device, Program, copy_across, open_device
from oarlock.target import Target
from oarlock_conformance import kernels
from oarlock_conformance.bench import Bench, expect, expect_equal, peer_of, raises, setting
from oarlock_conformance.case import Failure
from oarlock_conformance.registry import runtime_case
from oarlock_conformance.witness import Fault, Witness, witnessed

COUNT = 96
_TEXT = "a fault on purpose"

_TYPES: dict[str, type[DeviceError] | type[CompileError]] = {
    "allocate": OutOfMemoryError, "load": CompileError, "launch": LaunchError, "replay": LaunchError,
    "synchronize": LaunchError,
}  # fmt: skip
"""What the contract names for a method; DeviceError where it names nothing."""


Work: TypeAlias = Callable[[Bench], None]


def loading(bench: Bench) -> None:
    """The workload with a program that is loaded for it."""
    _use(bench, bench.device.load(bench.program(kernels.increment).executable))


def workload(bench: Bench) -> None:
    """Use everything that the device offers once or twice, and look at the results."""
    _use(bench, bench.program(kernels.increment))


def _use(bench: Bench, loaded: Program) -> None:
    device = bench.device
    data = bench.ints(COUNT)
    x, y, z = bench.upload(data), bench.filled(COUNT), bench.filled(COUNT)
    bench.launch(loaded, (COUNT, 1, 1), [(x, 0), (y, 0)], [3])
    device.copy(z, 0, y, 0, 4 * COUNT)
    device.copy(z, 4, y, 8, 5)
    device.fill(z, 64, 128, 0)
    bench.launch(loaded, (COUNT, 1, 1), [(z, 0), (x, 0)], [1])
    wanted = data + np.int32(3)
    wanted.view(np.uint8)[4:9] = wanted.view(np.uint8)[8:13].copy()
    wanted[16:48] = 0
    expect_equal(bench.download(x, COUNT), wanted + np.int32(1), "results of the workload")
    _optional(bench, loaded, x, y)
    if device.can.streams is not None:
        _on_streams(bench, loaded, x, y)
    z.free()
    device.synchronize()


def _optional(bench: Bench, loaded: Program, x: Buffer, y: Buffer) -> None:
    device = bench.device
    device.memory_info()
    if device.can.address is not None:
        expect(x.address != y.address, "two live buffers have one address")
        if "host_memory" in device.info.capabilities:
            foreign = np.zeros(COUNT, np.int32)
            device.adopt(foreign.ctypes.data, foreign.nbytes, foreign)
    if device.can.pinned is not None:
        device.copy_in(y, 0, device.allocate_pinned(4 * COUNT))
    if device.can.plans is not None:
        signature = loaded.signatures["increment"]
        bindings = ((0, 0, 4 * COUNT), (1, 0, 4 * COUNT))
        launch = LaunchStep(loaded, "increment", (COUNT, 1, 1), signature.block, bindings, signature.pack([0, 0, 2]))
        plan = device.prepare([launch, CopyStep(0, 0, 1, 0, 64)])
        before = bench.download(x, COUNT)
        plan.replay([x, y])
        plan.replay([x, y])
        wanted = before + np.int32(2)
        wanted[:16] += np.int32(2)
        expect_equal(bench.download(y, COUNT), wanted, "a plan in the workload")


def _on_streams(bench: Bench, loaded: Program, x: Buffer, y: Buffer) -> None:
    device = bench.device
    before = bench.download(x, COUNT)
    stream = device.create_stream()
    start = device.current_stream.record()
    stream.wait(start)
    bench.launch(loaded, (COUNT, 1, 1), [(x, 0), (y, 0)], [5], stream)
    calls: list[int] = []
    if device.can.host_callbacks is not None:
        stream.call_host(lambda: calls.append(1))
    end = stream.record()
    end.synchronize()
    if device.can.elapsed_time is not None:
        expect(start.elapsed(end) >= 0, "the time between two events is negative")
    if device.can.host_callbacks is not None:
        expect(calls == [1], f"a host callback ran {len(calls)} times")
    expect_equal(bench.download(y, COUNT, stream=stream), before + np.int32(5), "a launch on another stream")
    stream.close()


def fail_each(bench: Bench, method: str, work: Work) -> None:
    """Run ``work`` with each call of ``method`` failing in turn, with the error that the contract names and another."""
    count = _calls(bench, work)[method]
    expect(count > 0, f"the workload never called {method}")
    count = 1 if method == "query" else count  # asked until it is true: how often, nobody knows
    named: Callable[[], Exception] = functools.partial(_TYPES.get(method, DeviceError), _TEXT)
    foreign: Callable[[], Exception] = functools.partial(KeyError, _TEXT)
    plan = [(number, error) for number in range(1, count + 1) for error in (named, foreign)]
    if bench.options.quick:
        plan = [(1, named), ((count + 1) // 2, foreign), (count, named)][: min(3, count + 1)]
    for number, error in plan:
        _fail(bench, work, Fault(method, number, error, after=method == "synchronize"))
    bench.works()


_counted: weakref.WeakKeyDictionary[Device, dict[str, Counter[str]]] = weakref.WeakKeyDictionary()


def _calls(bench: Bench, work: Work) -> Counter[str]:
    """How often ``work`` calls each method when nothing fails; looked at once for a device."""
    known = _counted.setdefault(bench.device, {})
    key = work.__name__
    if key not in known:
        work(bench)
        _settle(bench)
        with witnessed(bench.device) as witness:
            work(bench)
            _settle(bench)
        _accounts(witness, "the workload without a fault")
        known[key] = witness.calls
    return known[key]


def _fail(bench: Bench, work: Work, fault: Fault) -> None:
    what = f"call {fault.number} of {fault.method} raised {type(fault.error()).__name__}"
    device = bench.device
    with witnessed(device, fault) as witness:
        told = _errors(lambda: work(bench))
        told += _settle(bench)
    expect(witness.fired, f"{what}: it was never reached, although it was without the fault")
    for error in told:
        _judge(device, error, what)
    # An allocation is tried again after idle memory was released; and a late fault may meet nobody who waits.
    expect(bool(told) or fault.method == "allocate", f"{what}, and nobody was told")
    if fault.method == "synchronize" and device.info.failure_scope == "device":  # a command failed: nothing is left
        expect(not device.usable, f"{what}, failure_scope is device, and the device is usable")
        bench.forget()
    else:
        _accounts(witness, what)
    bench.works()


def _errors(action: Callable[[], object]) -> list[Exception]:
    """What an action raises, without the frames that keep its objects alive."""
    try:
        action()
    except Failure:
        raise
    except Exception as error:
        return [_bare(error)]
    return []


def _bare(error: Exception) -> Exception:
    cause = error.__cause__
    copy = error.with_traceback(None)
    copy.__context__ = None
    copy.__cause__ = cause.with_traceback(None) if isinstance(cause, Exception) else None
    return copy


def _judge(device: Device, error: Exception, what: str) -> None:
    text = str(error)
    expect(isinstance(error, OarlockError), f"{what}: {type(error).__name__} came out, which is no OarlockError")
    expect(text.startswith(device.name), f"{what}: the text does not begin with {device.name}: {text}")
    told = _TEXT in text or isinstance(error, OutOfMemoryError)
    expect(told, f"{what}: the text does not hold the driver's own {_TEXT!r}: {text}")


def _settle(bench: Bench) -> list[Exception]:
    """Wait, drop and give back until nothing is left; returns the errors on the way."""
    told: list[Exception] = []
    for _ in range(50):
        gc.collect()
        device = bench.device
        failed = [e for do in (device.synchronize, device.trim, device.stats, device.synchronize) for e in _errors(do)]
        told += failed
        if not failed and not device.stats().bytes_idle and not device.stats().events:
            break
        time.sleep(0.002)
    return told


def _accounts(witness: Witness, what: str) -> None:
    expect(not witness.live, f"{what}: the core never gave back {', '.join(sorted(set(witness.live)))}")
    expect(not witness.breaches, f"{what}: the core broke its promise: {(witness.breaches or [''])[0]}")


_DRIVER = ("allocate", "free", "copy_in", "copy_out", "copy", "synchronize", "load", "launch")
_OPTIONAL = {
    "streams": ("create_stream", "destroy_stream", "record", "wait", "query", "destroy_event"),
    "fill": ("fill",), "memory_info": ("memory_info",), "plans": ("prepare", "replay"),
    "address": ("address",), "pinned": ("allocate_pinned",),
}  # fmt: skip
_WITH_STREAMS = {"elapsed_time": "elapsed", "host_callbacks": "call_host"}


def _register(method: str, *needs: str) -> None:
    @runtime_case(
        f"sweep.driver/{method}",
        f"when {method} fails, at any call, the error is typed and tells it, nothing leaks, and the device is usable",
        *needs,
    )
    def check(bench: Bench) -> None:
        fail_each(bench, method, loading if method == "load" else workload)


for _method in _DRIVER:
    _register(_method)
for _capability, _methods in _OPTIONAL.items():
    for _method in _methods:
        _register(_method, _capability)
for _capability, _method in _WITH_STREAMS.items():
    _register(_method, _capability, "streams")
_register("adopt", "address", "host_memory")


@runtime_case(
    "sweep.driver/copy_peer",
    "when copy_peer fails, the error is typed and tells it, and both devices are usable",
    "peer_copy",
    "peer",
)
def copy_peer(bench: Bench) -> None:
    device = bench.device
    other = open_device(f"{device.adapter_name}:{peer_of(device)}")
    try:

        def across(bench: Bench) -> None:
            _across(bench, other)

        fail_each(bench, "copy_peer", across)
        expect(other.usable, f"{other.name} is not usable after faults of {device.name}")
    finally:
        other.close()


def _across(bench: Bench, other: Device) -> None:
    data = bench.ints(64)
    source, target = other.allocate(256), bench.filled(64)
    other.copy_in(source, 0, data)
    copy_across(target, 0, source, 0, 256)
    expect_equal(bench.download(target, 64), data, f"256 bytes from {other.name}")


@runtime_case("sweep.driver/close", "when close fails, the error is typed, the device is closed, and it opens again")
def close(bench: Bench) -> None:
    for error in (functools.partial(DeviceError, _TEXT), functools.partial(OSError, _TEXT)):
        device = bench.device
        buffer = bench.filled(8)
        with witnessed(device, Fault("close", 1, error, after=True)) as witness:
            with raises(DeviceError, "close that fails", device.name, _TEXT):
                device.close()
            device.close()
            expect(witness.calls["close"] == 1, f"close was called {witness.calls['close']} times")
        expect(not device.usable, "a device is usable although close() was called")
        bench.forget()
        del buffer
        bench.works()


@runtime_case(
    "sweep.lost/methods",
    "once any method raises DeviceLostError every use raises it, until the device is opened again",
)
def lost(bench: Bench) -> None:
    bench.works()
    calls = _calls(bench, loading)
    methods = [name for name in _DRIVER if name != "free"]
    methods += [name for names in _OPTIONAL.values() for name in names if calls[name]]
    for method in methods[:: 3 if bench.options.quick else 1]:
        device = bench.device
        with witnessed(device, Fault(method, 1, functools.partial(DeviceLostError, _TEXT))) as witness:
            told = _errors(lambda: loading(bench))
            told += [] if told else _errors(device.synchronize)
            before = sum(witness.calls.values())
            gc.collect()
            device.collect()
            later = sum(witness.calls.values()) - before
            expect(later == 0, f"after {method} raised DeviceLostError the driver was called {later} times")
        what = f"{method} raised DeviceLostError"
        expect(len(told) == 1 and isinstance(told[0], DeviceLostError), f"{what}, and this came out: {told}")
        expect(not device.usable, f"{what}, and the device counts as usable")
        for use in (device.synchronize, functools.partial(device.allocate, 16)):
            with raises(DeviceLostError, f"a use after {what}", device.name, _TEXT):
                use()
        bench.forget()
        expect(bench.device is not device, f"{what}, and open_device gave the lost device again")
        bench.works()


@runtime_case("sweep.lost/reset", "a lost device is closed even when its reset fails, and opens again", "reset")
def reset(bench: Bench) -> None:
    device = bench.device
    buffer = bench.filled(8)
    with witnessed(device, Fault("reset", 1, functools.partial(DeviceError, _TEXT), after=True)) as witness:
        device.gate.lose(DeviceLostError(f"{device.name}: lost on purpose"))
        device.close()
        expect(witness.calls["reset"] == 1, "a lost device was closed without reset")
        expect(witness.calls["close"] == 1, "a lost device whose reset failed was not closed")
    del buffer
    bench.forget()
    bench.works()


class _StandIn(Adapter):
    """The device's adapter, with one call of one method that fails."""

    def __init__(self, adapter: Adapter, method: str, error: Callable[[], Exception]) -> None:
        self._adapter = adapter
        self._method = method
        self._error = error

    def _called(self, method: str) -> None:
        if method == self._method:
            self._method = ""
            raise self._error()

    def devices(self) -> list[DeviceInfo]:
        self._called("devices")
        return self._adapter.devices()

    def open(self, index: int) -> Driver:
        self._called("open")
        return self._adapter.open(index)

    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        self._called("compile")
        return self._adapter.compile(target, source, entries)

    def cache_key(self, target: Target) -> str:
        self._called("cache_key")
        return self._adapter.cache_key(target)


@contextlib.contextmanager
def _standing_in(bench: Bench, method: str, error: Callable[[], Exception]) -> Iterator[None]:
    device = bench.device
    adapter, name = device.adapter, device.adapter_name
    device.close()
    bench.forget()
    with replaced("oarlock.adapters", name, _StandIn(adapter, method, error)):
        yield
        bench.device.close()
    bench.forget()


@runtime_case(
    "sweep.adapter/devices", "when devices() fails, the device is not available, with the cause; later it opens"
)
def devices(bench: Bench) -> None:
    for error in (functools.partial(DeviceError, _TEXT), functools.partial(OSError, _TEXT)):
        with _standing_in(bench, "devices", error):
            with raises(DeviceNotFoundError, "opening a device that cannot be listed", bench.name, _TEXT, "doctor"):
                open_device(bench.name)
            bench.works()


@runtime_case("sweep.adapter/open", "when open fails half-way, the error is typed and tells it; a second try works")
def opening(bench: Bench) -> None:
    for error in (functools.partial(DeviceError, _TEXT), functools.partial(RuntimeError, _TEXT)):
        with _standing_in(bench, "open", error):
            with raises(DeviceError, "opening a device whose driver fails", bench.name.partition(":")[0], _TEXT):
                open_device(bench.name)
            bench.works()


@runtime_case("sweep.adapter/compile", "when compile fails, the error is typed and tells it, and a second try works")
def compiling(bench: Bench) -> None:
    for error, kind in ((functools.partial(CompileError, _TEXT, _TEXT), CompileError), (_foreign, DeviceError)):
        with _standing_in(bench, "compile", error), setting("cache", False):
            with raises(kind, "compiling with a compiler that fails", bench.name.partition(":")[0], _TEXT):
                bench.load(kernels.scale(11))
            data = bench.ints(16)
            x, y = bench.upload(data), bench.filled(16)
            bench.launch(bench.load(kernels.scale(11)), (16, 1, 1), [(x, 0), (y, 0)])
            expect_equal(bench.download(y, 16), data * np.int32(11), "a kernel that compiled at the second try")
            del x, y


def _foreign() -> Exception:
    return ZeroDivisionError(_TEXT)
