"""Cases on compiling and loading: good sources, bad ones, many programs, several kernels in one."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from oarlock.abi import Executable
from oarlock.codegen.kernel import signature_of
from oarlock.codegen.pipeline import render
from oarlock.errors import CompileError
from oarlock.runtime.cache import cached_compile
from oarlock_conformance import kernels
from oarlock_conformance.bench import Bench, expect, expect_equal, muted, raises, setting
from oarlock_conformance.registry import runtime_case


def _source(bench: Bench, salt: int = 0) -> str:
    comment = {"llvm": f"; {salt}\n"}.get(bench.device.target.language, f"// {salt}\n")
    return comment + render([kernels.increment()], bench.device.target)


@runtime_case("program.compile/error", "a bad source raises CompileError with the compiler's log")
def bad_source(bench: Bench) -> None:
    device = bench.device
    function = kernels.increment()
    signature = signature_of(function, device.target)
    source = "this is no source in any language { ( \n" + render([function], device.target)
    with muted(), setting("cache", False), raises(CompileError, "compiling nonsense"):
        try:
            device.load(device.compile(source, [signature]))
        except CompileError as error:
            expect(bool(error.log.strip()), "CompileError has an empty log")
            expect(device.name in str(error), f"CompileError does not name the device: {error}")
            raise
    bench.works()


@runtime_case("program.compile/missing_entry", "an entry that the source does not define raises CompileError")
def missing_entry(bench: Bench) -> None:
    device = bench.device
    function = kernels.increment()
    source = render([function], device.target)
    absent = kernels.stamp()
    with muted(), setting("cache", False), raises(CompileError, "compiling a source that lacks an entry"):
        device.load(
            device.compile(source, [signature_of(function, device.target), signature_of(absent, device.target)])
        )
    bench.works()


@runtime_case("program.compile/twice", "compile gives working bytes whenever it is called, from the cache or not")
def compile_twice(bench: Bench) -> None:
    device = bench.device
    signature = signature_of(kernels.increment(), device.target)
    source = _source(bench, 1)
    with setting("cache", False):
        fresh = [cached_compile(device, source, [signature]) for _ in range(2)]
    cached = [device.compile(source, [signature]) for _ in range(2)]
    data = bench.ints(33)
    for executable in (*fresh, *cached):
        expect(isinstance(executable.payload, bytes), f"compile gave {type(executable.payload).__name__}, not bytes")
        x, y = bench.upload(data), bench.filled(33)
        bench.launch(device.load(executable), (33, 1, 1), [(x, 0), (y, 0)], [4])
        expect_equal(bench.download(y, 33), data + np.int32(4), "a program loaded from compiled bytes")


@runtime_case("program.compile/threads", "compile is called from several threads at once")
def compile_threads(bench: Bench) -> None:
    device = bench.device
    signature = signature_of(kernels.increment(), device.target)
    sources = [_source(bench, 100 + number) for number in range(8)]
    with setting("cache", False), ThreadPoolExecutor(4) as pool:
        executables = list(pool.map(lambda source: device.compile(source, [signature]), sources))
    data = bench.ints(9)
    for number, executable in enumerate(executables):
        x, y = bench.upload(data), bench.filled(9)
        bench.launch(device.load(executable), (9, 1, 1), [(x, 0), (y, 0)], [number])
        expect_equal(bench.download(y, 9), data + np.int32(number), f"program {number} of 8 compiled at once")


@runtime_case("program.compile/no_device", "compile needs no open device, and its bytes are good after opening one")
def no_device(bench: Bench) -> None:
    device = bench.device
    adapter, target = device.adapter, device.target
    signature = signature_of(kernels.increment(), target)
    source = _source(bench, 4)
    device.close()
    bench.forget()
    payload = adapter.compile(target, source, [signature.name])
    data = bench.ints(12)
    x, y = bench.upload(data), bench.filled(12)
    program = bench.device.load(Executable(target, payload, (signature,), source))
    bench.launch(program, (12, 1, 1), [(x, 0), (y, 0)], [8])
    expect_equal(bench.download(y, 12), data + np.int32(8), "a kernel that was compiled without an open device")


@runtime_case("program.compile/other_process", "the bytes of compile may be loaded in another process")
def other_process(bench: Bench) -> None:
    code = """
        import sys
        import numpy as np
        from oarlock_conformance.bench import Bench
        from oarlock_conformance.case import Options
        bench = Bench(DEVICE, Options())
        bench.works()
        print("works")
    """
    bench.works()  # now the bytes are in the cache, and the child takes them from there
    bench.clean_child(code, "works")


@runtime_case("program.load/several", "a program holds every kernel of its source")
def several(bench: Bench) -> None:
    device = bench.device
    program = bench.load(kernels.increment(), kernels.stamp(), kernels.broadcast_scalar())
    expect(set(program.signatures) == {"increment", "stamp", "broadcast_scalar"}, f"it has {set(program.signatures)}")
    out = bench.filled(6)
    device.launch(program, "stamp", (6, 1, 1), [(out, 0)], program.signatures["stamp"].pack([0, 10, 6, 1]))
    expect_equal(bench.download(out, 6), 10 + np.arange(6, dtype=np.int32), "the second kernel of a program")


@runtime_case("program.load/apart", "one executable may be loaded many times; freeing one leaves the others")
def apart(bench: Bench) -> None:
    device = bench.device
    signature = signature_of(kernels.increment(), device.target)
    executable = device.compile(_source(bench, 2), [signature])
    programs = [device.load(executable) for _ in range(4)]
    del programs[1], programs[0]
    gc.collect()
    device.synchronize()
    data = bench.ints(5)
    for program in programs:
        x, y = bench.upload(data), bench.filled(5)
        bench.launch(program, (5, 1, 1), [(x, 0), (y, 0)], [1])
        expect_equal(bench.download(y, 5), data + np.int32(1), "a program after others of its executable were freed")


@runtime_case(
    "program.load/same_names", "programs whose kernels have the same names keep apart, whatever is loaded or freed"
)
def same_names(bench: Bench) -> None:
    factors = (2, 3, 5, -7)
    programs = {factor: bench.load(kernels.scale(factor)) for factor in factors}
    data = bench.ints(40)
    for kept in (factors, factors[1:], (5,)):
        for factor in kept:
            x, y = bench.upload(data), bench.filled(40)
            bench.launch(programs[factor], (40, 1, 1), [(x, 0), (y, 0)])
            expect_equal(bench.download(y, 40), data * np.int32(factor), f"the kernel that multiplies by {factor}")
        for factor in set(programs) - set(kept):
            del programs[factor]
        gc.collect()
        bench.device.stats()


@runtime_case("program.load/many", "programs loaded, used and dropped leave nothing behind")
def many(bench: Bench) -> None:
    device = bench.device
    signature = signature_of(kernels.increment(), device.target)
    executable = device.compile(_source(bench, 3), [signature])
    before = device.stats().programs
    out, x = bench.filled(3), bench.filled(3, 2)
    rounds = 40 * bench.rounds_factor
    for _ in range(rounds):
        bench.launch(device.load(executable), (3, 1, 1), [(x, 0), (out, 0)], [1])
    device.synchronize()
    gc.collect()
    after = device.stats().programs
    expect(after <= before, f"{after - before} programs are alive after {rounds} were dropped")


@runtime_case(
    "program.free/in_flight", "a program that is dropped while its kernel runs stays loaded until it has ended"
)
def in_flight(bench: Bench) -> None:
    data = bench.ints(50)
    for _ in range(5):
        busy, x, y = bench.filled(2), bench.upload(data), bench.filled(50)
        bench.spin(busy, 1, seconds=0.005)
        bench.launch(bench.load(kernels.increment()), (50, 1, 1), [(x, 0), (y, 0)], [2])
        gc.collect()
        bench.device.stats()
        expect_equal(bench.download(y, 50), data + np.int32(2), "a kernel whose program was dropped")
