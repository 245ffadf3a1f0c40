"""Cases on endings in every order: what is dropped before, with, or after the device, and what runs at exit."""

from __future__ import annotations

import gc
import itertools
import time

import numpy as np

from oarlock import registry
from oarlock.errors import OutOfMemoryError
from oarlock.runtime import open_device
from oarlock_conformance import kernels
from oarlock_conformance.bench import Bench, expect, expect_equal, setting
from oarlock_conformance.case import Failure
from oarlock_conformance.registry import runtime_case

_OPEN = """
import atexit, gc, threading
import numpy as np
from oarlock_conformance.bench import Bench
from oarlock_conformance.case import Options
from oarlock_conformance import kernels
"""


@runtime_case(
    "life.close/orders", "a buffer, a program, an event and the device itself may end in any order: all 24 of them"
)
def orders(bench: Bench) -> None:
    program = bench.program(kernels.increment)
    executable = program.executable
    del program
    all_orders = list(itertools.permutations(("buffer", "program", "event", "device")))
    for order in all_orders[:: 4 if bench.options.quick else 1]:
        device = bench.device
        kept: dict[str, object] = {
            "buffer": bench.filled(64, 1), "program": device.load(executable),
            "event": device.default_stream.record(),
        }  # fmt: skip
        for name in order:
            if name == "device":
                device.close()
                bench.forget()
            else:
                kept.pop(name)
                gc.collect()
        after = bench.device.stats()
        expect(after.buffers == after.events == 0, f"after ending in the order {order} something is alive: {after}")
    bench.works()


@runtime_case("life.close/host_memory", "after close nothing of the work in flight writes to the host's memory")
def host_memory(bench: Bench) -> None:
    for seconds in (0.0, 0.01, 0.1):
        device = bench.device
        out, host = bench.filled(4096, 3), np.zeros(4096, np.int32)
        busy = bench.filled(2)
        bench.spin(busy, 1, seconds=seconds)
        device.copy_out(host, out, 0)
        device.close()
        bench.forget()
        seen = host.copy()
        time.sleep(0.05)
        expect_equal(host, seen, "the destination of a copy that was in flight, 50 ms after close and at close")
        expect(set(seen.tolist()) <= {0, 3}, "a copy in flight at close left something else than old or new values")
        del out, busy
    bench.works()


@runtime_case(
    "life.close/views", "a NumPy array whose memory a buffer uses outlives buffer and device, in any order", "address",
    "host_memory",
)  # fmt: skip
def views(bench: Bench) -> None:
    for order in itertools.permutations(("array", "buffer", "device")):
        device = bench.device
        data = bench.ints(100)
        wanted = data.copy()
        kept: dict[str, object] = {"array": data, "buffer": device.adopt(data.ctypes.data, data.nbytes, data)}
        view = data[10:20]
        del data
        for name in order:
            if name == "device":
                device.close()
                bench.forget()
            else:
                kept.pop(name)
                gc.collect()
        expect_equal(view, wanted[10:20], f"an array's view after ending in the order {order}")
    bench.works()


@runtime_case("life.open/memory", "memory that was in use at close can be had again after opening, time after time")
def memory(bench: Bench) -> None:
    taken = 0
    with setting("poison", False):  # which would touch it all
        while taken <= bench.device.info.memory:
            device = bench.device
            free = device.memory_info()[0]
            piece = min(device.target.limits.max_allocation, device.info.memory // 4, free // 2)
            kept = []
            for _ in range(max(1, device.info.memory // 2 // piece)):
                try:
                    kept.append(device.allocate(piece))
                except OutOfMemoryError as error:
                    if not taken:
                        break  # others use the device: what can be had the first time is what counts
                    text = f"after {taken >> 20} MiB were in use at close, {piece >> 20} MiB cannot be had: {error}"
                    raise Failure(text) from error
            expect(bool(kept), f"{piece >> 20} MiB of {free >> 20} MiB that are free cannot be had")
            taken += piece * len(kept)
            device.close()
            bench.forget()
            kept.clear()
    bench.works()


@runtime_case(
    "life.open/registered_again", "after its plugin was forgotten and found again, the device opens and works; 3 times"
)
def registered_again(bench: Bench) -> None:
    for _ in range(3):
        bench.device.close()
        bench.forget()
        registry.forget()
        expect(open_device(bench.name).name == bench.name, "the device has another name after registering again")
        bench.works()


@runtime_case(
    "life.exit/handlers", "exit handlers of the user may use the device that is open, or close it; exit stays clean"
)
def handlers(bench: Bench) -> None:
    code = """
        def late():  # runs when the device is closed already
            from oarlock.errors import OarlockError
            try:
                device.allocate(16)
                print("allocated")
            except OarlockError as error:
                print(type(error).__name__)

        atexit.register(late)
        bench = Bench(DEVICE, Options())
        device = bench.device
        kept = bench.filled(64)
        atexit.register(device.close)
        atexit.register(bench.works)  # runs first, with the device open
    """
    bench.clean_child(_OPEN + _dedented(code), "ClosedError")


@runtime_case("life.exit/threads", "exit is clean while other threads hold handles and work on the device")
def threads(bench: Bench) -> None:
    code = """
        import time
        bench = Bench(DEVICE, Options())
        bench.works()
        ready = threading.Event()

        def work():
            from oarlock.errors import OarlockError
            x, y = bench.filled(64), bench.filled(64)
            try:
                while True:
                    bench.increment(y, x, 64, 1)
                    bench.device.synchronize()
                    ready.set()
            except OarlockError:
                time.sleep(60)

        threading.Thread(target=work, daemon=True).start()
        ready.wait(30)
        print("end")
    """
    bench.clean_child(_OPEN + _dedented(code), "end")


@runtime_case(
    "life.exit/cycles",
    "exit with handles in cycles, globals, thread locals and exceptions is silent and clean",
)
def cycles(bench: Bench) -> None:
    code = """
        class Holder:
            pass

        bench = Bench(DEVICE, Options())
        device = bench.device
        first, second = Holder(), Holder()
        first.other, second.other = second, first
        first.buffer, second.event = bench.filled(64), device.default_stream.record()
        local = threading.local()
        local.program = bench.load(kernels.increment())
        try:
            device.allocate(1 << 61)
        except Exception as error:
            kept = error
        scope = device.default_stream
        scope.__enter__()
        gc.disable()
        print("end")
    """
    bench.clean_child(_OPEN + _dedented(code), "end")


def _dedented(code: str) -> str:
    return "\n".join(line[8:] for line in code.splitlines()) + "\n"


@runtime_case(
    "life.process/in_a_row", "processes one after the other, each ended without closing, find the device well"
)
def in_a_row(bench: Bench) -> None:
    code = """
        bench = Bench(DEVICE, Options())
        kept = [bench.filled(1000) for _ in range(20)]
        bench.works()
        print("end")
    """
    for _ in range(1 if bench.options.quick else 3):
        bench.clean_child(_OPEN + _dedented(code), "end")
    bench.works()
