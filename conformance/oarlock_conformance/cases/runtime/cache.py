"""Cases on the cache of compiled kernels: a hit is exact and whole, anything else is compiled anew."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from oarlock.abi import Executable, KernelSignature
from oarlock.codegen.kernel import signature_of
from oarlock.codegen.pipeline import render
from oarlock.hal import Adapter, DeviceInfo, Driver
from oarlock.runtime import Device
from oarlock.target import Target
from oarlock_conformance import kernels
from oarlock_conformance.bench import CHILD, Bench, expect, expect_equal, setting
from oarlock_conformance.case import Failure
from oarlock_conformance.registry import runtime_case


class _Counting(Adapter):
    """The device's adapter, which counts what it compiles; ``tag`` is put in front of its cache key."""

    def __init__(self, adapter: Adapter, real: bool) -> None:
        self._adapter = adapter
        self._real = real
        self.compiled = 0
        self.tag = ""

    def devices(self) -> list[DeviceInfo]:
        return self._adapter.devices()

    def open(self, index: int) -> Driver:
        return self._adapter.open(index)

    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        self.compiled += 1
        return self._adapter.compile(target, source, entries) if self._real else f"compiled {self.compiled}".encode()

    def cache_key(self, target: Target) -> str:
        return self.tag + self._adapter.cache_key(target)


@contextlib.contextmanager
def _counting(bench: Bench, real: bool) -> Iterator[tuple[Device, _Counting, Path]]:
    """The device with a counting adapter and an empty cache folder."""
    device = bench.device
    adapter, target = device.adapter, device.target
    counting = _Counting(adapter, real)
    with tempfile.TemporaryDirectory(prefix="oarlock-cache-") as name, setting("cache", True):
        device.adapter = counting
        try:
            with setting("cache_dir", Path(name)):
                yield device, counting, Path(name)
        finally:
            device.adapter, device.target = adapter, target


def _increment(bench: Bench) -> tuple[str, list[KernelSignature]]:
    function = kernels.increment()
    return render([function], bench.device.target), [signature_of(function, bench.device.target)]


@runtime_case("cache.hit/same", "the same source for the same target is compiled once, and works from the cache")
def same(bench: Bench) -> None:
    source, signatures = _increment(bench)
    data = bench.ints(20)
    with _counting(bench, real=True) as (device, counting, _):
        for _ in range(3):
            x, y = bench.upload(data), bench.filled(20)
            bench.launch(device.load(device.compile(source, signatures)), (20, 1, 1), [(x, 0), (y, 0)], [2])
            expect_equal(bench.download(y, 20), data + np.int32(2), "a kernel that may come from the cache")
        expect(counting.compiled == 1, f"one source was compiled {counting.compiled} times")


@runtime_case(
    "cache.miss/parts",
    "another source, entry, arch, flag, limit, compiler or driver version is a miss; back again, a hit",
)
def parts(bench: Bench) -> None:
    source, signatures = _increment(bench)
    with _counting(bench, real=False) as (device, counting, _):
        own = device.target
        first = device.compile(source, signatures).payload
        changes: dict[str, Callable[[], Executable]] = {
            "source": lambda: device.compile(source + "\n", signatures),
            "entry": lambda: device.compile(source, [replace(signatures[0], name="other")]),
            "arch": lambda: _compile_for(device, replace(own, arch=own.arch + "-2"), source, signatures),
            "flag": lambda: _compile_for(device, replace(own, flags=(*own.flags, "-x")), source, signatures),
            "limit": lambda: _compile_for(device, own.with_limits(max_buffers=5), source, signatures),
            "dtype": lambda: _compile_for(device, replace(own, compute=own.compute | {"x"}), source, signatures),
            "version": lambda: _compile_tagged(device, counting, source, signatures),
        }
        for what, compile_other in changes.items():
            before = counting.compiled
            payload = compile_other().payload
            expect(counting.compiled == before + 1 and payload != first, f"another {what} was taken for the same")
            again = device.compile(source, signatures).payload
            expect(again == first and counting.compiled == before + 1, f"after another {what} the first is no hit")


def _compile_for(device: Device, target: Target, source: str, signatures: Sequence[KernelSignature]) -> Executable:
    own, device.target = device.target, target
    try:
        return device.compile(source, signatures)
    finally:
        device.target = own


def _compile_tagged(
    device: Device, counting: _Counting, source: str, signatures: Sequence[KernelSignature]
) -> Executable:
    counting.tag = "driver 2 "
    try:
        return device.compile(source, signatures)
    finally:
        counting.tag = ""


@runtime_case(
    "cache.entry/damaged",
    "an entry that is cut, empty, changed, or another's is not used: it is compiled again",
)
def damaged(bench: Bench) -> None:
    source, signatures = _increment(bench)
    with _counting(bench, real=False) as (device, counting, folder):
        device.compile(source, signatures)
        (entry,) = (path for path in folder.rglob("*") if path.is_file())
        whole = entry.read_bytes()
        middle = len(whole) - 3
        for what, content in {
            "empty": b"", "cut": whole[:-1], "cut in its head": whole[:20], "longer": whole + b"x",
            "changed in one bit": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
            "of another kind": b"\x7fELF" + whole[4:],
        }.items():  # fmt: skip
            entry.write_bytes(content)
            before = counting.compiled
            payload = device.compile(source, signatures).payload
            expect(counting.compiled == before + 1, f"an entry that is {what} was used: {payload[:40]!r}")
            expect(device.compile(source, signatures).payload == payload, f"an entry that was {what} was not replaced")
            expect(counting.compiled == before + 1, f"an entry that was {what} was not written anew")


@runtime_case("cache.off/compiles", "with the cache off, or no folder to write to, kernels are compiled and work")
def off(bench: Bench) -> None:
    source, signatures = _increment(bench)
    with _counting(bench, real=False) as (device, counting, folder):
        with setting("cache", False):
            for _ in range(2):
                device.compile(source, signatures)
            expect(counting.compiled == 2, f"with the cache off, 2 requests compiled {counting.compiled} times")
        expect(not any(path.is_file() for path in folder.rglob("*")), "with the cache off, something was stored")
    bench.works()


_COMPILE = """
import pathlib
from oarlock.config import config
from oarlock_conformance.bench import Bench
from oarlock_conformance.case import Options
config.cache_dir = pathlib.Path(sys.argv[3])
Bench(DEVICE, Options()).works()
print("works")
"""


@runtime_case("cache.processes/at_once", "many processes that compile the same kernel at once all get one that works")
def at_once(bench: Bench) -> None:
    count = 4 if bench.options.quick else 32
    with tempfile.TemporaryDirectory(prefix="oarlock-cache-") as folder:
        command = [sys.executable, "-c", CHILD + _COMPILE, bench.name, json.dumps(sys.path), folder]
        pipe = subprocess.PIPE
        started = [
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
            for _ in range(count)
        ]
        try:
            told = [process.communicate(timeout=bench.options.deadline_s * 0.8) for process in started]
        except subprocess.TimeoutExpired:
            raise Failure(f"{count} processes that compile one kernel did not end in time") from None
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                    process.communicate()
        for process, (output, errors) in zip(started, told, strict=True):
            good = process.returncode == 0 and output.strip() == "works" and not errors.strip()
            expect(good, f"one of {count} processes ended with {process.returncode}: {errors.strip()[-400:]}")
        left = [path.name for path in Path(folder).rglob(".new-*")]
        expect(not left, f"{len(left)} temporary files are left in the cache")
