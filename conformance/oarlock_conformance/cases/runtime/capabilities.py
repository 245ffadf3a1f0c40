"""Claims probed, capabilities: one that is declared does what it says, one that is not declared is not there."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from oarlock import dtypes
from oarlock.errors import DeviceLostError, LaunchError, OarlockError, UnsupportedError
from oarlock.hal import OperatorCall
from oarlock.runtime import Device, open_device
from oarlock_conformance import kernels
from oarlock_conformance.bench import Bench, expect, expect_equal, raises
from oarlock_conformance.case import Failure
from oarlock_conformance.registry import runtime_case
from oarlock_conformance.witness import Fault, witnessed

MIB = 1 << 20


@runtime_case("claims.capability/address", "address: live allocations lie apart, at addresses that stay", "address")
def address(bench: Bench) -> None:
    buffers = [bench.device.allocate(size) for size in (1, 256, 1000, 4096, 70_000)]
    places = sorted((buffer.address, buffer.nbytes) for buffer in buffers)
    for (low, nbytes), (high, _) in zip(places, places[1:], strict=False):
        expect(low + nbytes <= high, f"{nbytes} bytes at {low:#x} reach into the allocation at {high:#x}")
    bench.works()
    expect(places == sorted((buffer.address, buffer.nbytes) for buffer in buffers), "addresses change while in use")


@runtime_case(
    "claims.capability/host_memory", "host_memory: the host reads and writes an allocation in place", "host_memory"
)
def host_memory(bench: Bench) -> None:
    device = bench.device
    expect(device.can.address is not None, "host_memory is declared without address, by which the host would find it")
    data = bench.ints(500)
    x, y = device.allocate(2000), bench.filled(500)
    device.synchronize()
    ctypes.memmove(x.address, data.ctypes.data, 2000)
    bench.increment(y, x, 500, 6)
    device.synchronize()
    seen = np.frombuffer(memoryview((ctypes.c_char * 2000).from_address(y.address)), np.int32)
    expect_equal(seen, data + np.int32(6), "memory that the host wrote, a kernel read, and the host read again")


@runtime_case("claims.capability/fill", "fill: sets bytes in stream order, straight from the driver", "fill")
def fill(bench: Bench) -> None:
    device = bench.device
    data = bench.bytes(4096)
    buffer, handle = (made := bench.upload(data)), made.allocation.handle
    unit = device.target.limits.copy_alignment
    assert device.can.fill is not None  # or the case would not apply
    for start, count, byte in ((0, 1, 0), (8, 24, 0x5A), (64, 100, 0xFF), (1000 // unit, 4, 1)):
        with device.using("fill"):
            device.can.fill.fill(None, handle, start * unit, count * unit, byte)
        data[start * unit : (start + count) * unit] = byte
    expect_equal(bench.download(buffer, 4096, np.uint8), data, "memory after fills")


@runtime_case("claims.capability/memory_info", "memory_info: the total agrees with DeviceInfo.memory", "memory_info")
def memory_info(bench: Bench) -> None:
    device = bench.device
    assert device.can.memory_info is not None  # or the case would not apply
    free, total = device.gate.call("memory_info", device.can.memory_info.memory_info)
    expect(0 <= free <= total, f"memory_info tells {free} free of {total}")
    apart = max(total, device.info.memory) / max(1, min(total, device.info.memory))
    expect(apart <= 1.5, f"memory_info tells a total of {total}, DeviceInfo.memory is {device.info.memory}")


@runtime_case("claims.capability/pinned", "pinned: memory is writable, of the size asked for, and its own", "pinned")
def pinned(bench: Bench) -> None:
    device = bench.device
    for nbytes in (1, 4095, 4096, MIB):
        view = device.allocate_pinned(nbytes)
        expect(isinstance(view, memoryview), f"allocate_pinned gave {type(view).__name__}, not a memoryview")
        expect(view.nbytes == nbytes and not view.readonly, f"allocate_pinned({nbytes}) gave {view.nbytes} bytes")
        view.cast("B")[-1] = 7
    views = [device.allocate_pinned(4096) for _ in range(8)]
    for number, view in enumerate(views):
        view.cast("B")[:] = bytes([number]) * 4096
    expect([bytes(v.cast("B")[:1])[0] for v in views] == list(range(8)), "two pinned allocations share memory")


@runtime_case(
    "claims.capability/peer_copy", "peer_copy: copies from another device of the adapter, in stream order",
    "peer_copy", "two_devices",
)  # fmt: skip
def peer_copy(bench: Bench) -> None:
    device = bench.device
    other = open_device(f"{device.adapter_name}:{0 if device.index else 1}")
    try:
        data = bench.ints(256)
        source, target = other.allocate(1024), bench.filled(256, 5)
        other.copy_in(source, 0, data)
        other.synchronize()
        assert device.can.peer_copy is not None  # or the case would not apply
        with device.using("copy_peer"):
            device.can.peer_copy.copy_peer(
                None, target.allocation.handle, 64, other.driver, source.allocation.handle, 128, 512
            )
        wanted = np.full(256, 5, np.int32)
        wanted[16:144] = data[32:160]
        expect_equal(bench.download(target, 256), wanted, f"512 bytes from {other.name}")
    finally:
        other.close()


@runtime_case("claims.capability/plans", "plans: a plan of one launch does what the launch does", "plans")
def plans(bench: Bench) -> None:
    from oarlock.hal import LaunchStep

    program = bench.program(kernels.increment)
    signature = program.signatures["increment"]
    data = bench.ints(32)
    x, y = bench.upload(data), bench.filled(32)
    block = signature.pack([0, 0, 4])
    step = LaunchStep(program, "increment", (32, 1, 1), signature.block, ((0, 0, 128), (1, 0, 128)), block)
    bench.device.prepare([step]).replay([x, y])
    expect_equal(bench.download(y, 32), data + np.int32(4), "a plan of one launch")


@runtime_case("claims.capability/reset", "reset: after it the driver works as after opening", "reset")
def reset(bench: Bench) -> None:
    device = bench.device
    kept = bench.upload(bench.bytes(1000))
    device.synchronize()
    device.gate.lose(DeviceLostError(f"{device.name}: lost on purpose"))
    with witnessed(device) as witness:
        device.close()
    expect(witness.calls["reset"] == 1, "closing a lost device did not reset it")
    del kept
    bench.forget()
    bench.works()


@runtime_case(
    "claims.capability/streams", "streams: work on one stream does not wait for another's", "streams", "host_callbacks"
)
def streams(bench: Bench) -> None:
    device = bench.device
    held, free = device.create_stream(), device.create_stream()
    x, y = bench.filled(8, 2), bench.filled(8)
    bench.increment(y, x, 8, 1)
    device.synchronize()
    gate = threading.Event()
    held.call_host(lambda: _hold(gate))
    try:
        bench.increment(y, x, 8, 7, free)
        event = free.record()
        deadline = time.monotonic() + 25
        while not event.query() and time.monotonic() < deadline:
            time.sleep(0.001)
        expect(event.query(), "a stream does not go on while another is held for 25 s")
    finally:
        gate.set()
    expect_equal(bench.download(y, 8, stream=free), np.full(8, 9, np.int32), "work beside a stream that was held")


def _hold(gate: threading.Event) -> None:
    gate.wait(30.0)


@runtime_case(
    "claims.capability/host_callbacks", "host_callbacks: each runs once, from a thread that may use the driver",
    "host_callbacks",
)  # fmt: skip
def host_callbacks(bench: Bench) -> None:
    device = bench.device
    counts: list[int] = []
    made: list[Any] = []

    def work(number: int) -> None:
        counts.append(number)
        made.append(device.allocate(64))

    for number in range(20):
        device.default_stream.call_host(lambda number=number: work(number))  # type: ignore[misc]
    device.synchronize()
    expect(counts == list(range(20)), f"20 callbacks ran as {counts}")
    expect(len(made) == 20, "a callback could not allocate")
    made.clear()
    gc.collect()


@runtime_case(
    "claims.capability/operators", "operators: match gives a kernel or None, the same way each time", "operators"
)
def operators(bench: Bench) -> None:
    for rows in (64, 24):
        _claimed(bench, rows)


def _claimed(bench: Bench, rows: int) -> None:
    device = bench.device
    driver: Any = device.driver
    tall, square = ((dtypes.float32, (n, 64)) for n in (rows, 64))
    attributes = {"batch": ((), ()), "contract": ((1,), (0,)), "dtype": dtypes.float32}
    product = OperatorCall("dot_general", (tall, square), (tall,), attributes)
    for call in (product, OperatorCall("no_such_operator", (square,), (square,), {})):
        with device.using("match"):
            found = [driver.match(call, device.target) for _ in range(2)]
        expect((found[0] is None) == (found[1] is None), f"match of {call.name} answers now so, now so")
        if found[0] is None:
            continue
        expect(call is product, "match gives a kernel for an operator that does not exist")
        workspace = found[0].workspace()
        expect(isinstance(workspace, int) and workspace >= 0, f"workspace() of {call.name} is {workspace!r}")
        x, y = (bench.random.integers(-4, 5, (n, 64)).astype(np.float32) for n in (rows, 64))
        buffers = [bench.upload(x), bench.upload(y), device.allocate(x.nbytes)]
        buffers += [device.allocate(workspace)] if workspace else []
        for _ in range(2):  # again before the first run has ended
            with device.using("dot_general"):
                found[0].run(None, [(buffer.allocation.handle, 0) for buffer in buffers])
        expect_equal(
            bench.download(buffers[2], x.size, np.float32), (x @ y).reshape(-1), "the adapter's own dot_general"
        )


_Probe = Callable[[Device, Any, Any], object]
"""Calls a method of a driver, on the handle of a small allocation."""

_PROBES: dict[str, tuple[str, _Probe]] = {
    "streams": ("create_stream", lambda device, driver, handle: driver.create_stream()),
    "fill": ("fill", lambda device, driver, handle: driver.fill(None, handle, 0, 64, 0)),
    "address": ("address", lambda device, driver, handle: driver.address(handle)),
    "memory_info": ("memory_info", lambda device, driver, handle: driver.memory_info()),
    "host_callbacks": ("call_host", lambda device, driver, handle: driver.call_host(None, lambda: None)),
    "plans": ("prepare", lambda device, driver, handle: driver.prepare([])),
    "pinned": ("allocate_pinned", lambda device, driver, handle: driver.allocate_pinned(64)),
    "peer_copy": (
        "copy_peer",
        lambda device, driver, own: driver.copy_peer(None, own, 0, driver, own, 64, 64),
    ),
    "operators": (
        "match",
        lambda device, driver, handle: driver.match(OperatorCall("abs", (), (), {}), device.target),
    ),
    "communication": ("init_group", lambda device, driver, handle: driver.init_group(b"", 0, 1)),
    "reset": ("reset", lambda device, driver, handle: driver.reset()),
}


_REFUSALS: dict[str, Callable[[Bench], object]] = {
    "streams": lambda bench: bench.device.create_stream(),
    "address": lambda bench: bench.filled(4).address,
    "host_callbacks": lambda bench: bench.device.default_stream.call_host(lambda: None),
    "plans": lambda bench: bench.device.prepare([]),
    "pinned": lambda bench: bench.device.allocate_pinned(64),
    "elapsed_time": lambda bench: bench.device.default_stream.record().elapsed(bench.device.default_stream.record()),
}


@runtime_case(
    "claims.undeclared/refused", "a use of a capability that is not declared raises UnsupportedError naming the device"
)
def refused(bench: Bench) -> None:
    for capability, use in _REFUSALS.items():
        if capability not in bench.device.info.capabilities:
            with raises(UnsupportedError, f"a use of {capability}, which is not declared", bench.device.name):
                use(bench)
    bench.works()


@runtime_case(
    "claims.undeclared/methods", "what a capability would offer is not there, or refuses, where it is not declared"
)
def undeclared(bench: Bench) -> None:
    device = bench.device
    driver: Any = device.driver
    offered = []
    buffer = bench.filled(64)
    device.synchronize()
    for capability, (method, probe) in _PROBES.items():
        if capability in device.info.capabilities or not callable(getattr(driver, method, None)):
            continue
        try:
            with device.using(method):
                probe(device, driver, buffer.allocation.handle)
        except UnsupportedError:
            continue
        except OarlockError as error:
            raise Failure(
                f"{method} fails with {type(error).__name__} ({error}); as {capability} is not declared, the driver "
                f"should not have it, or raise UnsupportedError"
            ) from error
        offered.append(f"{capability} (its {method} works)")
    if offered:
        device.close()
        bench.forget()
    expect(not offered, f"the driver offers what the device does not declare: {', '.join(offered)}")


@runtime_case(
    "claims.failure_scope/kept", "failure_scope: a failed command spoils its stream until it is told, or the device"
)
def failure_scope(bench: Bench) -> None:
    device = bench.device
    data = bench.ints(16)
    x, y = bench.upload(data), bench.filled(16)
    device.synchronize()
    text = "kernel increment failed on purpose"
    with witnessed(device, Fault("synchronize", 1, lambda: LaunchError(text), after=True)):
        bench.increment(y, x, 16, 1)
        with raises(LaunchError, "the first wait", text):
            device.synchronize()
    if device.info.failure_scope == "device":
        expect(not device.usable, "failure_scope is device, and the device is usable after a failed command")
        with contextlib.suppress(OarlockError):
            device.close()
        bench.forget()
    else:
        expect(device.usable, "failure_scope is stream, and the device is lost after a failed command")
        device.synchronize()
    bench.works()
