"""Cases on the life of a device: closing, opening again, the end of the process, forks."""

from __future__ import annotations

import gc

from oarlock.errors import ClosedError
from oarlock_conformance import kernels
from oarlock_conformance.bench import Bench, expect, expect_equal, raises
from oarlock_conformance.registry import runtime_case

_OPEN = """
import numpy as np
from oarlock_conformance.bench import Bench
from oarlock_conformance.case import Options
from oarlock_conformance import kernels
bench = Bench(DEVICE, Options())
"""
_ALIVE = (
    _OPEN
    + """
device = bench.device
bench.works()
x, y = bench.filled(64), bench.filled(64)
program = bench.load(kernels.increment())
event = device.current_stream.record()
streams = [device.create_stream() for _ in range(2)] if device.can.streams is not None else []
"""
)


@runtime_case("life.close/twice", "closing twice is harmless")
def twice(bench: Bench) -> None:
    device = bench.device
    device.close()
    device.close()
    with raises(ClosedError, "allocating on a closed device", device.name):
        device.allocate(16)
    bench.works()


@runtime_case("life.close/used_after", "after close every use raises ClosedError")
def used_after(bench: Bench) -> None:
    device = bench.device
    buffer, program = bench.filled(4), bench.program(kernels.stamp)
    scalars = program.signatures["stamp"].pack([0, 1, 1, 1])
    device.close()
    for what, use in (
        ("allocate", lambda: device.allocate(4)),
        ("copy_in", lambda: device.copy_in(buffer, 0, b"1234")),
        ("copy_out", lambda: device.copy_out(bytearray(4), buffer, 0)),
        ("launch", lambda: device.launch(program, "stamp", (1, 1, 1), [(buffer, 0)], scalars)),
        ("synchronize", device.synchronize),
    ):
        with raises(ClosedError, f"{what} on a closed device"):
            use()
    bench.forget()
    bench.works()


@runtime_case("life.close/drop_after", "buffers, programs and streams may be dropped after the device was closed")
def drop_after(bench: Bench) -> None:
    device = bench.device
    things = [bench.filled(1000), bench.load(kernels.stamp()), device.current_stream.record()]
    if device.can.streams is not None:
        things.append(device.create_stream())
    device.close()
    bench.forget()
    things.clear()
    gc.collect()
    bench.works()


@runtime_case("life.close/busy", "work in flight is finished or dropped when the device is closed")
def busy(bench: Bench) -> None:
    out = bench.filled(2)
    bench.spin(out, 1, seconds=0.1)
    bench.device.close()
    bench.forget()
    bench.works()


@runtime_case("life.open/again", "a device may be opened again after close, 10 times")
def again(bench: Bench) -> None:
    first = bench.device
    for _ in range(10):
        bench.device.close()
        bench.forget()
        bench.works()
    expect(bench.device is not first, "open_device gave the closed object")


@runtime_case("life.open/clean", "a device that was opened again has nothing of its earlier life")
def clean(bench: Bench) -> None:
    kept = [bench.filled(1 << 18) for _ in range(8)]
    bench.device.close()
    bench.forget()
    stats = bench.device.stats()
    expect(stats.buffers == 0 and stats.programs == 0, f"a new device holds {stats.buffers} buffers")
    kept.clear()
    data = bench.ints(10)
    expect_equal(bench.download(bench.upload(data), 10), data, "a copy on a device that was opened again")
    expect(bench.device.stats().buffers == 0, "buffers of an earlier life are counted")


@runtime_case("life.exit/normal", "a process that closed its device ends with status 0 and prints nothing")
def exit_normal(bench: Bench) -> None:
    bench.clean_child(
        _ALIVE + "del x, y, program, event, streams\nbench.forget()\ndevice.close()\nprint('end')\n", "end"
    )


@runtime_case("life.exit/live_handles", "exit with live handles is silent and clean: status 0, empty standard error")
def live_handles(bench: Bench) -> None:
    bench.clean_child(_ALIVE + "print('end')\n", "end")


@runtime_case("life.exit/busy", "exit while work is in flight is silent and clean")
def exit_busy(bench: Bench) -> None:
    bench.clean_child(_ALIVE + "out = bench.filled(2)\nbench.spin(out, 1, seconds=0.2)\nprint('end')\n", "end")


@runtime_case("life.exit/after_error", "exit after a refused program is silent and clean")
def exit_after_error(bench: Bench) -> None:
    code = """
from oarlock.errors import OarlockError
from oarlock_conformance.bench import muted
try:
    with muted():
        device.load(device.compile("no source at all {", list(program.executable.signatures)))
except OarlockError:
    print("refused")
"""
    bench.clean_child(_ALIVE + code, "refused")


@runtime_case("life.exit/sys_exit", "sys.exit with live handles keeps its status and prints nothing")
def sys_exit(bench: Bench) -> None:
    done = bench.child(_ALIVE + "import sys\nsys.exit(7)\n")
    expect(done.returncode == 7, f"the exit status is {done.returncode}, expected 7: {done.stderr.strip()[-300:]}")
    expect(not done.stderr.strip(), f"the child printed to standard error: {done.stderr.strip()[-300:]}")


@runtime_case("life.exit/exception", "an exception that ends the process is shown alone, with status 1")
def exit_exception(bench: Bench) -> None:
    done = bench.child(_ALIVE + "raise KeyError('the reason')\n")
    last = done.stderr.strip().splitlines()[-1:] or [""]
    expect(done.returncode == 1, f"the exit status is {done.returncode}, expected 1")
    expect(last == ["KeyError: 'the reason'"], f"the last line on standard error is {last[0]!r}")


@runtime_case("life.process/two", "two processes may use the device at the same time")
def two(bench: Bench) -> None:
    bench.works()
    bench.clean_child(_ALIVE + "bench.works()\nprint('end')\n", "end")
    bench.works()


@runtime_case("life.fork/refused", "in a forked child every use raises ForkedProcessError, at once")
def fork(bench: Bench) -> None:
    code = """
import os
from oarlock.errors import ForkedProcessError
from oarlock.runtime import open_device
child = os.fork()
if child == 0:
    refused = 0
    for use in (lambda: device.allocate(16), device.synchronize, lambda: open_device(DEVICE)):
        try:
            use()
        except ForkedProcessError:
            refused += 1
    os._exit(refused)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
bench.works()
"""
    bench.clean_child(_ALIVE + code, "3")


@runtime_case("life.fork/before", "a process that was forked before the device was touched may open it")
def fork_before(bench: Bench) -> None:
    code = """
import os
import oarlock.runtime
child = os.fork()
if child == 0:
    bench.works()
    os._exit(5)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""
    bench.clean_child(_OPEN + code, "5")


@runtime_case("life.counts/balanced", "live handles are counted, and none is left when all are dropped")
def balanced(bench: Bench) -> None:
    device = bench.device
    device.synchronize()
    before = device.stats()
    things = [device.allocate(100), bench.load(kernels.stamp())]
    if device.can.streams is not None:
        things += [device.create_stream(), device.current_stream.record()]
    during = device.stats()
    expect(
        during.buffers == before.buffers + 1, f"one allocation changed the count by {during.buffers - before.buffers}"
    )
    expect(during.programs == before.programs + 1, "one program is not counted as one")
    things.clear()
    gc.collect()
    device.synchronize()
    after = device.stats()
    for field in ("buffers", "programs", "streams", "events"):
        extra = getattr(after, field) - getattr(before, field)
        expect(extra <= 0, f"{extra} {field} are alive after all were dropped")
